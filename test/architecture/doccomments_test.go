// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package architecture

import (
	"go/ast"
	"go/doc/comment"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// joinedLines matches what go doc joins into running text: an item of a list, and a column of a table.
var joinedLines = regexp.MustCompile(`(?m)^(?:[-*•] |\d+[.)] )|\S {3,}\S`)

// docViolations returns the paragraphs of a doc comment that go doc prints differently from what the source looks like. Code and lists
// are indented, so that they are no paragraphs.
func docViolations(text string) []string {
	var parser comment.Parser
	var printer comment.Printer
	var bad []string
	for _, block := range parser.Parse(text).Content {
		paragraph, ok := block.(*comment.Paragraph)
		if !ok {
			continue
		}

		content := string(printer.Comment(&comment.Doc{Content: []comment.Block{paragraph}}))
		first, _, _ := strings.Cut(content, "\n")
		switch {
		case strings.Contains(content, `\t`):
			bad = append(bad, first+`: a literal \t; indent the line with a tab`)
		case joinedLines.MatchString(content):
			bad = append(bad, first+": a list or a table without indentation; go doc joins its lines")
		}
	}

	return bad
}

// docComments returns the comments of a file that go doc prints.
func docComments(file *ast.File) []*ast.CommentGroup {
	comments := []*ast.CommentGroup{file.Doc}
	for _, decl := range file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			comments = append(comments, d.Doc)

		case *ast.GenDecl:
			comments = append(comments, d.Doc)
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.TypeSpec:
					comments = append(comments, s.Doc)
				case *ast.ValueSpec:
					comments = append(comments, s.Doc)
				}
			}
		}
	}

	return slices.DeleteFunc(comments, func(c *ast.CommentGroup) bool { return c == nil })
}

func TestDocCommentsKeepTheirLines(t *testing.T) {
	checked := 0
	for _, f := range goFiles(t) {
		if strings.HasSuffix(f, "_test.go") {
			continue
		}

		files := token.NewFileSet()
		parsed, err := parser.ParseFile(files, filepath.Join(root(t), f), nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatalf("parsing %s: %v", f, err)
		}

		for _, group := range docComments(parsed) {
			checked++
			for _, v := range docViolations(group.Text()) {
				t.Errorf("%s:%d: %s", f, files.Position(group.Pos()).Line, v)
			}
		}
	}

	if checked < 5000 {
		t.Errorf("only %d doc comments were read: the search is wrong", checked)
	}
}

// TestDocCommentRuleBites plants comments with and without violations.
func TestDocCommentRuleBites(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       int
	}{
		{name: "a paragraph", text: "Run starts a server. It\nreturns 1. or 2.\n", want: 0},
		{name: "an indented list", text: "The order is\n\n 1. one;\n 2. two.\n", want: 0},
		{name: "indented code", text: "The defaults are\n\n\ta   1\n\tb   2\n", want: 0},
		{name: "a literal tab", text: "The defaults are\n\n\\ta 1\n", want: 1},
		{name: "a numbered list as text", text: "The order is\n\n1. one; 2.\ntwo.\n", want: 1},
		{name: "a list as text", text: "The order is\n- one\n- two\n", want: 1},
		{name: "a table as text", text: "a     the first\nbcd   the second\n", want: 1},
	} {
		if got := docViolations(c.text); len(got) != c.want {
			t.Errorf("docViolations(%q) (%s) = %q, want %d violations", c.text, c.name, got, c.want)
		}
	}
}
