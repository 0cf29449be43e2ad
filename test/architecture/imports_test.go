// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package architecture

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

const module = "crane.io/crane"

// goPackage is the part of `go list -json` that the rules read. Deps is transitive; test files do not count.
type goPackage struct {
	ImportPath string
	Dir        string
	Name       string
	Doc        string
	Imports    []string
	Deps       []string
	GoFiles    []string
}

// packages lists all packages of the repository once for all tests.
var packages = sync.OnceValues(func() ([]goPackage, error) {
	cmd := exec.CommandContext(context.Background(), "go", "list", "-e", "-json=ImportPath,Dir,Name,Doc,Imports,Deps,GoFiles", "./...")
	cmd.Dir = filepath.Join("..", "..")
	var stderr bytes.Buffer

	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w\n%s", err, stderr.String())
	}

	var pkgs []goPackage
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return pkgs, nil
		} else if err != nil {
			return nil, fmt.Errorf("decoding go list: %w", err)
		}

		pkgs = append(pkgs, p)
	}
})

// listPackages returns the packages of the repository below some folders; all without folders.
func listPackages(t *testing.T, folders ...string) []goPackage {
	t.Helper()

	all, err := packages()
	if err != nil {
		t.Fatal(err)
	}

	if len(folders) == 0 {
		return all
	}

	var out []goPackage
	for _, p := range all {
		if slices.ContainsFunc(folders, func(f string) bool { return below(p.ImportPath, []string{module + "/" + f}) }) {
			out = append(out, p)
		}
	}

	return out
}

func root(t *testing.T) string {
	t.Helper()

	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}

	return dir
}

// rule forbids packages below from to import packages below deny, apart from those below except and allow.
type rule struct {
	name       string
	from       []string
	except     []string // packages below from that the rule does not apply to
	deny       []string
	allow      []string // packages below deny that are allowed
	transitive bool
	why        string
}

var rules = []rule{
	{
		name:       "domain is pure",
		from:       []string{module + "/pkg"},
		deny:       []string{module + "/internal", module + "/api", module + "/cmd", "k8s.io", "sigs.k8s.io", "github.com/prometheus"},
		allow:      []string{"k8s.io/apimachinery/pkg/api/resource", "k8s.io/apimachinery/third_party/forked"},
		transitive: false,
		why:        "pkg/ runs in production, in a backtest and in a simulation alike; give it plain values, keep clients and API types in internal/",
	},
	{
		name:       "domain has no indirect dependency on a client",
		from:       []string{module + "/pkg"},
		deny:       []string{module + "/internal", module + "/api", "k8s.io/client-go", "sigs.k8s.io/controller-runtime", "k8s.io/kubernetes"},
		transitive: true,
		why:        "importers of pkg/ must not link a Kubernetes client",
	},
	{
		name:       "API types are only types",
		from:       []string{module + "/api"},
		deny:       []string{module, "k8s.io", "sigs.k8s.io"},
		allow:      []string{module + "/api", "k8s.io/api", "k8s.io/apimachinery"},
		transitive: false,
		why:        "clients of any language or version generator read api/; it imports k8s.io/api and apimachinery alone",
	},
	{
		name: "light parts do not link Kubernetes itself",
		from: []string{module},
		except: []string{
			module + "/internal/testbed/controlplane/server", module + "/cmd/controlplane",
			module + "/internal/scheduler/app", module + "/internal/scheduler/simulate", module + "/cmd/crane-scheduler",
		},
		deny:       []string{"k8s.io/kubernetes"},
		transitive: true,
		why:        "a cold link of k8s.io/kubernetes takes minutes; only the binaries of the control plane and of the scheduler link it",
	},
	{
		name: "scheduler plugins see the framework's interfaces alone",
		from: []string{module + "/internal/scheduler"},
		except: []string{
			module + "/internal/scheduler/app", module + "/internal/scheduler/simulate",
		},
		deny: []string{
			"k8s.io/kubernetes", module + "/internal/scheduler/app", module + "/internal/scheduler/simulate", "sigs.k8s.io/controller-runtime",
		},
		transitive: true,
		why: "a plugin imports k8s.io/kube-scheduler/framework, so that its tests compile in seconds and with the race " +
			"detector; the binary and the simulator alone put plugins and kube-scheduler together",
	},
	{
		name: "the Prometheus server belongs to the test bed",
		from: []string{module},
		except: []string{
			module + "/internal/testbed/promserver", module + "/internal/testbed/playground", module + "/internal/testbed/realcluster", module + "/cmd/playground",
			module + "/cmd/cluster", module + "/test",
		},
		deny: []string{"github.com/prometheus/prometheus"},
		allow: []string{
			"github.com/prometheus/prometheus/promql/parser", "github.com/prometheus/prometheus/model", "github.com/prometheus/prometheus/util",
			// Imports of the parser: interfaces and encodings, no engine and no store.
			"github.com/prometheus/prometheus/storage", "github.com/prometheus/prometheus/tsdb/chunkenc",
			"github.com/prometheus/prometheus/tsdb/chunks", "github.com/prometheus/prometheus/tsdb/fileutil",
		},
		transitive: true,
		why:        "production reads Prometheus over HTTP; its engine belongs to the playground and to tests",
	},
	{
		name:       "no production package imports the test bed",
		from:       []string{module},
		except:     []string{module + "/internal/testbed", module + "/cmd/playground", module + "/cmd/controlplane", module + "/cmd/nodes", module + "/cmd/nodekit", module + "/cmd/cluster", module + "/test"},
		deny:       []string{module + "/internal/testbed"},
		transitive: true,
		why:        "the test bed starts the other parts; none of them may depend on it",
	},
	{
		name:       "the command line is small",
		from:       []string{module + "/cmd/crane", module + "/internal/cli"},
		deny:       []string{module + "/internal/craned", "sigs.k8s.io/controller-runtime/pkg/manager", "go.etcd.io/etcd"},
		transitive: true,
		why:        "`crane` is downloaded by people and pipelines: no control plane, no controllers",
	},
	{
		name:       "the agent is small",
		from:       []string{module + "/cmd/crane-agent", module + "/internal/agent"},
		deny:       []string{"k8s.io/client-go/kubernetes/typed/admissionregistration", "k8s.io/client-go/informers"},
		transitive: true,
		why:        "the agent runs on every node: client-go's clientset links the clients of all API groups, internal/kube/slimclient those in use",
	},
	{
		name:       "examples are written like programs of others",
		from:       []string{module + "/examples"},
		deny:       []string{module + "/internal"},
		transitive: false,
		why:        "a program in another repository cannot import internal/; what it needs is in pkg/, api/ or cmd/craned/command",
	},
	{
		name:       "nothing imports a command",
		from:       []string{module},
		deny:       []string{module + "/cmd"},
		allow:      []string{module + "/cmd/craned/command"}, // Programs that add recommenders import it.
		transitive: false,
		why:        "cmd/ wires; what two binaries share is a package in internal/",
	},
}

func TestImportRules(t *testing.T) {
	pkgs := listPackages(t)
	for _, r := range rules {
		t.Run(strings.ReplaceAll(r.name, " ", "-"), func(t *testing.T) {
			for _, p := range pkgs {
				for _, v := range r.violations(p) {
					t.Errorf("%s imports %s: %s", p.ImportPath, v, r.why)
				}
			}
		})
	}
}

func (r rule) violations(p goPackage) []string {
	if !below(p.ImportPath, r.from) || below(p.ImportPath, r.except) {
		return nil
	}

	deps := p.Imports
	if r.transitive {
		deps = p.Deps
	}

	var bad []string
	for _, d := range deps {
		if d != p.ImportPath && below(d, r.deny) && !below(d, r.allow) {
			bad = append(bad, d)
		}
	}

	if len(bad) > 3 {
		bad = bad[:3]
	}

	return bad
}

func below(path string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool {
		return path == p || strings.HasPrefix(path, p+"/")
	})
}

// TestRulesBite plants violations of each rule and expects them to be reported, and requires that every path of a rule exists: a rule
// with a mistyped path would otherwise always pass.
func TestRulesBite(t *testing.T) {
	var known []string
	for _, p := range listPackages(t) {
		known = append(append(known, p.ImportPath), p.Deps...)
	}

	for _, r := range rules {
		for _, path := range slices.Concat(r.from, r.except, r.deny, r.allow) {
			if !slices.ContainsFunc(known, func(p string) bool { return below(p, []string{path}) }) {
				t.Errorf("rule %q names %s, which no package is or imports", r.name, path)
			}
		}

		for _, from := range r.from {
			for _, deny := range r.deny {
				planted := goPackage{ImportPath: from + "/planted", Imports: []string{deny + "/planted"}, Deps: []string{deny + "/planted"}}
				if len(r.violations(planted)) == 0 {
					t.Errorf("rule %q does not report that %s imports %s", r.name, planted.ImportPath, planted.Imports[0])
				}
			}
		}
	}
}
