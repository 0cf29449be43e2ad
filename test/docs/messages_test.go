// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// messagesPage lists the texts of the binaries that a user can meet, by package: errors, conditions, events, and what commands print. Logs are not
// among them, nor are the texts of flags, metrics and API fields, which have pages of their own.
func messagesPage(t *testing.T) string {
	t.Helper()

	messages := userMessages(t)
	var out strings.Builder
	out.WriteString("# Messages\n\nThis page lists every text of Crane in errors, conditions, events and the output of its commands, so that a text can be found and " +
		"reviewed. `…` is a value. " + generatedBy + "\n")

	for _, dir := range slices.Sorted(maps.Keys(messages)) {
		out.WriteString("\n## " + dir + "\n\n| kind | message |\n| --- | --- |\n")
		for _, m := range slices.Sorted(maps.Keys(messages[dir])) {
			kind, text, _ := strings.Cut(m, "\x00")
			out.WriteString("| " + kind + " | `` " + strings.ReplaceAll(text, "|", `\|`) + " `` |\n")
		}
	}

	return out.String()
}

// awkward matches phrases that a reader has to translate: words of a private language, and texts that users stopped at.
var awkward = regexp.MustCompile(`(?i)\b(nobody|somebody|whoever|nothing else there|told|tells? (us|you)|shall be|there was|is asked for|only keeps new pods away|` +
	`every part of the target|worth its replicas|of the largest use of|each at its best point|room becomes money|pods? to go|written down first|not all metric|` +
	`forgotten|that which|what is wanted|there is no such)\b`)

// TestMessagesArePlain fails for phrases that docs/reference/messages.md must not have.
func TestMessagesArePlain(t *testing.T) {
	total := 0
	for dir, messages := range userMessages(t) {
		for m := range messages {
			total++
			if found := awkward.FindString(m); found != "" {
				t.Errorf("%s: %q in the %s", dir, found, strings.Replace(m, "\x00", " ", 1))
			}
		}
	}

	if total < 1000 {
		t.Errorf("only %d messages were found", total)
	}
}

// userMessages returns the messages of each package as kind and text, separated by a zero byte.
func userMessages(t *testing.T) map[string]map[string]bool {
	t.Helper()

	out := map[string]map[string]bool{}
	for _, top := range []string{"internal", "pkg", "cmd"} {
		err := filepath.WalkDir(filepath.Join(root, top), func(file string, entry fs.DirEntry, err error) error {
			if err != nil {
				return err
			}

			slashed := filepath.ToSlash(file)
			if entry.IsDir() {
				// Of the test bed only the playground talks to users.
				if entry.Name() == "testdata" || strings.HasSuffix(path.Dir(slashed), "internal/testbed") && entry.Name() != "playground" {
					return filepath.SkipDir
				}

				return nil
			}

			if !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") || strings.HasSuffix(file, ".pb.go") {
				return nil
			}

			parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}

			dir := strings.TrimPrefix(path.Dir(slashed), root+"/")
			for _, m := range fileMessages(parsed) {
				if out[dir] == nil {
					out[dir] = map[string]bool{}
				}
				out[dir][m] = true
			}

			return nil
		})

		if err != nil {
			t.Fatal(err)
		}
	}

	return out
}

// sentence matches texts of at least two words; query matches PromQL and templates.
var (
	sentence = regexp.MustCompile(`[A-Za-z…%\]][,:;]? [A-Za-z…%(]`)
	query    = regexp.MustCompile(`=~|\{\{| by \(|\n  |^- |<[a-z/]`)
	verb     = regexp.MustCompile(`%[-+# 0]*[0-9*]*(\.[0-9*]+)?[a-zA-Z]`)
)

// fileMessages returns the messages of a file.
func fileMessages(file *ast.File) []string {
	var out []string
	var stack []ast.Node
	ast.Inspect(file, func(n ast.Node) bool {
		if n == nil {
			stack = stack[:len(stack)-1]
			return true
		}

		switch n := n.(type) {
		case *ast.ImportSpec, *ast.Field: // struct tags
			return false

		case *ast.ValueSpec: // texts of help
			if name := n.Names[0].Name; strings.HasSuffix(name, "Long") || strings.HasSuffix(name, "Example") {
				return false
			}

		case *ast.BasicLit, *ast.BinaryExpr:
			text, literal := joined(n.(ast.Expr))
			if !literal {
				break
			}

			kind := messageKind(stack)
			text = strings.Join(strings.Fields(strings.ReplaceAll(verb.ReplaceAllString(strings.ReplaceAll(text, "%%", "\x01"), "…"), "\x01", "%")), " ")
			if kind != "" && sentence.MatchString(text) && !query.MatchString(text) && strings.Trim(text, "… :,;./") != "" {
				out = append(out, kind+"\x00"+text)
			}

			return false
		}

		stack = append(stack, n)
		return true
	})

	return out
}

// joined returns the text of a literal or of a sum with a literal; its other parts become an ellipsis.
func joined(e ast.Expr) (text string, literal bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind != token.STRING {
			return "", false
		}

		text, err := strconv.Unquote(e.Value)
		return text, err == nil

	case *ast.BinaryExpr:
		if e.Op != token.ADD {
			return "", false
		}

		left, ok := joined(e.X)
		right, also := joined(e.Y)

		if !ok {
			left = "…"
		}
		if !also {
			right = "…"
		}

		return left + right, ok || also
	}

	return "", false
}

// messageKind returns the kind of a message from the expressions around it, or "" if it is no message for users.
func messageKind(stack []ast.Node) string {
	for _, n := range slices.Backward(stack) {
		switch n := n.(type) {
		case *ast.KeyValueExpr:
			key, _ := n.Key.(*ast.Ident)
			if key == nil {
				continue
			}
			if slices.Contains([]string{"Help", "Long", "Short", "Example", "Use"}, key.Name) { // pages of metrics and flags
				return ""
			}

		case *ast.CallExpr:
			name := ""
			switch f := n.Fun.(type) {
			case *ast.Ident:
				name = f.Name
			case *ast.SelectorExpr:
				name = f.Sel.Name
			}

			switch {
			case name == "Errorf" || name == "New" || name == "Wrapf":
				return "error"
			case name == "Event" || name == "Eventf":
				return "event"
			case slices.Contains([]string{"Info", "Error", "Warn", "Debug", "InfoS", "ErrorS", "MustCompile", "NewDesc", "panic"}, name):
				return ""
			case strings.HasSuffix(name, "Var") || strings.HasSuffix(name, "VarP"):
				return ""
			}
		}
	}

	return "text"
}
