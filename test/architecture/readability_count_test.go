// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package architecture

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strings"
)

const (
	// longBody is the number of lines from which a function needs paragraphs.
	longBody = 25
	// longParagraph is the largest number of lines that are read in one go.
	longParagraph = 15
)

// habits counts what slows a reader down, with the places of each finding.
type habits struct {
	// lines are lines of code: blank lines, comments, tests and generated files do not count.
	lines         int
	functions     int
	longFunctions int
	failures      int

	withoutParagraphs []string
	denseFunctions    []string
	uncommented       []string
	hiddenEffects     []string
	tupleAssignments  []string
	vagueNames        []string
	contextNames      []string
	wordlessFailures  []string
	failuresWithWant  int
}

// vagueNouns are variable names that do not describe their value.
var vagueNouns = strings.Fields(`asked asking back bounded by closing dealt given gone had has held into kept known least left like
	listing made most of one own reading shown taken then there told up whole within writing`)

// habitCounter counts the habits of one file.
type habitCounter struct {
	*habits

	name   string
	source []string
	files  *token.FileSet
}

// addFile counts the habits of a file. Tests count by their failure messages alone.
func (h *habits) addFile(name, content string) error {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, content, parser.ParseComments)
	if err != nil {
		return err
	}

	c := habitCounter{habits: h, name: name, source: strings.Split(content, "\n"), files: files}
	if strings.HasSuffix(name, "_test.go") {
		ast.Inspect(file, c.countFailure)
		return nil
	}

	for _, line := range c.source {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "//") {
			c.lines++
		}
	}

	for _, declaration := range file.Decls {
		if function, ok := declaration.(*ast.FuncDecl); ok && function.Body != nil {
			c.countFunction(function)
		}
	}
	ast.Inspect(file, c.countNode)

	return nil
}

// place returns the position of a node and the text of its line.
func (c habitCounter) place(node ast.Node) string {
	line := c.lineOf(node.Pos())
	return fmt.Sprintf("%s:%d: %s", c.name, line, strings.TrimSpace(c.source[line-1]))
}

func (c habitCounter) lineOf(pos token.Pos) int {
	return c.files.Position(pos).Line
}

func (c habitCounter) countFunction(function *ast.FuncDecl) {
	c.functions++

	first := c.lineOf(function.Body.Lbrace) + 1
	last := c.lineOf(function.Body.Rbrace) - 1
	if c.longestParagraph(function.Body, first, last) > longParagraph {
		c.denseFunctions = append(c.denseFunctions, c.place(function))
	}
	if last-first+1 < longBody {
		return
	}

	c.longFunctions++
	body := c.source[first-1 : last]
	if !slices.ContainsFunc(body, func(line string) bool { return strings.TrimSpace(line) == "" }) {
		c.withoutParagraphs = append(c.withoutParagraphs, c.place(function))
	}
	if !slices.ContainsFunc(body, func(line string) bool { return strings.Contains(line, "//") }) {
		c.uncommented = append(c.uncommented, c.place(function))
	}
}

// longestParagraph returns the most lines between two blank lines. A composite literal counts as the line that it starts on.
func (c habitCounter) longestParagraph(body *ast.BlockStmt, first, last int) int {
	inLiteral := map[int]bool{}
	ast.Inspect(body, func(node ast.Node) bool {
		if literal, ok := node.(*ast.CompositeLit); ok {
			for line := c.lineOf(literal.Lbrace) + 1; line <= c.lineOf(literal.Rbrace); line++ {
				inLiteral[line] = true
			}
		}

		return true
	})

	longest := 0
	length := 0
	for line := first; line <= last; line++ {
		if strings.TrimSpace(c.source[line-1]) == "" {
			length = 0
			continue
		}
		if !inLiteral[line] {
			length++
			longest = max(longest, length)
		}
	}

	return longest
}

// countNode counts assignments, names and initializers. The clauses of a for statement are exempt: `for i, n := 0, len(s)` is usual.
func (c habitCounter) countNode(node ast.Node) bool {
	switch node := node.(type) {
	case *ast.ForStmt:
		ast.Inspect(node.Body, c.countNode)
		return false

	case *ast.IfStmt:
		if node.Init != nil && !testsInitializer(node) {
			c.hiddenEffects = append(c.hiddenEffects, c.place(node))
		}

	case *ast.SwitchStmt:
		if assign, ok := node.Init.(*ast.AssignStmt); node.Init != nil && (!ok || assign.Tok != token.DEFINE) {
			c.hiddenEffects = append(c.hiddenEffects, c.place(node))
		}

	case *ast.AssignStmt:
		c.countAssignment(node)

	case *ast.ValueSpec:
		if len(node.Values) > 1 && !isOneThing(node.Values) {
			c.tupleAssignments = append(c.tupleAssignments, c.place(node))
		}
		c.countNames(node.Names...)

	case *ast.Field:
		c.countNames(node.Names...)

	case *ast.RangeStmt:
		if node.Tok == token.DEFINE {
			c.countNames(identifiers(node.Key, node.Value)...)
		}
	}

	return true
}

func (c habitCounter) countAssignment(assign *ast.AssignStmt) {
	if len(assign.Rhs) > 1 && !isSwap(assign) && !isOneThing(assign.Rhs) {
		c.tupleAssignments = append(c.tupleAssignments, c.place(assign))
	}
	if assign.Tok != token.DEFINE {
		return
	}

	c.countNames(identifiers(assign.Lhs...)...)
	name, ok := assign.Lhs[0].(*ast.Ident)
	if ok && name.Name != "_" && makesContext(assign.Rhs[0]) && !strings.HasSuffix(strings.ToLower(name.Name), "ctx") {
		c.contextNames = append(c.contextNames, c.place(name))
	}
}

func (c habitCounter) countNames(names ...*ast.Ident) {
	for _, name := range names {
		if slices.Contains(vagueNouns, name.Name) {
			c.vagueNames = append(c.vagueNames, c.place(name))
		}
	}
}

func identifiers(expressions ...ast.Expr) []*ast.Ident {
	var out []*ast.Ident
	for _, expression := range expressions {
		if identifier, ok := expression.(*ast.Ident); ok {
			out = append(out, identifier)
		}
	}

	return out
}

// makesContext reports whether an expression is a call of context.WithCancel or one of its siblings.
func makesContext(expression ast.Expr) bool {
	call, ok := expression.(*ast.CallExpr)
	return ok && strings.HasPrefix(pathOf(call.Fun), "context.With")
}

// testsInitializer reports whether the condition of an if reads what its initializer assigns.
func testsInitializer(statement *ast.IfStmt) bool {
	assign, ok := statement.Init.(*ast.AssignStmt)
	if !ok {
		return false
	}

	tested := map[string]bool{}
	ast.Inspect(statement.Cond, func(node ast.Node) bool {
		if expression, ok := node.(ast.Expr); ok {
			tested[pathOf(expression)] = true
		}

		return true
	})

	return slices.ContainsFunc(assign.Lhs, func(target ast.Expr) bool {
		if _, ok := target.(*ast.IndexExpr); ok {
			return false // A write to a container is an effect, whatever the condition reads.
		}
		path := pathOf(target)

		return path != "" && tested[path]
	})
}

func isSwap(assign *ast.AssignStmt) bool {
	if len(assign.Lhs) != 2 || len(assign.Rhs) != 2 {
		return false
	}

	first := pathOf(assign.Lhs[0])
	second := pathOf(assign.Lhs[1])

	return first != "" && second != "" && first == pathOf(assign.Rhs[1]) && second == pathOf(assign.Rhs[0])
}

// isOneThing reports whether two values belong together: two constants, or two fields of one value.
func isOneThing(values []ast.Expr) bool {
	if len(values) != 2 {
		return false
	}

	switch first := values[0].(type) {
	case *ast.BasicLit:
		_, ok := values[1].(*ast.BasicLit)
		return ok
	case *ast.SelectorExpr:
		second, ok := values[1].(*ast.SelectorExpr)
		return ok && pathOf(first.X) != "" && pathOf(first.X) == pathOf(second.X)
	}

	return false
}

// pathOf returns the source of a name, a constant, or a path of fields and indices; it is empty for other expressions.
func pathOf(expression ast.Expr) string {
	switch e := expression.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.BasicLit:
		return e.Value
	case *ast.SelectorExpr:
		if base := pathOf(e.X); base != "" {
			return base + "." + e.Sel.Name
		}
	case *ast.IndexExpr:
		base := pathOf(e.X)
		index := pathOf(e.Index)
		if base != "" && index != "" {
			return base + "[" + index + "]"
		}
	}

	return ""
}

var (
	formatVerbs = regexp.MustCompile(`%[-+# 0-9.*\[\]]*[a-zA-Z]`)
	word        = regexp.MustCompile(`[A-Za-z]{2}`)
	wantWord    = regexp.MustCompile(`(?i)\b(want|wanted|expect|expected)\b`)
)

// countFailure counts the message of a failing test. A message that prints an error alone is exempt, because the error has words.
func (c habitCounter) countFailure(node ast.Node) bool {
	call, ok := node.(*ast.CallExpr)
	if !ok || len(call.Args) == 0 || !isFailure(call.Fun) {
		return true
	}

	last := strings.ToLower(pathOf(call.Args[len(call.Args)-1]))
	if len(call.Args) <= 2 && (strings.HasSuffix(last, "err") || strings.HasSuffix(last, "error")) {
		return true
	}

	hasWord := false
	hasWant := false
	for _, argument := range call.Args {
		ast.Inspect(argument, func(node ast.Node) bool {
			if literal, ok := node.(*ast.BasicLit); ok && literal.Kind == token.STRING {
				message := formatVerbs.ReplaceAllString(literal.Value, "")
				hasWord = hasWord || word.MatchString(message)
				hasWant = hasWant || wantWord.MatchString(message)
			}

			return true
		})
		// A constant of another file is named after the message that it has.
		if name, ok := argument.(*ast.Ident); ok && name.Obj == nil && strings.HasPrefix(strings.ToLower(name.Name), "message") {
			hasWord = true
		}
	}

	c.failures++
	if !hasWord {
		c.wordlessFailures = append(c.wordlessFailures, c.place(call))
	}
	if hasWant {
		c.failuresWithWant++
	}

	return true
}

// isFailure reports whether a function is Error, Errorf, Fatal or Fatalf of a test.
func isFailure(function ast.Expr) bool {
	selector, ok := function.(*ast.SelectorExpr)
	if !ok || !slices.Contains([]string{"Error", "Errorf", "Fatal", "Fatalf"}, selector.Sel.Name) {
		return false
	}

	receiver := pathOf(selector.X)
	if slices.Contains([]string{"t", "b", "f", "tb"}, receiver) {
		return true
	}

	return strings.HasSuffix(receiver, ".T") || strings.HasSuffix(receiver, ".t")
}
