// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Command instrument writes copies of the module's sources that report every call to package calltrace to a directory, and the overlay file
// with which the go command builds the copies.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: instrument DIRECTORY")
		os.Exit(2)
	}

	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "instrument:", err)
		os.Exit(1)
	}
}

// run instruments internal/ and pkg/ below the working directory, apart from the test bed.
func run(out string) error {
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	for _, root := range []string{"internal", "pkg"} {
		err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err != nil {
				return err
			}

			if entry.IsDir() && (entry.Name() == "testdata" || path == filepath.Join("internal", "testbed")) {
				return fs.SkipDir
			}

			if entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return nil
			}

			content, err := instrument(path)
			if err != nil {
				return err
			}

			copied, err := filepath.Abs(filepath.Join(out, strings.ReplaceAll(path, string(filepath.Separator), "__")))
			if err != nil {
				return err
			}

			original, err := filepath.Abs(path)
			if err != nil {
				return err
			}

			overlay.Replace[original] = copied
			return os.WriteFile(copied, content, 0o600)
		})

		if err != nil {
			return err
		}
	}

	content, err := json.Marshal(overlay)
	if err != nil {
		return err
	}

	return os.WriteFile(filepath.Join(out, "overlay.json"), content, 0o600)
}

// edit is text inserted at an offset.
type edit struct {
	at   int
	text string
}

// instrument returns a source with the calls of package calltrace; one without functions and a generated one stay as they are, and so do
// the lines.
func instrument(path string) ([]byte, error) {
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution|parser.ParseComments)
	if err != nil {
		return nil, err
	}

	content, err := os.ReadFile(path)
	if err != nil || ast.IsGenerated(parsed) {
		return content, err
	}

	offset := func(p token.Pos) int { return files.Position(p).Offset }
	slash := filepath.ToSlash(filepath.Dir(path))
	folder := strings.Join(strings.SplitN(slash, "/", 3)[:2], "/")

	var edits []edit
	for _, d := range parsed.Decls {
		function, ok := d.(*ast.FuncDecl)
		if !ok || function.Body == nil {
			continue
		}

		name := slash + "." + function.Name.Name
		if function.Recv != nil {
			name = slash + "." + receiver(function.Recv.List[0].Type) + "." + function.Name.Name
		}

		enter := func(body *ast.BlockStmt, closure bool, of *ast.FuncType) {
			edits = append(edits, edit{offset(body.Lbrace) + 1, fmt.Sprintf(" defer calltrace.Enter(%q, %q, %t, %t)();", name, folder, closure, yields(of))})
		}
		enter(function.Body, false, function.Type)

		ast.Inspect(function.Body, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncLit:
				enter(n.Body, true, n.Type)
			case *ast.CallExpr:
				if called, ok := n.Fun.(*ast.Ident); ok && called.Name == "yield" {
					edits = append(edits, edit{offset(n.Pos()), "calltrace.Yield(func() bool { return "}, edit{offset(n.End()), " })"})
				}
			}

			return true
		})
	}

	if len(edits) == 0 {
		return content, nil
	}

	edits = append(edits, edit{offset(parsed.Name.End()), `; import "crane.io/crane/test/pathlength/calltrace"`})
	slices.SortStableFunc(edits, func(a, b edit) int { return a.at - b.at })

	var out bytes.Buffer
	at := 0
	for _, e := range edits {
		out.Write(content[at:e.at])
		out.WriteString(e.text)
		at = e.at
	}

	out.Write(content[at:])
	return out.Bytes(), nil
}

// yields reports whether a function is an iterator: its only parameter is named yield.
func yields(of *ast.FuncType) bool {
	return of.Params.NumFields() == 1 && len(of.Params.List[0].Names) == 1 && of.Params.List[0].Names[0].Name == "yield"
}

// receiver returns the name of the type of a receiver, without pointer and type parameters.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}

	return ""
}
