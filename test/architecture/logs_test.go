// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package architecture

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
)

// logKeys are the keys of log lines, so that one thing has one name in the logs of all binaries.
func logKeys() []string {
	return []string{
		"action", "address", "annotation", "annotations", "apiServer", "cause", "causes", "cgroups", "container", "containers", "controllers",
		"cooldown", "count", "cpu", "cpus", "creator", "dataSources", "deficit", "delay", "deleted", "directory", "dryRun", "endpoint", "enforce",
		"err", "events", "failed", "file", "files", "from", "hint", "leaderElection", "leftOut", "limits", "memory", "metric", "metrics",
		"namespace", "needed", "node", "nodes", "panic", "part", "path", "phase", "plugin", "pod", "problem", "profile", "query",
		"reason", "recommenders", "removed", "request", "resource", "retryAfter", "rule", "secret", "shareOfMark", "source", "stack",
		"staticCPUs", "staticMemory", "step", "taint", "tainted", "target", "threshold", "to", "total", "tried", "unit", "until", "url", "user",
		"value", "version", "warning", "weights", "zones",
	}
}

// logCall is a call of a logger: what is wrong with its message, and its keys.
type logCall struct {
	position token.Position
	problem  string
	keys     []string
}

// logCalls returns the calls of loggers in a file. Functions that pass a message on, as parameter, are not looked at: their callers are.
func logCalls(name string, content any) ([]logCall, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, content, 0)
	if err != nil {
		return nil, err
	}

	var calls []logCall
	ast.Inspect(file, func(node ast.Node) bool {
		call, ok := node.(*ast.CallExpr)
		if !ok {
			return true
		}

		method, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || !isLogger(method.X) {
			return true
		}

		if method.Sel.Name == "WithValues" || method.Sel.Name == "With" {
			calls = append(calls, logCall{position: files.Position(call.Pos()), keys: literalKeys(call.Args)})
			return true
		}

		message := messageIndex(method.Sel.Name, call.Args)
		if message < 0 || message >= len(call.Args) {
			return true
		}

		calls = append(calls, logCall{
			position: files.Position(call.Pos()),
			problem:  messageProblem(call.Args[message]),
			keys:     literalKeys(call.Args[message+1:]),
		})

		return true
	})

	return calls, nil
}

// isLogger reports whether an expression is a logger by its name, or by the name of the function that returns it.
func isLogger(expression ast.Expr) bool {
	name := ""
	switch e := expression.(type) {
	case *ast.Ident:
		name = e.Name
	case *ast.SelectorExpr:
		name = e.Sel.Name
	case *ast.CallExpr:
		method, ok := e.Fun.(*ast.SelectorExpr)
		if !ok {
			return false
		}

		if method.Sel.Name == "V" || method.Sel.Name == "WithName" || method.Sel.Name == "WithValues" {
			return isLogger(method.X)
		}

		name = method.Sel.Name
		if name == "FromContext" || name == "FromContextOrDiscard" || name == "Background" {
			return true
		}
	}

	name = strings.ToLower(name)
	return name == "log" || name == "slog" || strings.Contains(name, "logger")
}

// messageIndex returns the place of the message among the arguments of a method of a logger; negative for others.
func messageIndex(method string, arguments []ast.Expr) int {
	switch method {
	case "Info", "Warn", "Debug":
		return 0
	case "Error": // The error comes first in logr, the message in slog.
		if len(arguments) > 1 && stringOf(arguments[0]) == "" {
			return 1
		}

		return 0
	}

	return -1
}

// messageProblem returns what is wrong with a message; empty for a name, which a function passes on.
func messageProblem(argument ast.Expr) string {
	switch argument.(type) {
	case *ast.Ident, *ast.SelectorExpr:
		return ""
	}

	text := stringOf(argument)
	if text == "" {
		return "its message is not a constant"
	}

	// An abbreviation or a name may begin a sentence: HTTP, NodeResourceTopology.
	first := []rune(text + "  ")[:2]
	if unicode.IsUpper(first[0]) && unicode.IsLower(first[1]) && !strings.ContainsFunc(strings.Fields(text)[0][1:], unicode.IsUpper) {
		return strconv.Quote(text) + " begins with a capital letter"
	}

	return ""
}

func literalKeys(arguments []ast.Expr) []string {
	var keys []string
	for i := 0; i < len(arguments); i += 2 {
		if key := stringOf(arguments[i]); key != "" {
			keys = append(keys, key)
		}
	}

	return keys
}

// stringOf returns the text of a string literal; empty for any other expression.
func stringOf(expression ast.Expr) string {
	literal, ok := expression.(*ast.BasicLit)
	if !ok || literal.Kind != token.STRING {
		return ""
	}

	text, _ := strconv.Unquote(literal.Value)
	return text
}

// TestLogLines checks that messages of logs are constant and in lower case, and that their keys are those of logKeys.
func TestLogLines(t *testing.T) {
	used := map[string]bool{}
	for _, file := range goFiles(t) {
		inside := strings.HasPrefix(file, "internal/") || strings.HasPrefix(file, "pkg/") || strings.HasPrefix(file, "cmd/")
		if !inside || strings.HasSuffix(file, "_test.go") {
			continue
		}

		source, err := os.ReadFile(filepath.Join(root(t), file))
		if err != nil {
			t.Fatal(err)
		}

		calls, err := logCalls(file, source)
		if err != nil {
			t.Fatal(err)
		}

		for _, call := range calls {
			if call.problem != "" {
				t.Errorf("%s: %s, want a constant in lower case with values as pairs", call.position, call.problem)
			}

			for _, key := range call.keys {
				used[key] = true
				if !slices.Contains(logKeys(), key) {
					t.Errorf("%s: the key %q is not in logKeys, want one that is, or a new one for a new thing", call.position, key)
				}
			}
		}
	}

	for _, key := range logKeys() {
		if !used[key] {
			t.Errorf("the key %q is in logKeys and no line has it, want it removed", key)
		}
	}
}

// badErrorText matches an error that says that something failed, where what was being done is said: "listing pods: ...".
var badErrorText = regexp.MustCompile(`(?:fmt\.Errorf|errors\.New)\("(?:[Ff]ailed to|[Uu]nable to|[Ee]rror |[Cc]ould not)`)

// TestErrorTexts checks that errors name what was being done.
func TestErrorTexts(t *testing.T) {
	if !badErrorText.MatchString(`fmt.Errorf("failed to list pods: %w", err)`) {
		t.Error("the pattern does not match an error with \"failed to\", want it matched")
	}

	for _, file := range goFiles(t) {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}

		source, err := os.ReadFile(filepath.Join(root(t), file))
		if err != nil {
			t.Fatal(err)
		}

		for _, text := range badErrorText.FindAllString(string(source), -1) {
			t.Errorf("%s has the error %q, want what was being done: \"listing pods: ...\"", file, text)
		}
	}
}

// TestLogCalls_Found checks that the calls of loggers are found, and what is wrong with them.
func TestLogCalls_Found(t *testing.T) {
	const source = `package a

func f() {
	log.Info("reading", "pod", name, "why", text)
	ctrl.LoggerFrom(ctx).WithName("a").Error(err, "Reading it failed")
	m.config.Log.V(1).Info("rule is "+phase, "rule", rule)
	slog.Error("HTTP server ended", "err", err)
	logger.Info(message, "pod", pod)
	log = log.WithValues("secret", name)
	t.Error("Not a log", "key")
}`

	calls, err := logCalls("a.go", source)
	if err != nil {
		t.Fatal(err)
	}

	want := []struct{ problem, keys string }{
		{"", "pod why"},
		{`"Reading it failed" begins with a capital letter`, ""},
		{"its message is not a constant", "rule"},
		{"", "err"},
		{"", "pod"},
		{"", "secret"},
	}

	if len(calls) != len(want) {
		t.Fatalf("logCalls finds %+v, want %d calls", calls, len(want))
	}

	for i, call := range calls {
		if keys := strings.Join(call.keys, " "); call.problem != want[i].problem || keys != want[i].keys {
			t.Errorf("call %d has problem %q and keys %q, want %q and %q", i, call.problem, keys, want[i].problem, want[i].keys)
		}
	}
}
