// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package nodetemplate

import (
	"fmt"
	"slices"
	"strings"
	"text/template/parse"
)

// pipeline returns the value of a pipeline and sets the variables that it declares or assigns.
func (e *execution) pipeline(dot any, pipe *parse.PipeNode) (any, error) {
	e.steps++

	if e.steps > maxSteps {
		return nil, fmt.Errorf("more than %d steps", maxSteps)
	}

	var last []any // The value of the command before, the last argument of the next one.
	for _, command := range pipe.Cmds {
		value, err := e.command(dot, command, last)
		if err != nil {
			return nil, err
		}

		last = []any{value}
	}

	if len(last) == 0 {
		return nil, fmt.Errorf("%s has no value", pipe)
	}

	for _, declared := range pipe.Decl {
		if !pipe.IsAssign {
			e.variables = append(e.variables, variable{declared.Ident[0], last[0]})
		} else if err := e.set(declared.Ident[0], last[0]); err != nil {
			return nil, err
		}
	}

	return last[0], nil
}

// set changes the innermost variable of a name.
func (e *execution) set(name string, value any) error {
	for i, v := range slices.Backward(e.variables) {
		if v.name == name {
			e.variables[i].value = value
			return nil
		}
	}

	return fmt.Errorf("variable %s is not defined", name)
}

func (e *execution) command(dot any, command *parse.CommandNode, last []any) (any, error) {
	first := command.Args[0]
	rest := command.Args[1:]
	if function, ok := first.(*parse.IdentifierNode); ok {
		return e.call(dot, function.Ident, rest, last)
	}

	if len(rest) > 0 || len(last) > 0 {
		return nil, fmt.Errorf("%s is no function and has arguments", first)
	}

	return e.value(dot, first)
}

// value returns the value of an operand.
func (e *execution) value(dot any, node parse.Node) (any, error) {
	switch n := node.(type) {
	case *parse.DotNode:
		return dot, nil
	case *parse.NilNode:
		return nil, nil
	case *parse.BoolNode:
		return n.True, nil
	case *parse.StringNode:
		return n.Text, nil
	case *parse.NumberNode:
		return number(n)

	case *parse.FieldNode:
		return fields(dot, n.Ident)
	case *parse.VariableNode:
		for _, v := range slices.Backward(e.variables) {
			if v.name == n.Ident[0] {
				return fields(v.value, n.Ident[1:])
			}
		}

		return nil, fmt.Errorf("variable %s is not defined", n.Ident[0])

	case *parse.ChainNode:
		from, err := e.value(dot, n.Node)
		if err != nil {
			return nil, err
		}

		return fields(from, n.Field)

	case *parse.PipeNode:
		return e.pipeline(dot, n)
	case *parse.IdentifierNode:
		return e.call(dot, n.Ident, nil, nil)
	default:
		return nil, fmt.Errorf("%s is not supported", node)
	}
}

func number(n *parse.NumberNode) (any, error) {
	switch {
	case n.IsInt:
		return n.Int64, nil
	case n.IsFloat && !n.IsUint:
		return n.Float64, nil
	default:
		return nil, fmt.Errorf("%s is not a supported number", n)
	}
}

// fields returns the value at a path. A missing key is an error.
func fields(from any, path []string) (any, error) {
	for _, key := range path {
		object, ok := from.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("%.40q has no field %s", fmt.Sprint(from), key)
		}

		if from, ok = object[key]; !ok {
			return nil, fmt.Errorf("no entry for key %q", key)
		}
	}

	return from, nil
}

// call calls a function with operands and, in a pipeline, the value of the command before.
func (e *execution) call(dot any, name string, operands []parse.Node, last []any) (any, error) {
	if name == "and" || name == "or" {
		return e.shortCircuit(dot, name == "or", operands, last)
	}

	var args []any
	for _, operand := range operands {
		arg, err := e.value(dot, operand)
		if err != nil {
			return nil, err
		}

		args = append(args, arg)
	}

	args = append(args, last...)
	if !strings.HasPrefix(name, "print") {
		args = plainTexts(args)
	}

	out, err := functions()[name](args)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}

	return out, nil
}

// plainTexts returns arguments with nodeText as string, for functions that compare and measure texts. Printed texts stay placeholders.
func plainTexts(args []any) []any {
	out := make([]any, len(args))
	for i, arg := range args {
		out[i] = arg

		if text, ok := arg.(nodeText); ok {
			out[i] = string(text)
		}
	}

	return out
}

// shortCircuit returns the first argument whose truth is stop, else the last one. Arguments after it are not evaluated.
func (e *execution) shortCircuit(dot any, stop bool, operands []parse.Node, last []any) (out any, err error) {
	if len(operands)+len(last) == 0 {
		return nil, errArguments
	}

	for _, operand := range operands {
		if out, err = e.value(dot, operand); err != nil || truth(out) == stop {
			return out, err
		}
	}

	if len(last) > 0 {
		out = last[0]
	}

	return out, nil
}
