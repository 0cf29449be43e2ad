// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package architecture

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// kubeletPaths returns what the agent may open below the kubelet's directory, by the function and the arguments of the call. All but the socket are
// outside of what the DaemonSet mounts: an agent outside of a pod reads them, or one that gets a further mount. No other file of the directory is
// needed, and many have credentials: a new one needs a line here, and a mount that shows no more than it.
func kubeletPaths() []string {
	return []string{
		"internal/agent.environment.newZoneManagers: e.KubeletRoot, cpupinning.StateFile",
		"internal/agent.kubeletSocket: o.KubeletRoot, kubeletsocket.Path",
		"internal/agent/features.Host.kubeletPolicy: h.KubeletRoot, file",
		"internal/agent/observe.exclusiveState.readKubelet: cmp.Or(w.kubeletDir, defaultKubeletDir), kubeletStateFile",
		`internal/agent/topology.KubeletClient.readServingCertificates: c.Dir, "pki", "kubelet.crt"`,
		"internal/agent/topology.KubeletReader.applyStateFile: r.Dir, file",
		`internal/agent/topology.KubeletReader.readFile: r.Dir, "config.yaml"`,
		"internal/agent/topology.KubeletReader.readStartTime: r.Dir, kubeletsocket.Path",
	}
}

// TestKubeletPathsOfTheAgent checks that the agent opens nothing else below the kubelet's directory.
func TestKubeletPathsOfTheAgent(t *testing.T) {
	got := map[string]bool{}
	for _, p := range listPackages(t, "internal/agent") {
		for _, file := range p.GoFiles {
			parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, file), nil, 0)
			if err != nil {
				t.Fatal(err)
			}

			maps.Copy(got, kubeletPathsOf(strings.TrimPrefix(p.ImportPath, module+"/"), parsed))
		}
	}

	if diff := cmp.Diff(kubeletPaths(), slices.Sorted(maps.Keys(got))); diff != "" {
		t.Errorf("paths below the kubelet's directory (-want +got):\n%s", diff)
	}
}

// TestKubeletPathsAreFound checks that the search finds each form of a path.
func TestKubeletPathsAreFound(t *testing.T) {
	const source = `package p
func (o *Options) field() { os.Open(root.Path(o.KubeletRoot, "config.json")) }
func joined() { filepath.Join(c.KubeletDir, "kubeconfig") }
func (r *KubeletReader) dir() { host.ReadKubeletFile(r.Root, r.Dir, "a") }
func literal() { os.ReadFile("/var/lib/kubelet/config.json") }
func sum() { os.ReadFile(o.KubeletRoot + "/config.json") }
func none() { o.SetKubelet(o.KubeletRoot, nil); s.dirExists(c.Dir) }
`
	parsed, err := parser.ParseFile(token.NewFileSet(), "p.go", source, 0)
	if err != nil {
		t.Fatal(err)
	}

	want := []string{
		`p.KubeletReader.dir: r.Dir, "a"`, `p.Options.field: o.KubeletRoot, "config.json"`, `p.joined: c.KubeletDir, "kubeconfig"`,
		`p.literal: "/var/lib/kubelet/config.json"`, `p.sum: o.KubeletRoot + "/config.json"`,
	}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(kubeletPathsOf("p", parsed)))); diff != "" {
		t.Errorf("kubeletPathsOf (-want +got):\n%s", diff)
	}
}

// kubeletPathsOf returns the calls in a file that get the kubelet's directory, with the arguments from the directory on.
func kubeletPathsOf(folder string, file *ast.File) map[string]bool {
	out := map[string]bool{}
	for _, decl := range file.Decls {
		function, ok := decl.(*ast.FuncDecl)
		if !ok {
			continue
		}

		withoutPaths := []string{"SetKubelet", "StringVar", "Or"} // They pass the directory on.
		place := folder + "." + declName(decl)
		dirs := []string{"KubeletRoot", "KubeletDir", "kubeletDir", "defaultKubeletDir"}
		if strings.Contains(place, ".Kubelet") {
			dirs = append(dirs, "Dir")
		}

		ast.Inspect(function, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || slices.Contains(withoutPaths, calleeOf(call)) {
				return true
			}

			first := slices.IndexFunc(call.Args, func(e ast.Expr) bool { return namesDirectory(e, dirs) })
			if first >= 0 {
				var texts []string
				for _, argument := range call.Args[first:] {
					texts = append(texts, types.ExprString(argument))
				}

				out[place+": "+strings.Join(texts, ", ")] = true
			}

			return true
		})
	}

	return out
}

// namesDirectory reports whether an argument is the kubelet's directory or begins with it. A call inside of it counts by itself, unless it chooses
// the directory.
func namesDirectory(e ast.Expr, dirs []string) bool {
	switch e := e.(type) {
	case *ast.Ident:
		return slices.Contains(dirs, e.Name)
	case *ast.SelectorExpr:
		return slices.Contains(dirs, e.Sel.Name)
	case *ast.BinaryExpr:
		return namesDirectory(e.X, dirs)
	case *ast.BasicLit:
		return strings.Contains(e.Value, "lib/kubelet")
	case *ast.CallExpr:
		return calleeOf(e) == "Or" && slices.ContainsFunc(e.Args, func(a ast.Expr) bool { return namesDirectory(a, dirs) })
	}

	return false
}

// calleeOf returns the name of the called function.
func calleeOf(call *ast.CallExpr) string {
	switch f := call.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		return f.Sel.Name
	}

	return ""
}
