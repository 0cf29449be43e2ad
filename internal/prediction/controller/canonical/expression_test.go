// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package canonical

import (
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
)

func TestExpression(t *testing.T) {
	for in, want := range map[string]string{
		" sum( up ) ":                      `sum(up)`,
		"sum(up{})":                        `sum(up)`,
		"sum({})":                          `sum({})`,
		"sum by (a,  b) ( rate(x[5m]) )":   `sum by(a,b)(rate(x[5m]))`,
		"a  and\n\ton (b) c":               `a and on(b)c`,
		`x{ b = "1 ,  2" , a != 'q}' }`:    `x{a!='q}',b="1 ,  2"}`,
		`x{a="1",}`:                        `x{a="1"}`,
		`x{a="\"", b="}"}`:                 `x{a="\"",b="}"}`,
		`x offset  5m`:                     `x offset 5m`,
		`a > = b`:                          `a> =b`,
		`x{b="1", a="2" or c="3"}`:         `x{b="1",a="2"or c="3"}`,
		"sum(up) # all of them":            "sum(up) # all of them",
		`x{a="never closed`:                `x{a="never closed`,
		`sum(rate(x{b="1",a="2"}[5m:1m]))`: `sum(rate(x{a="2",b="1"}[5m:1m]))`,
		"}{":                               "}{",
		"":                                 "",
	} {
		if got := Expression(in); got != want {
			t.Errorf("%q becomes %q, want %q", in, got, want)
		}
		if got := Expression(want); got != want {
			t.Errorf("%q is not final: %q", want, got)
		}
	}
}

// FuzzExpression: what PromQL understands means the same afterward.
func FuzzExpression(f *testing.F) {
	for _, seed := range []string{
		`sum(rate(x{a="1", b=~"2"}[5m])) by (c) > bool 1`, `a offset 5m - -1`, `{__name__="x"} or y{}`, `x{"quoted name", a='b'} @ 5 `,
		"sum(up) # comment", `1 == bool 2`, `-  2 ^ - 3`, `x{a="é\n"}`, `0x1 f`, `1e 3`, `x [ 5m : ] `,
	} {
		f.Add(seed)
	}

	p := parser.NewParser(parser.Options{})
	text := func(expression parser.Expr) string {
		return Expression(expression.String()) // the printer keeps the order of conditions
	}

	f.Fuzz(func(t *testing.T, expression string) {
		got := Expression(expression)
		if again := Expression(got); again != got {
			t.Fatalf("%q becomes %q and then %q, want the same again", expression, got, again)
		}

		before, err := p.ParseExpr(expression)
		if err != nil {
			return
		}

		after, err := p.ParseExpr(got)
		if err != nil {
			t.Fatalf("Expression(%q) = %q: %v, want PromQL", expression, got, err)
		}

		if a, b := text(before), text(after); a != b {
			t.Fatalf("Expression(%q) = %q, which reads %s, want %s", expression, got, b, a)
		}
	})
}
