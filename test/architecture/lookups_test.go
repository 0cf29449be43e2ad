// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package architecture

import (
	_ "embed"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// lookupsTable lists each place that finds or judges an object by a name, a label or an annotation, a line each: the function, its lookups and the
// reason for which whoever may write such an object cannot steer what Crane or its operator may do, separated by tabs.
//
//go:embed testdata/lookups.tsv
var lookupsTable string

// Kinds of lookups.
const (
	lookupEverywhere = "everywhere" // a list of all namespaces
	lookupSelector   = "selector"   // a list by labels or fields
	lookupAnnotation = "annotation" // an annotation that decides
	lookupLabel      = "label"      // a label that decides
	lookupName       = "name"       // an object of a fixed name
)

// TestLookupsHaveReasons checks that each place that finds an object by a name, a label or an annotation is in the table with a reason, and that the
// table has no other place. Names, labels and annotations prove nothing about who created an object: outside of Crane's namespace they are a
// tenant's text. A new place needs a line that says why it is harmless, or a proof of who wrote the object.
func TestLookupsHaveReasons(t *testing.T) {
	want, err := parseLookups(lookupsTable)
	if err != nil {
		t.Fatal(err)
	}

	got := map[string]string{}
	for _, p := range listPackages(t, "internal", "cmd") {
		if below(p.ImportPath, []string{module + "/internal/testbed"}) || slices.Contains(withoutObjects(), strings.TrimPrefix(p.ImportPath, module+"/")) {
			continue
		}

		for _, file := range p.GoFiles {
			parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, file), nil, 0)
			if err != nil {
				t.Fatal(err)
			}

			maps.Copy(got, lookupsOf(strings.TrimPrefix(p.ImportPath, module+"/"), parsed))
		}
	}

	if len(got) < 100 {
		t.Fatalf("found %d functions with lookups, want 100 or more", len(got))
	}

	for _, place := range slices.Sorted(maps.Keys(got)) {
		if want[place] != got[place] {
			t.Errorf("%s finds objects by %s, want %q as in testdata/lookups.tsv: add the reason for which a tenant's object cannot steer it, or prove who wrote the object", place, got[place], want[place])
		}
	}

	for _, place := range slices.Sorted(maps.Keys(want)) {
		if got[place] == "" {
			t.Errorf("testdata/lookups.tsv has %s, want no line for a place without a lookup", place)
		}
	}
}

// TestLookupsAreFound checks that the search finds each kind of lookup.
func TestLookupsAreFound(t *testing.T) {
	const source = `package p
func (r *Reader) everywhere() { r.pods.Pods(metav1.NamespaceAll).List(ctx, options); r.pods.Pods("").List(ctx, options) }
func selector() { c.List(ctx, &list, client.MatchingLabels{"app": "craned"}); o := metav1.ListOptions{LabelSelector: "app=craned"} }
func annotation() { if pod.Annotations["a"] != "" || pod.GetAnnotations()["b"] != "" {} }
func label() { a := pod.Labels; if a["c"] == "" {}; _ = metav1.HasLabel(pod.ObjectMeta, "x") }
func name() { c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "crane-pause"}, &m); c.Get(ctx, types.NamespacedName{Name: ConfigMapName}, &m) }
func (r *Reader) none() { pod.Annotations["a"] = "b"; c.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: r.Name}, &m) }
`
	parsed, err := parser.ParseFile(token.NewFileSet(), "p.go", source, 0)
	if err != nil {
		t.Fatal(err)
	}

	want := map[string]string{
		"p.Reader.everywhere": "everywhere 2",
		"p.selector":          "selector 2",
		"p.annotation":        "annotation 2",
		"p.label":             "label 2",
		"p.name":              "name 2",
	}
	if got := lookupsOf("p", parsed); !maps.Equal(got, want) {
		t.Errorf("lookupsOf = %q, want %q", got, want)
	}
}

// withoutObjects are packages whose labels and annotations are not those of objects: labels of series, and annotations of commands.
func withoutObjects() []string {
	return []string{"internal/metrics/prometheus", "internal/component/deprecatedflags", "internal/metrics/promadapter"}
}

// parseLookups returns the lookups of the table by their places.
func parseLookups(table string) (map[string]string, error) {
	out := map[string]string{}
	last := ""
	for line := range strings.Lines(table) {
		line = strings.TrimSuffix(line, "\n")
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}

		fields := strings.Split(line, "\t")
		if len(fields) != 3 || len(strings.Fields(fields[2])) < 3 {
			return nil, fmt.Errorf("line %q: want a place, its lookups and a reason", line)
		}

		if fields[0] <= last {
			return nil, fmt.Errorf("line %q: want it before %s, each place once", line, last)
		}

		last = fields[0]
		out[fields[0]] = fields[1]
	}

	return out, nil
}

// lookupsOf returns the lookups of the functions of a file, as in "label 2, selector 1".
func lookupsOf(folder string, file *ast.File) map[string]string {
	out := map[string]string{}
	for _, decl := range file.Decls {
		counts := map[string]int{}
		ast.Inspect(decl, func(n ast.Node) bool {
			for _, kind := range lookupKinds(n) {
				counts[kind]++
			}

			return true
		})

		// Writing an annotation or a label is no lookup.
		ast.Inspect(decl, func(n ast.Node) bool {
			if assign, ok := n.(*ast.AssignStmt); ok && assign.Tok == token.ASSIGN {
				for _, left := range assign.Lhs {
					for _, kind := range indexKind(left) {
						counts[kind]--
					}
				}
			}

			return true
		})
		maps.DeleteFunc(counts, func(_ string, n int) bool { return n == 0 })

		var parts []string
		for _, kind := range slices.Sorted(maps.Keys(counts)) {
			parts = append(parts, fmt.Sprintf("%s %d", kind, counts[kind]))
		}
		if len(parts) > 0 {
			out[folder+"."+declName(decl)] = strings.Join(parts, ", ")
		}
	}

	return out
}

// declName returns the name of a function with its receiver, or "var" for other declarations.
func declName(decl ast.Decl) string {
	f, ok := decl.(*ast.FuncDecl)
	if !ok {
		return "var"
	}
	if f.Recv == nil {
		return f.Name.Name
	}

	receiver := f.Recv.List[0].Type
	if star, ok := receiver.(*ast.StarExpr); ok {
		receiver = star.X
	}
	if generic, ok := receiver.(*ast.IndexExpr); ok {
		receiver = generic.X
	}

	return fmt.Sprint(receiver) + "." + f.Name.Name
}

// lookupKinds returns the kinds of lookups that a node is itself.
func lookupKinds(n ast.Node) []string {
	switch n := n.(type) {
	case *ast.SelectorExpr:
		return selectorKind(n.Sel.Name)
	case *ast.KeyValueExpr:
		if key, ok := n.Key.(*ast.Ident); ok && slices.Contains(selectorFields(), key.Name) {
			return []string{lookupSelector}
		}
	case *ast.AssignStmt:
		return assignedKinds(n)
	case *ast.IndexExpr:
		return indexKind(n)
	case *ast.CallExpr:
		return callKind(n)
	case *ast.CompositeLit:
		return keyKind(n)
	}

	return nil
}

func selectorFields() []string { return []string{"LabelSelector", "FieldSelector"} }

// selectorKind returns the kind of what a package or an object is asked for.
func selectorKind(name string) []string {
	switch {
	case name == "NamespaceAll":
		return []string{lookupEverywhere}
	case slices.Contains([]string{
		"MatchingLabels", "MatchingLabelsSelector", "HasLabels", "MatchingFields", "MatchingFieldsSelector", "NewRequirement", "ParseSelectorOrDie", "OneTermEqualSelector",
	}, name):
		return []string{lookupSelector}
	}

	return nil
}

// assignedKinds finds selectors that are set, and annotations and labels that get a name of their own.
func assignedKinds(n *ast.AssignStmt) []string {
	var out []string
	for _, left := range n.Lhs {
		if field, ok := left.(*ast.SelectorExpr); ok && slices.Contains(selectorFields(), field.Sel.Name) {
			out = append(out, lookupSelector)
		}
	}

	if n.Tok != token.DEFINE {
		return out
	}

	for _, right := range n.Rhs {
		out = append(out, metadataKind(right)...)
	}

	return out
}

// indexKind returns the kind of a value that is read from the annotations or the labels of an object.
func indexKind(n ast.Expr) []string {
	if index, ok := n.(*ast.IndexExpr); ok {
		return metadataKind(index.X)
	}

	return nil
}

// metadataKind returns the kind of an expression for the annotations or the labels of an object.
func metadataKind(n ast.Expr) []string {
	if call, ok := n.(*ast.CallExpr); ok {
		n = call.Fun
	}

	field, ok := n.(*ast.SelectorExpr)
	switch {
	case !ok:
		return nil
	case field.Sel.Name == "Annotations" || field.Sel.Name == "GetAnnotations":
		return []string{lookupAnnotation}
	case field.Sel.Name == "Labels" || field.Sel.Name == "GetLabels":
		return []string{lookupLabel}
	}

	return nil
}

// callKind returns the kind of a call that passes annotations or labels to a helper, or an empty namespace to a client.
func callKind(n *ast.CallExpr) []string {
	field, ok := n.Fun.(*ast.SelectorExpr)
	if !ok {
		return nil
	}

	switch {
	case field.Sel.Name == "HasLabel":
		return []string{lookupLabel}
	case field.Sel.Name == "HasAnnotation":
		return []string{lookupAnnotation}
	case len(n.Args) == 1 && slices.Contains([]string{"Pods", "Services", "ConfigMaps", "Secrets", "Leases", "Deployments", "DaemonSets", "InNamespace"}, field.Sel.Name):
		if literal, ok := n.Args[0].(*ast.BasicLit); ok && literal.Value == `""` {
			return []string{lookupEverywhere}
		}
	}

	var out []string
	for _, arg := range n.Args {
		out = append(out, metadataKind(arg)...)
	}

	return out
}

// keyKind returns the kind of the key of an object whose name is fixed in the code.
func keyKind(n *ast.CompositeLit) []string {
	field, ok := n.Type.(*ast.SelectorExpr)
	if !ok || field.Sel.Name != "ObjectKey" && field.Sel.Name != "NamespacedName" {
		return nil
	}

	for _, element := range n.Elts {
		pair, ok := element.(*ast.KeyValueExpr)
		if !ok || fmt.Sprint(pair.Key) != "Name" {
			continue
		}

		name := ""
		switch value := pair.Value.(type) {
		case *ast.BasicLit:
			return []string{lookupName}
		case *ast.Ident:
			name = value.Name
		case *ast.SelectorExpr:
			// A constant of another package, not a field.
			if receiver, ok := value.X.(*ast.Ident); ok && receiver.Obj == nil {
				name = value.Sel.Name
			}
		}

		// Exported constants, and those that say what they are.
		if name != "" && (ast.IsExported(name) && name != "Name" || strings.HasSuffix(name, "Name")) {
			return []string{lookupName}
		}
	}

	return nil
}
