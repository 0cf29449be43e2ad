// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package promscope

import (
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

func TestRestrict(t *testing.T) {
	for text, want := range map[string]string{
		`up`:                                                 `up{namespace="shop"}`,
		`sum(rate(x{a="b"}[5m])) by (pod)`:                   `sum by (pod) (rate(x{a="b",namespace="shop"}[5m]))`,
		`{__name__=~".+"}`:                                   `{__name__=~".+",namespace="shop"}`,
		`x{namespace="bank"}`:                                `x{namespace="bank",namespace="shop"}`,
		`x{namespace=~"shop|bank"} or y`:                     `x{namespace="shop",namespace=~"shop|bank"} or y{namespace="shop"}`,
		`max_over_time(sum(x)[1h:1m] @ 3)`:                   `max_over_time(sum(x{namespace="shop"})[1h:1m] @ 3.000)`,
		`x * on (pod) group_left (n) y`:                      `x{namespace="shop"} * on (pod) group_left (n) y{namespace="shop"}`,
		`label_replace(x, "namespace", "shop", "pod", ".*")`: `label_replace(x{namespace="shop"}, "namespace", "shop", "pod", ".*")`,
		`vector(1)`:                                          `vector(1)`,
		`# {}` + "\n" + `x`:                                  `x{namespace="shop"}`,
		`"x" and y`:                                          "",
		`info(x)`:                                            "",
		`sum(x`:                                              "",
		`x keep_metric_names`:                                "",
		`WITH (f = x) f`:                                     "",
		strings.Repeat("(", 20_000):                          "",
		`-` + `absent({"a.b", c!="d"})`:                      `-absent({"a.b",c!="d",namespace="shop"})`,
	} {
		got, err := Restrict(text, "namespace", "shop")
		if (err != nil) != (want == "") {
			t.Errorf("Restrict(%.60s) = %q, %v, want %q, and an error where that is empty", text, got, err, want)
			continue
		}
		if want == "" {
			continue
		}

		// The order of matchers is the parser's.
		expr, err := Parse(want, false)
		if err != nil {
			t.Fatal(err)
		}

		if got != expr.String() {
			t.Errorf("Restrict(%s) = %s, want %s", text, got, expr)
		}
	}
}

// TestRestrictQuotes: a value cannot leave its quotes.
func TestRestrictQuotes(t *testing.T) {
	got, err := Restrict("x", "namespace", `a"} or y{b="`)
	if err != nil {
		t.Fatal(err)
	}

	if selectors := parser.ExtractSelectors(parse(t, got)); len(selectors) != 1 {
		t.Errorf("Restrict returned %s with %d selectors, want 1", got, len(selectors))
	}
}

func parse(t *testing.T, text string) parser.Expr {
	t.Helper()

	expr, err := Parse(text, false)
	if err != nil {
		t.Fatalf("Parse(%s): error %v, want none", text, err)
	}

	return expr
}

// FuzzRestrict checks that every selector of every expression that is accepted has the matcher.
func FuzzRestrict(f *testing.F) {
	for _, text := range []string{`up`, `sum(rate(x{a="b"}[5m]))`, `{__name__="y"} offset 1d`, `x @ end()`, `(x or y)[1h:]`, `{"x y", a=~"b"}`, `x{namespace!="shop"}`} {
		f.Add(text)
	}

	want := labels.Matcher{Type: labels.MatchEqual, Name: "namespace", Value: "shop"}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := Restrict(text, "namespace", "shop")
		if err != nil {
			return
		}

		for _, matchers := range parser.ExtractSelectors(parse(t, got)) {
			if !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return m.String() == want.String() }) {
				t.Errorf("Restrict(%q) = %q with a selector without the matcher, want it in each", text, got)
			}
		}
	})
}

// TestManySelectors: each selector reads the history once more, so their number is limited.
func TestManySelectors(t *testing.T) {
	text := "a" + strings.Repeat(" + a", MaxSelectors-1)
	if _, err := Restrict(text, "namespace", "shop"); err != nil {
		t.Errorf("Restrict of %d selectors: error %v, want none", MaxSelectors, err)
	}
	if _, err := Restrict(text+" + rate(a[5m])", "namespace", "shop"); err == nil {
		t.Errorf("Restrict of %d selectors: no error, want one", MaxSelectors+1)
	}
}
