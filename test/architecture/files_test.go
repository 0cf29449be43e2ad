// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package architecture

import (
	"bufio"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Largest files, in lines; tests may be longer, because tables of cases are quick to read.
const (
	maxLines     = 550
	maxTestLines = 900
)

// goFiles returns the tracked and the new Go files, generated ones left out.
func goFiles(t *testing.T) []string {
	t.Helper()

	cmd := exec.CommandContext(t.Context(), "git", "ls-files", "--cached", "--others", "--exclude-standard", "*.go")
	cmd.Dir = root(t)
	out, err := cmd.Output()
	if err != nil {
		t.Skipf("not a git checkout: %v", err)
	}

	var files []string
	for f := range strings.FieldsSeq(string(out)) {
		if _, err := os.Stat(filepath.Join(root(t), f)); err == nil && !strings.Contains(head(t, f, 20), "DO NOT EDIT") {
			files = append(files, f)
		}
	}

	if len(files) == 0 {
		t.Fatal("git lists no Go file")
	}

	return files
}

func head(t *testing.T, file string, lines int) string {
	t.Helper()

	f, err := os.Open(filepath.Join(root(t), file))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()

	var b strings.Builder
	for sc := bufio.NewScanner(f); lines > 0 && sc.Scan(); lines-- {
		b.WriteString(sc.Text() + "\n")
	}

	return b.String()
}

func TestLicenseHeaders(t *testing.T) {
	for _, f := range goFiles(t) {
		if !strings.HasPrefix(head(t, f, 2), "// Copyright The Crane Authors.\n// SPDX-License-Identifier: Apache-2.0\n") {
			t.Errorf("%s: lacks the two lines of the license header (see hack/boilerplate.go.txt)", f)
		}
	}
}

func TestFileSizes(t *testing.T) {
	for _, f := range goFiles(t) {
		limit := maxLines
		if strings.HasSuffix(f, "_test.go") {
			limit = maxTestLines
		}

		content, err := os.ReadFile(filepath.Join(root(t), f))
		if err != nil {
			t.Fatal(err)
		}

		if n := strings.Count(string(content), "\n"); n > limit {
			t.Errorf("%s has %d lines, more than %d: split it by what its parts are for", f, n, limit)
		}
	}
}

// TestPackageComments checks that each package comment starts with a sentence in the form "Package name ...", or
// "Command name ..." for a main package.
func TestPackageComments(t *testing.T) {
	for _, p := range listPackages(t) {
		if len(p.GoFiles) == 0 {
			continue
		}

		want := "Package " + p.Name + " "
		if p.Name == "main" {
			want = "Command " + filepath.Base(p.ImportPath) + " "
		}
		if !strings.HasPrefix(p.Doc, want) || !strings.HasSuffix(p.Doc, ".") {
			t.Errorf("%s: the package comment is %q, want a sentence that starts with %q", p.ImportPath, p.Doc, want)
		}
	}
}

func TestNoCatchAllPackages(t *testing.T) {
	for _, p := range listPackages(t) {
		for _, word := range []string{"util", "utils", "common", "helper", "helpers", "misc"} {
			if slices.Contains(strings.Split(p.ImportPath, "/"), word) {
				t.Errorf("%s: name the package after its content, not %q", p.ImportPath, word)
			}
		}
	}
}

// TestSimilarSiblings rejects sibling folders whose names differ only in their ending, such as recommend and
// recommendation.
func TestSimilarSiblings(t *testing.T) {
	seen := map[string]string{}
	for _, p := range listPackages(t) {
		stem := filepath.Dir(p.ImportPath) + "/" + stemOf(filepath.Base(p.ImportPath))
		if other, ok := seen[stem]; ok {
			t.Errorf("%s and %s have names that are too similar: rename one", other, p.ImportPath)
		}

		seen[stem] = p.ImportPath
	}
}

var suffixes = regexp.MustCompile(`(ations|ation|ions|ion|ors|or|ers|er|ing|s|e)$`)

func stemOf(word string) string {
	if len(word) < 7 {
		return word
	}

	return suffixes.ReplaceAllString(word, "")
}

func TestNoReplaceInGoMod(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(root(t), "go.mod"))
	if err != nil {
		t.Fatal(err)
	}

	if regexp.MustCompile(`(?m)^replace\b|^\treplace\b`).Match(content) {
		t.Error("go.mod has a replace: importers of pkg/ would not get it")
	}
}

// maxMethods is the number of methods of the widest type.
const maxMethods = 25

// TestTypeWidth counts the methods that each type declares itself, outside tests. A wide type is split into types that can be tested alone.
func TestTypeWidth(t *testing.T) {
	type named struct{ folder, name string }
	counts := map[named]int{}
	for _, f := range goFiles(t) {
		if strings.HasSuffix(f, "_test.go") {
			continue
		}

		parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root(t), f), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}

		for _, d := range parsed.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv != nil {
				counts[named{filepath.Dir(f), receiverName(fn.Recv.List[0].Type)}]++
			}
		}
	}

	if len(counts) < 500 {
		t.Fatalf("only %d types have methods: the count is wrong", len(counts))
	}

	for of, n := range counts {
		if n > maxMethods {
			t.Errorf("%s: type %s has %d methods, more than %d: split it by what its methods are for", of.folder, of.name, n, maxMethods)
		}
	}
}

// receiverName returns the name of the type of a receiver, without pointer and type parameters.
func receiverName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiverName(e.X)
	case *ast.IndexExpr:
		return receiverName(e.X)
	case *ast.IndexListExpr:
		return receiverName(e.X)
	case *ast.Ident:
		return e.Name
	}

	return ""
}
