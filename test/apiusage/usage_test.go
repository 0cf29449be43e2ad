// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package apiusage checks that fields of the API and exported constants are used.
package apiusage

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const (
	module = "crane.io/crane"
	root   = "../.."
)

// exempt returns the fields and constants that code uses without naming them, with the reason. For a type, its constants are exempt.
func exempt() map[string]string {
	const policy = "cpupinning converts the annotation to a numa.Policy"
	return map[string]string{
		"v1alpha1.VerticalAction":     "the controller of EffectiveVerticalPodAutoscalers converts a vertical.Action",
		"histogram.RelativeError":     "the guarantee of the package, which its tests check",
		"v1alpha1.CPUPolicyExclusive": policy, "v1alpha1.CPUPolicyNUMA": policy, "v1alpha1.CPUPolicyImmovable": policy,
	}
}

// inert matches the description of a field or a type that promises no effect.
var inert = regexp.MustCompile(`(?i)no effect|without effect|does not write`)

// TestFieldsAndConstantsAreUsed checks that code other than tests and generated code reads each field of a spec and sets each field
// of a status, unless its description states that it has no effect, and that it uses each exported constant of the module, or of an
// enumeration at least one: the others may be the default.
func TestFieldsAndConstantsAreUsed(t *testing.T) {
	program := loadProgram(t)
	for _, pkg := range program.sources {
		program.recordUses(pkg)
	}

	for _, pkg := range program.sources {
		program.checkConstants(t, pkg)
		if strings.HasPrefix(pkg.types.Path(), module+"/api/") {
			program.checkKinds(t, pkg)
		}
	}

	for name := range exempt() {
		if !program.exempted[name] {
			t.Errorf("%s is exempt from the check but used, want it taken off the list", name)
		}
	}
}

// source is a type-checked package of the module.
type source struct {
	types *types.Package
	info  *types.Info
	files []*ast.File
}

// program is the module without its tests.
type program struct {
	fileSet *token.FileSet
	sources []*source
	// reads and writes are the fields of the API, constants the constants of the module that code uses, by key.
	reads, writes, constants map[string]bool
	// docs are the descriptions of types and fields by name, such as v1alpha1.AnalyticsSpec.Type.
	docs     map[string]string
	exempted map[string]bool
	visited  map[string]bool
}

// listedPackage is a package in the output of go list.
type listedPackage struct {
	ImportPath, Export, Dir string
	GoFiles                 []string
	Module                  *struct{ Main bool }
}

func loadProgram(t *testing.T) *program {
	t.Helper()

	cmd := exec.CommandContext(t.Context(), "go", "list", "-export", "-deps", "-json=ImportPath,Export,Dir,GoFiles,Module", "./cmd/...", "./internal/...", "./pkg/...")
	cmd.Dir = root

	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}

	exports := map[string]string{}
	var own []listedPackage
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listedPackage
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}

		exports[p.ImportPath] = p.Export
		if p.Module != nil && p.Module.Main {
			own = append(own, p)
		}
	}

	p := &program{
		fileSet: token.NewFileSet(), reads: map[string]bool{}, writes: map[string]bool{}, constants: map[string]bool{},
		docs: map[string]string{}, exempted: map[string]bool{}, visited: map[string]bool{},
	}

	from := importer.ForCompiler(p.fileSet, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	for _, listed := range own {
		p.sources = append(p.sources, p.load(t, listed, from))
	}

	return p
}

func (p *program) load(t *testing.T, listed listedPackage, from types.Importer) *source {
	t.Helper()

	s := &source{info: &types.Info{
		Selections: map[*ast.SelectorExpr]*types.Selection{}, Uses: map[*ast.Ident]types.Object{}, Types: map[ast.Expr]types.TypeAndValue{},
	}}
	for _, name := range listed.GoFiles {
		file, err := parser.ParseFile(p.fileSet, filepath.Join(listed.Dir, name), nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}

		s.files = append(s.files, file)
	}

	var err error
	if s.types, err = (&types.Config{Importer: from}).Check(listed.ImportPath, p.fileSet, s.files, s.info); err != nil {
		t.Fatal(err)
	}

	return s
}

// key identifies an object both in source and in export data, whose positions have no exact columns.
func (p *program) key(o types.Object) string {
	at := p.fileSet.Position(o.Pos())
	return fmt.Sprintf("%s %s:%d %s", o.Pkg().Path(), filepath.Base(at.Filename), at.Line, o.Name())
}

func isAPI(o types.Object) bool {
	return o != nil && o.Pkg() != nil && strings.HasPrefix(o.Pkg().Path(), module+"/api/")
}

// recordUses records the fields of the API and the constants that a package uses.
func (p *program) recordUses(pkg *source) {
	for _, file := range pkg.files {
		if strings.HasPrefix(filepath.Base(p.fileSet.Position(file.Pos()).Filename), "zz_generated") {
			continue
		}

		assigned := map[ast.Node]bool{}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.AssignStmt:
				for _, left := range n.Lhs {
					if n.Tok == token.ASSIGN {
						assigned[assignedField(left)] = true
					}
				}

			case *ast.SelectorExpr:
				p.recordSelection(pkg.types, pkg.info.Selections[n], assigned[n])
			case *ast.KeyValueExpr:
				if id, ok := n.Key.(*ast.Ident); ok {
					if field, ok := pkg.info.Uses[id].(*types.Var); ok && field.IsField() && isAPI(field) {
						p.writes[p.key(field)] = true
					}
				}

			case *ast.Ident:
				if c, ok := pkg.info.Uses[n].(*types.Const); ok && c.Pkg() != nil && strings.HasPrefix(c.Pkg().Path(), module+"/") {
					p.constants[p.key(c)] = true
				}
			}

			return true
		})
	}
}

// recordSelection records the field that a package reads or writes.
func (p *program) recordSelection(reader *types.Package, s *types.Selection, isAssigned bool) {
	// The webhooks only check fields.
	if s == nil || s.Kind() != types.FieldVal || !isAPI(s.Obj()) || strings.HasPrefix(reader.Path(), module+"/internal/craned/admission") {
		return
	}

	if isAssigned {
		p.writes[p.key(s.Obj())] = true
	} else {
		p.reads[p.key(s.Obj())] = true
	}
}

// assignedField returns the selector that an assignment to an expression changes.
func assignedField(e ast.Expr) ast.Node {
	for {
		switch x := e.(type) {
		case *ast.IndexExpr:
			e = x.X
		case *ast.StarExpr:
			e = x.X
		case *ast.ParenExpr:
			e = x.X
		default:
			return e
		}
	}
}

func (p *program) checkConstants(t *testing.T, pkg *source) {
	t.Helper()

	var constants []*types.Const
	usedTypes := map[types.Object]bool{}
	for _, name := range pkg.types.Scope().Names() {
		if c, ok := pkg.types.Scope().Lookup(name).(*types.Const); ok && c.Exported() {
			constants = append(constants, c)
			if enumeration := namedType(c.Type()); enumeration != nil && p.constants[p.key(c)] {
				usedTypes[enumeration] = true
			}
		}
	}

	for _, c := range constants {
		name := c.Name()
		enumeration := namedType(c.Type())
		if enumeration != nil {
			name = enumeration.Name()
		}
		if !p.constants[p.key(c)] && !usedTypes[enumeration] && !p.isExempt(pkg.types.Name()+"."+name) {
			t.Errorf("%s: no code uses the constant %s, want a use or its removal", p.fileSet.Position(c.Pos()), c.Name())
		}
	}
}

// checkKinds checks the fields of the kinds of a package. Kinds are the types with a TypeMeta.
func (p *program) checkKinds(t *testing.T, pkg *source) {
	t.Helper()

	for _, file := range pkg.files {
		p.readDocs(pkg.types, file)
	}

	for _, name := range pkg.types.Scope().Names() {
		s, ok := pkg.types.Scope().Lookup(name).Type().Underlying().(*types.Struct)
		if ok && s.NumFields() > 0 && s.Field(0).Name() == "TypeMeta" && !strings.HasSuffix(name, "List") {
			p.checkStruct(t, pkg.types.Scope().Lookup(name), false)
		}
	}
}

// readDocs records the descriptions of types and fields.
func (p *program) readDocs(pkg *types.Package, file *ast.File) {
	ast.Inspect(file, func(n ast.Node) bool {
		decl, ok := n.(*ast.GenDecl)
		if !ok || decl.Tok != token.TYPE {
			return true
		}

		for _, spec := range decl.Specs {
			named, ok := spec.(*ast.TypeSpec)
			if !ok {
				continue
			}

			name := pkg.Name() + "." + named.Name.Name
			p.docs[pkg.Path()+name] = decl.Doc.Text() + named.Doc.Text()

			fields, ok := named.Type.(*ast.StructType)
			if !ok {
				continue
			}

			for _, field := range fields.Fields.List {
				for _, id := range field.Names {
					p.docs[pkg.Path()+name+"."+id.Name] = field.Doc.Text()
				}
			}
		}

		return true
	})
}

// checkStruct checks the fields of a type and of the types inside of it. With isStatus, fields have to be set instead of read.
func (p *program) checkStruct(t *testing.T, named types.Object, isStatus bool) {
	t.Helper()

	name := named.Pkg().Name() + "." + named.Name()
	fields, ok := named.Type().Underlying().(*types.Struct)

	visit := fmt.Sprint(named.Pkg().Path(), name, isStatus)
	if !ok || p.visited[visit] || inert.MatchString(p.docs[named.Pkg().Path()+name]) {
		return
	}

	p.visited[visit] = true
	for field := range fields.Fields() {
		if field.Embedded() {
			continue
		}

		path := name + "." + field.Name()
		if inert.MatchString(p.docs[named.Pkg().Path()+path]) {
			continue
		}

		key := p.key(field)
		if used := p.reads[key] || isStatus && p.writes[key]; !used && !p.isExempt(path) {
			t.Errorf("%s: no code %s %s: implement it, or state in its description that it has no effect", p.fileSet.Position(field.Pos()),
				map[bool]string{true: "sets", false: "reads"}[isStatus], path)
		}

		if inner := namedType(field.Type()); isAPI(inner) {
			p.checkStruct(t, inner, isStatus || field.Name() == "Status")
		}
	}
}

// namedType returns the named type in a field's type, below pointers, lists and maps; nil if there is none.
func namedType(of types.Type) types.Object {
	switch x := types.Unalias(of).(type) {
	case *types.Pointer:
		return namedType(x.Elem())
	case *types.Slice:
		return namedType(x.Elem())
	case *types.Map:
		return namedType(x.Elem())
	case *types.Named:
		return x.Obj()
	}

	return nil
}

func (p *program) isExempt(name string) bool {
	_, isExempt := exempt()[name]
	p.exempted[name] = p.exempted[name] || isExempt
	return isExempt
}
