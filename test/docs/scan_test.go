// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package docs_test

import (
	"cmp"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// metric is what the sources define of a metric.
type metric struct {
	name, kind, help, dir string
	labels                []string
}

// sourcePackage is a parsed package: its string constants, variables and functions by name.
type sourcePackage struct {
	dir    string
	files  map[string]*ast.File
	values map[string]ast.Expr
	funcs  map[string]*ast.FuncDecl
}

// scanner evaluates the expressions that define metrics.
type scanner struct {
	files      *token.FileSet
	packages   map[string]*sourcePackage
	metrics    map[string]metric
	unresolved []string
}

// scope resolves identifiers: those of a call that is evaluated, then those of the function, then those of the package.
type scope struct {
	pkg    *sourcePackage
	file   *ast.File
	locals map[string]ast.Expr
	params map[string]argumentValue
}

// argumentValue is what is passed for a parameter: several expressions for a variadic one, or a list that is spread.
type argumentValue struct {
	exprs    []ast.Expr
	spread   bool
	variadic bool
	in       *scope
}

// scanMetrics returns the metrics whose names start with crane_ or end with _hourly_cost, in order, and the places of those that it cannot evaluate.
func scanMetrics(t *testing.T, dir string) ([]metric, []string) {
	t.Helper()

	s := &scanner{files: token.NewFileSet(), packages: map[string]*sourcePackage{}, metrics: map[string]metric{}}
	for _, top := range []string{"internal", "api"} {
		err := filepath.WalkDir(filepath.Join(dir, top), func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				if top == "api" && dir != root {
					return filepath.SkipDir
				}

				return err
			}

			if d.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return nil
			}

			relative, err := filepath.Rel(dir, filepath.Dir(path))
			if err != nil {
				return err
			}

			file, err := parser.ParseFile(s.files, path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}

			s.add(filepath.ToSlash(relative), path, file)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}

	for _, p := range s.packages {
		for _, file := range p.files {
			s.scanFile(p, file)
		}
	}

	found := make([]metric, 0, len(s.metrics))
	for _, m := range s.metrics {
		found = append(found, m)
	}

	slices.SortFunc(found, func(a, b metric) int { return cmp.Compare(a.name, b.name) })
	slices.Sort(s.unresolved)
	return found, s.unresolved
}

func (s *scanner) add(dir, path string, file *ast.File) {
	p := s.packages[dir]
	if p == nil {
		p = &sourcePackage{dir: dir, files: map[string]*ast.File{}, values: map[string]ast.Expr{}, funcs: map[string]*ast.FuncDecl{}}
		s.packages[dir] = p
	}

	p.files[path] = file
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				p.funcs[d.Name.Name] = d
			}
		case *ast.GenDecl:
			addValues(p.values, d)
		}
	}
}

func addValues(to map[string]ast.Expr, d *ast.GenDecl) {
	for _, spec := range d.Specs {
		if v, ok := spec.(*ast.ValueSpec); ok && len(v.Values) == len(v.Names) {
			for i, name := range v.Names {
				to[name.Name] = v.Values[i]
			}
		}
	}
}

func (s *scanner) scanFile(p *sourcePackage, file *ast.File) {
	for _, d := range file.Decls {
		sc := &scope{pkg: p, file: file, locals: map[string]ast.Expr{}}
		if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil {
			collectLocals(sc.locals, f.Body)
		}

		var wrapped [][2]token.Pos // bodies of functions that do nothing but return a call
		ast.Inspect(d, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if _, ok := returned(n.Body); ok && len(n.Type.Params.List) > 0 {
					wrapped = append(wrapped, [2]token.Pos{n.Pos(), n.End()})
				}

			case *ast.FuncLit:
				if _, ok := returned(n.Body); ok && len(n.Type.Params.List) > 0 {
					wrapped = append(wrapped, [2]token.Pos{n.Pos(), n.End()})
				}
			case *ast.CallExpr:
				inWrapper := slices.ContainsFunc(wrapped, func(w [2]token.Pos) bool { return w[0] <= n.Pos() && n.End() <= w[1] })
				s.call(n, sc, inWrapper, 0)
			}

			return true
		})
	}
}

// collectLocals notes what local names stand for.
func collectLocals(to map[string]ast.Expr, body *ast.BlockStmt) {
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			if n.Tok == token.DEFINE && len(n.Lhs) == len(n.Rhs) {
				for i, l := range n.Lhs {
					if name, ok := l.(*ast.Ident); ok {
						to[name.Name] = n.Rhs[i]
					}
				}
			}

		case *ast.GenDecl:
			addValues(to, n)
		}

		return true
	})
}

// returned returns the expression of a body that is a single return statement.
func returned(body *ast.BlockStmt) (ast.Expr, bool) {
	if body == nil || len(body.List) != 1 {
		return nil, false
	}

	r, ok := body.List[0].(*ast.ReturnStmt)
	if !ok || len(r.Results) != 1 {
		return nil, false
	}

	return r.Results[0], true
}

// call records the metric that a call makes, be it itself or through a function that returns such a call.
func (s *scanner) call(c *ast.CallExpr, sc *scope, inWrapper bool, depth int) {
	if depth > 5 {
		return
	}

	if kind := constructor(c, sc.file); kind != "" {
		if m, ok := s.define(c, kind, sc); ok {
			m.dir = sc.pkg.dir
			if strings.HasPrefix(m.name, "crane_") || strings.HasSuffix(m.name, "_hourly_cost") {
				s.metrics[m.name] = m
			}
		} else if !inWrapper {
			s.unresolved = append(s.unresolved, s.files.Position(c.Pos()).String())
		}

		return
	}

	params, body, in := callee(c, sc)
	if params == nil {
		return
	}

	result, ok := returned(body)
	if !ok {
		return
	}

	if inner, ok := result.(*ast.CallExpr); ok {
		s.call(inner, in.with(params, c, sc), inWrapper || depth > 0, depth+1)
	}
}

// constructor returns what kind of metric a call makes; it is "desc" for a description and empty for other calls.
func constructor(c *ast.CallExpr, file *ast.File) string {
	sel, ok := c.Fun.(*ast.SelectorExpr)
	if !ok {
		return ""
	}

	from, ok := sel.X.(*ast.Ident)
	if !ok {
		return ""
	}

	switch importPath(file, from.Name) {
	case "github.com/prometheus/client_golang/prometheus", "github.com/prometheus/client_golang/prometheus/promauto", "k8s.io/component-base/metrics":
	default:
		return ""
	}

	kind, ok := strings.CutPrefix(sel.Sel.Name, "New")
	if !ok {
		return ""
	}

	kind = strings.ToLower(strings.TrimSuffix(strings.TrimSuffix(kind, "Vec"), "Func"))
	switch kind {
	case "desc", "counter", "gauge", "histogram", "summary":
		return kind
	}

	return ""
}

// importPath returns the path of the import that a file calls name.
func importPath(file *ast.File, name string) string {
	for _, i := range file.Imports {
		path, err := strconv.Unquote(i.Path.Value)
		if err != nil {
			continue
		}

		if i.Name != nil && i.Name.Name == name || i.Name == nil && path[strings.LastIndex(path, "/")+1:] == name {
			return path
		}
	}

	return ""
}

// callee returns the parameters and the body of a function of the package or of a local one; it returns nil for others.
func callee(c *ast.CallExpr, sc *scope) (*ast.FieldList, *ast.BlockStmt, *scope) {
	name, ok := c.Fun.(*ast.Ident)
	if !ok {
		return nil, nil, nil
	}

	if lit, ok := sc.locals[name.Name].(*ast.FuncLit); ok {
		return lit.Type.Params, lit.Body, sc
	}

	if f := sc.pkg.funcs[name.Name]; f != nil {
		for _, file := range sc.pkg.files {
			if file.Pos() <= f.Pos() && f.End() <= file.End() {
				return f.Type.Params, f.Body, &scope{pkg: sc.pkg, file: file, locals: map[string]ast.Expr{}}
			}
		}
	}

	return nil, nil, nil
}

// with returns the scope of a function whose parameters have the arguments of a call in another scope.
func (s *scope) with(params *ast.FieldList, c *ast.CallExpr, from *scope) *scope {
	out := &scope{pkg: s.pkg, file: s.file, locals: s.locals, params: map[string]argumentValue{}}
	i := 0
	for _, f := range params.List {
		_, variadic := f.Type.(*ast.Ellipsis)
		for _, name := range f.Names {
			v := argumentValue{in: from, variadic: variadic}
			if variadic {
				if i < len(c.Args) {
					v.exprs = c.Args[i:]
					v.spread = c.Ellipsis.IsValid()
				}
			} else if i < len(c.Args) {
				v.exprs = c.Args[i : i+1]
			}

			out.params[name.Name] = v
			i++
		}
	}

	return out
}

// define evaluates the arguments of a constructor.
func (s *scanner) define(c *ast.CallExpr, kind string, sc *scope) (metric, bool) {
	if kind == "desc" {
		if len(c.Args) < 3 {
			return metric{}, false
		}

		name, ok := s.str(c.Args[0], sc)
		help, helped := s.str(c.Args[1], sc)
		labels, listed := s.list(c.Args[2], sc)

		// A constant metric does not carry its type in the description; counters end in _total.
		m := metric{name: name, help: help, labels: labels, kind: "gauge"}
		if strings.HasSuffix(name, "_total") {
			m.kind = "counter"
		}

		return m, ok && helped && listed
	}

	m := metric{kind: kind}
	if len(c.Args) == 0 {
		return m, false
	}

	options := c.Args[0]
	if u, ok := options.(*ast.UnaryExpr); ok {
		options = u.X
	}

	literal, ok := options.(*ast.CompositeLit)
	if !ok {
		return m, false
	}

	parts := map[string]string{}
	for _, e := range literal.Elts {
		kv, ok := e.(*ast.KeyValueExpr)
		if !ok {
			return m, false
		}

		switch key := kv.Key.(*ast.Ident).Name; key {
		case "Namespace", "Subsystem", "Name", "Help":
			if parts[key], ok = s.str(kv.Value, sc); !ok {
				return m, false
			}
		}
	}

	m.name = joinName(parts["Namespace"], parts["Subsystem"], parts["Name"])
	m.help = parts["Help"]
	if strings.HasSuffix(c.Fun.(*ast.SelectorExpr).Sel.Name, "Vec") {
		if len(c.Args) < 2 {
			return m, false
		}

		m.labels, ok = s.list(c.Args[1], sc)
	}

	return m, ok && m.name != ""
}

func joinName(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(p string) bool { return p == "" }), "_")
}

// str evaluates a string.
func (s *scanner) str(e ast.Expr, sc *scope) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		v, err := strconv.Unquote(e.Value)
		return v, err == nil

	case *ast.BinaryExpr:
		x, ok := s.str(e.X, sc)
		y, also := s.str(e.Y, sc)
		return x + y, ok && also && e.Op == token.ADD

	case *ast.Ident:
		if v, ok := sc.params[e.Name]; ok {
			if len(v.exprs) != 1 || v.variadic {
				return "", false
			}

			return s.str(v.exprs[0], v.in)
		}

		return s.named(e.Name, sc)

	case *ast.SelectorExpr:
		return s.imported(e, sc)

	case *ast.CallExpr:
		if sel, ok := e.Fun.(*ast.SelectorExpr); ok && sel.Sel.Name == "BuildFQName" && len(e.Args) == 3 {
			var parts []string
			for _, a := range e.Args {
				v, ok := s.str(a, sc)
				if !ok {
					return "", false
				}

				parts = append(parts, v)
			}

			return joinName(parts...), true
		}

		if f, ok := e.Fun.(*ast.Ident); ok && f.Name == "string" && len(e.Args) == 1 {
			return s.str(e.Args[0], sc)
		}
	}

	return "", false
}

// named evaluates a string that a local name or a name of the package stands for.
func (s *scanner) named(name string, sc *scope) (string, bool) {
	if v, ok := sc.locals[name]; ok {
		return s.str(v, &scope{pkg: sc.pkg, file: sc.file, locals: without(sc.locals, name)})
	}

	if v, ok := sc.pkg.values[name]; ok {
		return s.str(v, &scope{pkg: sc.pkg, file: sc.file})
	}

	return "", false
}

// imported evaluates a constant of another package of Crane.
func (s *scanner) imported(e *ast.SelectorExpr, sc *scope) (string, bool) {
	from, ok := e.X.(*ast.Ident)
	if !ok {
		return "", false
	}

	dir, ok := strings.CutPrefix(importPath(sc.file, from.Name), "crane.io/crane/")
	if p := s.packages[dir]; ok && p != nil {
		if v, ok := p.values[e.Sel.Name]; ok {
			return s.str(v, &scope{pkg: p})
		}
	}

	return "", false
}

// without returns the map without one name, so that an evaluation ends.
func without(m map[string]ast.Expr, name string) map[string]ast.Expr {
	out := map[string]ast.Expr{}
	for k, v := range m {
		if k != name {
			out[k] = v
		}
	}

	return out
}

// list evaluates a list of strings.
func (s *scanner) list(e ast.Expr, sc *scope) ([]string, bool) {
	switch e := e.(type) {
	case *ast.CompositeLit:
		return s.strs(e.Elts, sc)

	case *ast.Ident:
		if e.Name == "nil" {
			return nil, true
		}

		if v, ok := sc.params[e.Name]; ok {
			switch {
			case v.variadic && !v.spread:
				return s.strs(v.exprs, v.in)
			case len(v.exprs) == 1:
				return s.list(v.exprs[0], v.in)
			}

			return nil, len(v.exprs) == 0 && v.variadic
		}

		if v, ok := sc.locals[e.Name]; ok {
			return s.list(v, &scope{pkg: sc.pkg, file: sc.file, locals: without(sc.locals, e.Name)})
		}

		if v, ok := sc.pkg.values[e.Name]; ok {
			return s.list(v, &scope{pkg: sc.pkg, file: sc.file})
		}

	case *ast.CallExpr:
		return s.listCall(e, sc)
	}

	return nil, false
}

func (s *scanner) listCall(e *ast.CallExpr, sc *scope) ([]string, bool) {
	if sel, ok := e.Fun.(*ast.SelectorExpr); ok && sel.Sel.Name == "Clone" && len(e.Args) == 1 {
		return s.list(e.Args[0], sc)
	}

	name, ok := e.Fun.(*ast.Ident)
	if !ok {
		return nil, false
	}

	if name.Name == "append" && len(e.Args) > 0 {
		first, ok := s.list(e.Args[0], sc)
		if !ok {
			return nil, false
		}

		if e.Ellipsis.IsValid() {
			rest, ok := s.list(e.Args[1], sc)
			return append(slices.Clone(first), rest...), ok
		}

		rest, ok := s.strs(e.Args[1:], sc)
		return append(slices.Clone(first), rest...), ok
	}

	if params, body, in := callee(e, sc); params != nil {
		if result, ok := returned(body); ok {
			return s.list(result, in.with(params, e, sc))
		}
	}

	return nil, false
}

func (s *scanner) strs(exprs []ast.Expr, sc *scope) ([]string, bool) {
	var out []string
	for _, e := range exprs {
		v, ok := s.str(e, sc)
		if !ok {
			return nil, false
		}

		out = append(out, v)
	}

	return out, true
}
