// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package nodetemplate

import (
	"errors"
	"fmt"
	"text/template"
	"text/template/parse"

	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
)

// maxItems bounds the elements over which all ranges of a template iterate together.
const maxItems = 10_000

// allowed lists the functions that templates may call.
var allowed = map[string]bool{
	"and": true, "or": true, "not": true, "len": true, "index": true, "print": true, "println": true, "printf": true,
	"eq": true, "ne": true, "lt": true, "le": true, "gt": true, "ge": true,
}

// Functions that prepare inserts into pipelines; templates may not call them.
const (
	outputFunction = "output"
	itemsFunction  = "items"
)

// execution is one execution of a template. The engine of text/template cannot be interrupted, so its work is bounded by the nodes and functions
// that a template may have, the elements of all its ranges, and the bytes that it writes and prints.
type execution struct {
	out limitedBuffer
	// items counts the elements of the ranges so far.
	items int
	// printed counts the bytes that the functions have printed, also into variables.
	printed int
}

// execute returns the output of a template for values of JSON, whose types have no methods but that of nodeText.
func execute(text string, data any) ([]byte, error) {
	e := &execution{}
	functions := template.FuncMap{
		outputFunction: output,
		itemsFunction:  e.count,
		"print":        func(args ...any) (string, error) { return e.print(fmt.Sprint(args...)) },
		"println":      func(args ...any) (string, error) { return e.print(fmt.Sprintln(args...)) },
		"printf":       func(format string, args ...any) (string, error) { return e.print(fmt.Sprintf(format, args...)) },
	}

	t, err := template.New(predictionv1alpha1.NodeResourceTemplateKey).Option("missingkey=error").Funcs(functions).Parse(text)
	if err != nil {
		return nil, err
	}

	if len(t.Templates()) > 1 {
		return nil, errors.New("template: define and block are not supported")
	}

	if err := prepare(t.Root); err != nil {
		return nil, fmt.Errorf("template: %w", err)
	}

	err = t.Execute(&e.out, data)
	return e.out.buf.Bytes(), err
}

// output returns an error for null, which would be printed as "<no value>".
func output(value any) (any, error) {
	if value == nil {
		return nil, errors.New("null or missing")
	}

	return value, nil
}

// count adds the elements of a range to those of all ranges before it begins: maps are sorted first, and the range may end early.
func (e *execution) count(value any) (any, error) {
	e.items++

	switch v := value.(type) {
	case nil:
	case []any:
		e.items += len(v)
	case map[string]any:
		e.items += len(v)
	default:
		return nil, errors.New("range is over neither a list nor a map")
	}

	if e.items > maxItems {
		return nil, fmt.Errorf("the ranges have more than %d elements", maxItems)
	}

	return value, nil
}

// print returns a text, or an error beyond the bound.
func (e *execution) print(text string) (string, error) {
	e.printed += len(text)

	if e.printed > maxSpecBytes {
		return "", fmt.Errorf("more than %d bytes are printed", maxSpecBytes)
	}

	return text, nil
}

// prepare refuses nodes and functions that are not on the white list, and adds the bounds to ranges and outputs.
func prepare(node parse.Node) error {
	switch n := node.(type) {
	case *parse.ListNode:
		if n == nil { // An absent else.
			return nil
		}

		return prepareAll(n.Nodes...)

	case *parse.ActionNode:
		if len(n.Pipe.Decl) == 0 {
			defer appendCall(n.Pipe, outputFunction)
		}

		return prepare(n.Pipe)

	case *parse.IfNode:
		return prepareAll(n.Pipe, n.List, n.ElseList)
	case *parse.WithNode:
		return prepareAll(n.Pipe, n.List, n.ElseList)
	case *parse.RangeNode:
		defer appendCall(n.Pipe, itemsFunction)
		return prepareAll(n.Pipe, n.List, n.ElseList)

	case *parse.PipeNode:
		for _, command := range n.Cmds {
			if err := prepareAll(command.Args...); err != nil {
				return err
			}
		}

		return nil

	case *parse.ChainNode:
		return prepare(n.Node)
	case *parse.IdentifierNode:
		if !allowed[n.Ident] {
			return fmt.Errorf("function %s is not supported", n.Ident)
		}

		return nil

	case *parse.TextNode, *parse.CommentNode, *parse.BreakNode, *parse.ContinueNode, *parse.DotNode, *parse.NilNode, *parse.BoolNode,
		*parse.StringNode, *parse.NumberNode, *parse.FieldNode, *parse.VariableNode:
		return nil
	default:
		return fmt.Errorf("%s is not supported", node)
	}
}

func prepareAll(nodes ...parse.Node) error {
	for _, node := range nodes {
		if err := prepare(node); err != nil {
			return err
		}
	}

	return nil
}

// appendCall pipes the value of a pipeline through a function.
func appendCall(pipe *parse.PipeNode, function string) {
	name := parse.NewIdentifier(function).SetPos(pipe.Pos)
	pipe.Cmds = append(pipe.Cmds, &parse.CommandNode{NodeType: parse.NodeCommand, Pos: pipe.Pos, Args: []parse.Node{name}})
}
