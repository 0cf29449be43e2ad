// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package docs_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// flagsPage renders the flags of a command and of its subcommands.
func flagsPage(name string, command *cobra.Command) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Flags of `%s`\n\nLook up a flag of `%s`, its type and its default. %s\n", name, name, generatedBy)
	writeFlags(&b, command, 2)

	return b.String()
}

func writeFlags(b *strings.Builder, c *cobra.Command, level int) {
	if c.Hidden || c.Name() == "help" || c.Name() == "completion" {
		return
	}

	if level > 2 {
		fmt.Fprintf(b, "\n## `%s`\n", c.CommandPath())
	}
	if c.Short != "" {
		fmt.Fprintf(b, "\n%s.\n", strings.TrimSuffix(cell(c.Short), "."))
	}

	writeFlagTable(b, c.NonInheritedFlags())
	for _, sub := range c.Commands() {
		writeFlags(b, sub, level+1)
	}
}

func writeFlagTable(b *strings.Builder, flags *pflag.FlagSet) {
	var rows []string
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" || f.Name == "version" {
			return
		}

		name := code("--" + f.Name)
		if f.Shorthand != "" {
			name = code("-"+f.Shorthand) + ", " + name
		}

		usage := f.Usage
		if f.Deprecated != "" {
			usage = "Deprecated: " + f.Deprecated
		}

		rows = append(rows, fmt.Sprintf("| %s | %s | %s | %s |\n", name, f.Value.Type(), code(portable(f.DefValue)), cell(portable(usage))))
	})

	if len(rows) == 0 {
		return
	}

	b.WriteString("\n| flag | type | default | description |\n| --- | --- | --- | --- |\n" + strings.Join(rows, ""))
}

// portable replaces what depends on the machine that generates the page, and drops empty defaults.
func portable(value string) string {
	if value == "[]" {
		return ""
	}

	if home, err := os.UserCacheDir(); err == nil {
		value = strings.ReplaceAll(value, home, "~/.cache")
	}
	if home, err := os.UserHomeDir(); err == nil && home != "/" {
		value = strings.ReplaceAll(value, home, "~")
	}

	if host, err := os.Hostname(); err == nil && value == host {
		return "the host name"
	}

	return value
}

// schedulerPage renders what crane-scheduler has beside kube-scheduler. It reads the sources: linking crane-scheduler would
// link Kubernetes.
func schedulerPage(t *testing.T) string {
	t.Helper()

	var b strings.Builder
	b.WriteString("# Flags and plugin arguments of `crane-scheduler`\n\nLook up what `crane-scheduler` has beside kube-scheduler, whose flags it shares. " + generatedBy + "\n")

	for _, args := range pluginArguments(t, filepath.Join(root, "internal/scheduler/pluginconfig")) {
		fmt.Fprintf(&b, "\n## Arguments of plugin `%s`\n\n| argument | type | description |\n| --- | --- | --- |\n", args.plugin)
		for _, f := range args.fields {
			fmt.Fprintf(&b, "| %s | %s | %s |\n", code(f.name), cell(f.kind), cell(f.doc))
		}
	}

	b.WriteString("\n## `crane-scheduler simulate`\n\n`crane simulate schedule` has the same flags.\n\n| flag | type | description |\n| --- | --- | --- |\n")
	for _, f := range simulateFlags(t) {
		name := code("--" + f.name)
		if f.short != "" {
			name = code("-"+f.short) + ", " + name
		}

		fmt.Fprintf(&b, "| %s | %s | %s |\n", name, f.kind, cell(f.doc))
	}

	return b.String()
}

type argument struct{ name, short, kind, doc string }

type plugin struct {
	plugin string
	fields []argument
}

// pluginArguments returns the fields of each type whose name ends in Args.
func pluginArguments(t *testing.T, dir string) []plugin {
	t.Helper()

	var out []plugin
	for _, file := range parseDir(t, dir) {
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok || !strings.HasSuffix(spec.Name.Name, "Args") {
				return true
			}

			fields, ok := spec.Type.(*ast.StructType)
			if !ok {
				return true
			}

			p := plugin{plugin: strings.TrimSuffix(spec.Name.Name, "Args")}
			for _, f := range fields.Fields.List {
				if len(f.Names) != 1 || f.Tag == nil {
					continue
				}

				tag, err := strconv.Unquote(f.Tag.Value)
				if err != nil {
					t.Fatal(err)
				}

				name, _, _ := strings.Cut(reflect.StructTag(tag).Get("json"), ",")
				if f.Doc.Text() == "" {
					t.Errorf("%s.%s has no doc comment", spec.Name.Name, f.Names[0].Name)
				}

				p.fields = append(p.fields, argument{name: name, kind: typeName(f.Type), doc: f.Doc.Text()})
			}

			out = append(out, p)
			return true
		})
	}

	if len(out) < 2 {
		t.Fatalf("%s has the arguments of %d plugins only", dir, len(out))
	}

	return out
}

func typeName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		if ast.IsExported(e.Name) {
			return "string"
		}

		return e.Name

	case *ast.ArrayType:
		return "list of " + typeName(e.Elt)
	}

	return "object"
}

// simulateFlags returns the flags that the sources of `crane-scheduler simulate` define.
func simulateFlags(t *testing.T) []argument {
	t.Helper()

	var out []argument
	for _, file := range parseDir(t, filepath.Join(root, "internal/scheduler/simulate")) {
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}

			method, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}

			kind, short := strings.CutSuffix(method.Sel.Name, "VarP")
			if !short {
				if kind, ok = strings.CutSuffix(method.Sel.Name, "Var"); !ok {
					return true
				}
			}

			if len(call.Args) < 4 {
				return true
			}

			a := argument{name: text(call.Args[1]), kind: strings.ToLower(kind[:1]) + kind[1:], doc: text(call.Args[len(call.Args)-1])}
			if short {
				a.short = text(call.Args[2])
			}

			out = append(out, a)
			return true
		})
	}

	if len(out) < 5 {
		t.Fatalf("%d flags of simulate only", len(out))
	}

	return out
}

// text returns a string expression; a part that is not constant becomes an ellipsis.
func text(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		if s, err := strconv.Unquote(e.Value); err == nil {
			return s
		}
	case *ast.BinaryExpr:
		return text(e.X) + text(e.Y)
	}

	return "…"
}

// parseDir parses the files of a folder that are no tests.
func parseDir(t *testing.T, dir string) []*ast.File {
	t.Helper()

	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}

	var files []*ast.File
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}

		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}

		files = append(files, file)
	}

	return files
}
