// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package nodetemplate

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"text/template/parse"
)

const (
	// maxSteps bounds the executed nodes of a template, so that nested loops end.
	maxSteps = 1 << 20
	// maxDepth bounds the nesting of templates that include each other.
	maxDepth = 100
)

// Results of the actions break and continue.
var (
	errBreak    = errors.New("break outside of a range")
	errContinue = errors.New("continue outside of a range")
)

// execution executes templates that text/template/parse has parsed over values of JSON: map[string]any, []any, string, int64, float64, bool and
// nil. The engine of text/template calls methods by name, for which the linker keeps every exported method of every type: a third of
// crane-agent. Missing keys of fields are errors, and so is the output of null.
type execution struct {
	trees map[string]*parse.Tree
	out   *limitedBuffer
	// variables is a stack; the innermost is the last.
	variables    []variable
	steps, depth int
}

type variable struct {
	name  string
	value any
}

// execute writes the output of a template for data to out.
func execute(name, text string, data any, out *limitedBuffer) error {
	names := map[string]any{"and": true, "or": true}
	for function := range functions() {
		names[function] = true
	}

	trees, err := parse.Parse(name, text, "", "", names)
	if err != nil {
		return err
	}

	e := &execution{trees: trees, out: out, variables: []variable{{"$", data}}}
	if tree := trees[name]; tree != nil {
		return e.walk(data, tree.Root)
	}

	return nil // An empty template.
}

func (e *execution) walk(dot any, node parse.Node) error {
	e.steps++

	if e.steps > maxSteps {
		return fmt.Errorf("more than %d steps", maxSteps)
	}

	switch n := node.(type) {
	case *parse.ListNode:
		return e.list(dot, n)
	case *parse.TextNode:
		_, err := e.out.Write(n.Text)
		return err

	case *parse.ActionNode:
		return e.action(dot, n)
	case *parse.IfNode:
		return e.branch(dot, &n.BranchNode, false)
	case *parse.WithNode:
		return e.branch(dot, &n.BranchNode, true)

	case *parse.RangeNode:
		return e.loop(dot, n)
	case *parse.TemplateNode:
		return e.include(dot, n)
	case *parse.BreakNode:
		return errBreak

	case *parse.ContinueNode:
		return errContinue
	case *parse.CommentNode:
		return nil
	default:
		return fmt.Errorf("%s is not supported", n)
	}
}

// list executes nodes in order. A nil list is an absent else.
func (e *execution) list(dot any, n *parse.ListNode) error {
	if n == nil {
		return nil
	}

	for _, one := range n.Nodes {
		if err := e.walk(dot, one); err != nil {
			return err
		}
	}

	return nil
}

func (e *execution) action(dot any, n *parse.ActionNode) error {
	value, err := e.pipeline(dot, n.Pipe)
	if err != nil || len(n.Pipe.Decl) > 0 {
		return err
	}

	if value == nil {
		return fmt.Errorf("%s is null or missing", n)
	}

	_, err = fmt.Fprint(e.out, value)
	return err
}

// branch executes an if, or a with, which sets dot.
func (e *execution) branch(dot any, n *parse.BranchNode, with bool) error {
	defer e.scope()()

	value, err := e.pipeline(dot, n.Pipe)
	switch {
	case err != nil:
		return err
	case !truth(value):
		return e.list(dot, n.ElseList)
	case with:
		return e.list(value, n.List)
	default:
		return e.list(dot, n.List)
	}
}

// scope returns a function that removes the variables declared since.
func (e *execution) scope() func() {
	mark := len(e.variables)
	return func() { e.variables = e.variables[:mark] }
}

func (e *execution) loop(dot any, n *parse.RangeNode) error {
	defer e.scope()()

	value, err := e.pipeline(dot, n.Pipe)
	if err != nil {
		return err
	}

	ran := false
	one := func(key, item any) error {
		ran = true
		defer e.scope()()

		if err := e.assignLoop(n.Pipe, key, item); err != nil {
			return err
		}

		if err := e.walk(item, n.List); !errors.Is(err, errContinue) {
			return err
		}

		return nil
	}

	switch v := value.(type) {
	case nil:
	case []any:
		for i := 0; i < len(v) && err == nil; i++ {
			err = one(int64(i), v[i])
		}

	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if err = one(key, v[key]); err != nil {
				break
			}
		}

	case int64:
		if len(n.Pipe.Decl) > 1 {
			return fmt.Errorf("range over %d has one variable", v)
		}

		for i := int64(0); i < v && err == nil; i++ {
			err = one(i, i)
		}

	default:
		return fmt.Errorf("range cannot iterate over %v", value)
	}

	if errors.Is(err, errBreak) {
		return nil
	}

	if err == nil && !ran {
		return e.list(dot, n.ElseList)
	}

	return err
}

// assignLoop sets the variables of a range: the item, or the key and the item.
func (e *execution) assignLoop(pipe *parse.PipeNode, key, item any) error {
	values := []any{item}
	if len(pipe.Decl) > 1 {
		values = []any{key, item}
	}

	for i, declared := range pipe.Decl {
		if err := e.set(declared.Ident[0], values[i]); err != nil {
			return err
		}
	}

	return nil
}

// include executes a template by its name.
func (e *execution) include(dot any, n *parse.TemplateNode) error {
	tree := e.trees[n.Name]
	if tree == nil {
		return fmt.Errorf("template %q is not defined", n.Name)
	}

	e.depth++

	if e.depth > maxDepth {
		return fmt.Errorf("templates are nested more than %d deep", maxDepth)
	}

	var value any
	if n.Pipe != nil {
		var err error
		if value, err = e.pipeline(dot, n.Pipe); err != nil {
			return err
		}
	}

	outer := e.variables
	e.variables = []variable{{"$", value}}
	err := e.walk(value, tree.Root)
	e.variables = outer
	e.depth--

	return err
}
