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
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// sharedBy is the number of commands from which on a flag is listed once, for all of them.
const sharedBy = 5

// flagsPage renders the flags of a command and of its subcommands. Flags that many subcommands share have a table of their own.
func flagsPage(name string, command *cobra.Command) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Flags of `%s`\n\nLook up a flag of `%s`, its type and its default. %s\n", name, name, generatedBy)

	count := map[string]int{}
	countFlags(command, count)
	writeFlags(&b, command, count, 2)

	var shared []string
	for row, n := range count {
		if n >= sharedBy {
			shared = append(shared, row)
		}
	}

	slices.Sort(shared)
	if len(shared) > 0 {
		b.WriteString("\n## Shared flags\n\nThe commands above that name them have these flags.\n")
		writeFlagTable(&b, shared)
	}

	return b.String()
}

// isDocumented reports whether a command has a section.
func isDocumented(c *cobra.Command) bool {
	return !c.Hidden && c.Name() != "help" && c.Name() != "completion"
}

// countFlags counts the commands that have a flag, by its row.
func countFlags(c *cobra.Command, count map[string]int) {
	if !isDocumented(c) {
		return
	}

	for _, row := range flagRows(c.NonInheritedFlags()) {
		count[row]++
	}

	for _, sub := range c.Commands() {
		countFlags(sub, count)
	}
}

func writeFlags(b *strings.Builder, c *cobra.Command, count map[string]int, level int) {
	if !isDocumented(c) {
		return
	}

	if level > 2 {
		fmt.Fprintf(b, "\n## `%s`\n", c.CommandPath())
	}
	if c.Short != "" {
		fmt.Fprintf(b, "\n%s.\n", strings.TrimSuffix(cell(c.Short), "."))
	}

	var own, shared []string
	for _, row := range flagRows(c.NonInheritedFlags()) {
		if count[row] < sharedBy {
			own = append(own, row)
			continue
		}

		name, _, _ := strings.Cut(strings.TrimPrefix(row, "| "), " |")
		shared = append(shared, name)
	}

	writeFlagTable(b, own)
	if len(shared) > 0 {
		fmt.Fprintf(b, "\n[Shared](#shared-flags): %s.\n", sharedNames(shared))
	}

	for _, sub := range c.Commands() {
		writeFlags(b, sub, count, level+1)
	}
}

// sharedNames lists the names of shared flags; those for Prometheus, which commands have as a whole, are one.
func sharedNames(names []string) string {
	const prometheus = "`--prometheus"
	var out []string
	for _, name := range names {
		if !strings.HasPrefix(name, prometheus) {
			out = append(out, name)
		} else if name == prometheus+"`" {
			out = append(out, "those for Prometheus")
		}
	}

	return strings.Join(out, ", ")
}

// flagRows returns the row of each flag that is not hidden.
func flagRows(flags *pflag.FlagSet) []string {
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

	return rows
}

func writeFlagTable(b *strings.Builder, rows []string) {
	if len(rows) > 0 {
		b.WriteString("\n| flag | type | default | description |\n| --- | --- | --- | --- |\n" + strings.Join(rows, ""))
	}
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
					t.Errorf("%s.%s has no doc comment, want one", spec.Name.Name, f.Names[0].Name)
				}

				p.fields = append(p.fields, argument{name: name, kind: typeName(f.Type), doc: f.Doc.Text()})
			}

			out = append(out, p)
			return true
		})
	}

	if len(out) < 2 {
		t.Fatalf("%s has the arguments of %d plugins, want 2 or more", dir, len(out))
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
		t.Fatalf("%d flags of simulate were found, want 5 or more", len(out))
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
