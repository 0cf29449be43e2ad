// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Matcher is one label matcher of a selector.
type Matcher struct {
	Label string
	// Op is one of =, !=, =~ and !~.
	Op    string
	Value string
}

var labelName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)

// Validate checks the name, the operator and, for =~ and !~, the regular expression.
func (m Matcher) Validate() error {
	if !labelName.MatchString(m.Label) {
		return fmt.Errorf("label %q: a label name has letters, digits and underscores only", m.Label)
	}
	switch m.Op {
	case "=", "!=":
	case "=~", "!~":
		if _, err := regexp.Compile(m.Value); err != nil {
			return fmt.Errorf("label %s: %w", m.Label, err)
		}
	default:
		return fmt.Errorf("label %s: operator %q: must be =, !=, =~ or !~", m.Label, m.Op)
	}
	return nil
}

// String returns the matcher in PromQL. The value is quoted, so that quotes, braces and backslashes in it have no effect.
func (m Matcher) String() string { return m.Label + m.Op + strconv.Quote(m.Value) }

// ParseMatchers parses "k=v,k2=v2", the format of gocrane's --extension-labels. It also accepts the other operators, and values in double
// quotes, which may contain commas. A value without quotes extends to the next comma and may contain "=".
func ParseMatchers(text string) ([]Matcher, error) {
	var out []Matcher
	for rest := strings.TrimSpace(text); rest != ""; {
		i := strings.IndexAny(rest, "=!")
		if i < 0 {
			return nil, fmt.Errorf("label condition %q: must be name=value", rest)
		}
		m := Matcher{Label: strings.TrimSpace(rest[:i])}
		m.Op, rest = cutOperator(rest[i:])
		rest = strings.TrimLeft(rest, " ")
		if strings.HasPrefix(rest, `"`) {
			quoted, err := strconv.QuotedPrefix(rest)
			if err != nil {
				return nil, fmt.Errorf("label %s: value %s: a quote without its end", m.Label, rest)
			}
			if m.Value, err = strconv.Unquote(quoted); err != nil {
				return nil, fmt.Errorf("label %s: value %s: %w", m.Label, quoted, err)
			}
			rest = strings.TrimLeft(rest[len(quoted):], " ")
			if rest != "" && rest[0] != ',' {
				return nil, fmt.Errorf("label %s: %q after the value: expected a comma", m.Label, rest)
			}
			rest = strings.TrimPrefix(rest, ",")
		} else {
			m.Value, rest, _ = strings.Cut(rest, ",")
			m.Value = strings.TrimSpace(m.Value)
		}
		if err := m.Validate(); err != nil {
			return nil, err
		}
		out = append(out, m)
		rest = strings.TrimSpace(rest)
	}
	return out, nil
}

// cutOperator splits text after its operator.
func cutOperator(text string) (op, rest string) {
	for _, op := range []string{"=~", "!~", "!=", "="} {
		if after, ok := strings.CutPrefix(text, op); ok {
			return op, after
		}
	}
	return text[:1], text[1:]
}

// selector returns metric{matchers...}; an empty metric gives the braces alone.
func selector(metric string, matchers ...Matcher) string {
	var b strings.Builder
	b.WriteString(metric)
	b.WriteByte('{')
	for i, m := range matchers {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(m.String())
	}
	b.WriteByte('}')
	return b.String()
}

// OneOf returns a matcher of a label for a list of literal values.
func OneOf(label string, values []string) Matcher {
	if len(values) == 1 {
		return Matcher{Label: label, Op: "=", Value: values[0]}
	}
	return Matcher{Label: label, Op: "=~", Value: anyOf(values)}
}

// metricName is the syntax of metric names that need no quotes.
var metricName = regexp.MustCompile(`^[a-zA-Z_:][a-zA-Z0-9_:]*$`)
