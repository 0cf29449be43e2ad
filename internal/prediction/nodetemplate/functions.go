// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package nodetemplate

import (
	"cmp"
	"errors"
	"fmt"
)

var errArguments = errors.New("wrong number of arguments")

// functions returns the functions of text/template that templates may call; `and` and `or` are operators of execution.
func functions() map[string]func([]any) (any, error) {
	return map[string]func([]any) (any, error){
		"not":     not,
		"len":     length,
		"index":   index,
		"eq":      equal,
		"ne":      compared(func(order int) bool { return order != 0 }),
		"lt":      compared(func(order int) bool { return order < 0 }),
		"le":      compared(func(order int) bool { return order <= 0 }),
		"gt":      compared(func(order int) bool { return order > 0 }),
		"ge":      compared(func(order int) bool { return order >= 0 }),
		"print":   func(args []any) (any, error) { return fmt.Sprint(args...), nil },
		"println": func(args []any) (any, error) { return fmt.Sprintln(args...), nil },
		"printf":  printf,
	}
}

// truth reports whether a value is neither null, false, zero nor empty.
func truth(value any) bool {
	switch v := value.(type) {
	case nil:
		return false
	case bool:
		return v
	case string:
		return v != ""
	case nodeText:
		return v != ""
	case int64:
		return v != 0

	case float64:
		return v != 0
	case []any:
		return len(v) > 0
	case map[string]any:
		return len(v) > 0
	default:
		return true
	}
}

func not(args []any) (any, error) {
	if len(args) != 1 {
		return nil, errArguments
	}

	return !truth(args[0]), nil
}

func length(args []any) (any, error) {
	if len(args) != 1 {
		return nil, errArguments
	}

	switch v := args[0].(type) {
	case string:
		return int64(len(v)), nil
	case []any:
		return int64(len(v)), nil
	case map[string]any:
		return int64(len(v)), nil
	default:
		return nil, fmt.Errorf("%v has no length", v)
	}
}

// index returns null for a missing key, as in {{if index .metadata.labels "pool"}}.
func index(args []any) (any, error) {
	if len(args) == 0 {
		return nil, errArguments
	}

	from := args[0]
	for _, key := range args[1:] {
		switch v := from.(type) {
		case map[string]any:
			name, ok := key.(string)
			if !ok {
				return nil, fmt.Errorf("key %v is not a string", key)
			}

			from = v[name]

		case []any:
			i, ok := key.(int64)
			if !ok || i < 0 || i >= int64(len(v)) {
				return nil, fmt.Errorf("%v is not an index of a list of %d", key, len(v))
			}

			from = v[i]

		default:
			return nil, fmt.Errorf("%v has no elements", from)
		}
	}

	return from, nil
}

func printf(args []any) (any, error) {
	if len(args) == 0 {
		return nil, errArguments
	}

	format, ok := args[0].(string)
	if !ok {
		return nil, fmt.Errorf("format %v is not a string", args[0])
	}

	return fmt.Sprintf(format, args[1:]...), nil
}

// equal reports whether the first argument equals one of the others.
func equal(args []any) (any, error) {
	if len(args) < 2 {
		return nil, errArguments
	}

	for _, other := range args[1:] {
		if args[0] == nil || other == nil {
			if args[0] == nil && other == nil {
				return true, nil
			}

			continue
		}

		order, err := compare(args[0], other)
		if err != nil {
			return nil, err
		}

		if order == 0 {
			return true, nil
		}
	}

	return false, nil
}

func compared(accept func(order int) bool) func([]any) (any, error) {
	return func(args []any) (any, error) {
		if len(args) != 2 {
			return nil, errArguments
		}

		order, err := compare(args[0], args[1])
		return err == nil && accept(order), err
	}
}

// compare orders two values of the same kind. Booleans are equal or not.
func compare(one, other any) (int, error) {
	switch v := one.(type) {
	case string:
		if w, ok := other.(string); ok {
			return cmp.Compare(v, w), nil
		}
	case int64:
		if w, ok := other.(int64); ok {
			return cmp.Compare(v, w), nil
		}

	case float64:
		if w, ok := other.(float64); ok {
			return cmp.Compare(v, w), nil
		}
	case bool:
		if w, ok := other.(bool); ok && v == w {
			return 0, nil
		} else if ok {
			return 1, nil
		}
	}

	return 0, fmt.Errorf("%v and %v cannot be compared", one, other)
}
