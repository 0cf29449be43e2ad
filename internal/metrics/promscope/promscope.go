// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package promscope parses untrusted PromQL and restricts it to the series of one namespace.
package promscope

import (
	"fmt"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// MaxExpression is the maximum length in bytes of an expression that is parsed: the parser is recursive, and an object may
// contain a million nested parentheses.
const MaxExpression = 16 << 10

// MaxSelectors is the maximum number of selectors of an expression that is restricted: each is read for the whole history.
const MaxSelectors = 20

// Parse parses an expression. experimental permits experimental functions.
func Parse(text string, experimental bool) (expr parser.Expr, err error) {
	if len(text) > MaxExpression {
		return nil, fmt.Errorf("the expression is longer than %d bytes", MaxExpression)
	}
	defer func() {
		if r := recover(); r != nil { // The input is untrusted.
			err = fmt.Errorf("the parser failed: %v", r)
		}
	}()

	return parser.NewParser(parser.Options{EnableExperimentalFunctions: experimental}).ParseExpr(text)
}

// Restrict returns an expression that reads only series with this value of a label. Every selector gets the matcher beside its own, so that a
// selector of another value matches nothing. Experimental functions are refused, because info() reads series without a selector, and so are
// more than MaxSelectors selectors and what is not PromQL.
func Restrict(text, label, value string) (string, error) {
	expr, err := Parse(text, false)
	if err != nil {
		return "", err
	}

	selectors := 0
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		if s, ok := node.(*parser.VectorSelector); ok {
			selectors++
			s.LabelMatchers = append(s.LabelMatchers, &labels.Matcher{Type: labels.MatchEqual, Name: label, Value: value})
		}

		return nil
	})

	if selectors > MaxSelectors {
		return "", fmt.Errorf("the expression has %d selectors, more than %d", selectors, MaxSelectors)
	}

	return expr.String(), nil
}
