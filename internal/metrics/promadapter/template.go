// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package promadapter

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"unicode/utf8"

	"github.com/prometheus/prometheus/promql/parser"

	"crane.io/crane/internal/metrics/prometheus"
	"crane.io/crane/internal/metrics/promscope"
)

// Labels of a MetricQuery. A rule maps them to labels of its own.
const (
	namespaceLabel = "namespace"
	podLabel       = "pod"
)

// templateValues are the fields that a template of prometheus-adapter can use. All of them enter the query verbatim.
type templateValues struct {
	Series            seriesName
	LabelMatchers     string
	GroupBy           string
	LabelValuesByName map[string]labelValue
	GroupBySlice      []string
}

// labelValue and seriesName are what requests and scraped targets choose. They print between marks, so that their places in a query are known;
// a condition of a template sees them as they are.
type (
	labelValue string
	seriesName string
)

// The marks are characters that no query needs; a template that contains them is refused.
const (
	markStart, markEnd             = "\u27e6", "\u27e7"
	seriesMarkStart, seriesMarkEnd = "\u27ea", "\u27eb"
	allMarks                       = markStart + markEnd + seriesMarkStart + seriesMarkEnd
)

// String implements fmt.Stringer.
func (v labelValue) String() string { return markStart + string(v) + markEnd }

// String implements fmt.Stringer.
func (s seriesName) String() string { return seriesMarkStart + string(s) + seriesMarkEnd }

// queryTemplate is a metricsQuery or a containerQuery.
type queryTemplate struct{ *template.Template }

// absentValue is what a template prints for a label that a request does not have.
const absentValue = "<no value>"

// parseTemplate parses a template and executes it with the labels that its queries are grouped by.
func parseTemplate(text string, groupLabels ...string) (queryTemplate, error) {
	switch {
	case strings.TrimSpace(text) == "":
		return queryTemplate{}, errors.New("the query is empty")
	case strings.ContainsAny(text, allMarks):
		return queryTemplate{}, fmt.Errorf("query: it must not contain %s", allMarks)
	}

	t, err := template.New("query").Delims("<<", ">>").Parse(text)
	if err != nil {
		return queryTemplate{}, fmt.Errorf("query: %w", err)
	}

	// Labels depend on the request, fields do not.
	values := templateValues{
		Series:            "x",
		LabelMatchers:     `x="x"`,
		GroupBy:           strings.Join(groupLabels, ","),
		LabelValuesByName: map[string]labelValue{},
		GroupBySlice:      groupLabels,
	}
	if err := t.Execute(&strings.Builder{}, values); err != nil {
		return queryTemplate{}, fmt.Errorf("query: %w", err)
	}

	return queryTemplate{t}, nil
}

// conditions are the matchers of one query: of the namespace, of the request and of the configuration.
type conditions struct {
	// namespace has one matcher, or none if the query reads all namespaces.
	namespace      []prometheus.Matcher
	request, extra []prometheus.Matcher
}

// conditions returns the matchers of a query with the labels of the rule. A request that reads one namespace keeps its matcher for another one,
// so that it gets no series instead of those of its own.
func (l labelMapping) conditions(q MetricQuery, namespaced bool, extra []prometheus.Matcher) conditions {
	c := conditions{extra: extra}
	namespace, _ := l.label(namespaceResource())
	if namespaced && q.Namespace != "" {
		c.namespace = []prometheus.Matcher{{Label: namespace, Op: "=", Value: q.Namespace}}
	}

	matchers := slices.Clone(q.Matchers)
	for i := range matchers {
		switch matchers[i].Label {
		case namespaceLabel:
			matchers[i].Label = namespace
		case podLabel:
			matchers[i].Label, _ = l.label(podResource())
		}
	}

	for _, m := range slices.Concat(matchers, q.Selector) {
		// The matcher of the request's own namespace is there once.
		if !slices.Contains(c.namespace, m) {
			c.request = append(c.request, m)
		}
	}

	return c
}

// valuesByName returns the values of the labels. Those of the configuration replace those of the request, and none replaces the namespace.
func (c conditions) valuesByName() map[string]labelValue {
	out := map[string]labelValue{}
	for _, m := range slices.Concat(c.request, c.extra, c.namespace) {
		out[m.Label] = labelValue(m.Value)
	}

	return out
}

// Texts that a query can contain verbatim. Label values of a request are literals or patterns of quoted literals; without quotes, spaces and
// commas outside of repetitions they cannot end a string or add an operator. Outside of strings they are numbers or durations: a word would be
// a selector of all namespaces.
var (
	metricName    = regexp.MustCompile(`^[a-zA-Z_:][a-zA-Z0-9_:]*$`)
	quotedName    = regexp.MustCompile("^[^\"'`\\\\\\pC" + allMarks + "]+$")
	literalValue  = regexp.MustCompile(`^[a-zA-Z0-9_.:-]*$`)
	patternValue  = regexp.MustCompile(`^[a-zA-Z0-9_.:,|\\()\[\]{}^$*+?-]*$`)
	unquotedValue = regexp.MustCompile(`^(-?[0-9]+(\.[0-9]+)?([eE]-?[0-9]+)?|([0-9]+(ms|[smhdwy]))+)$`)
)

// checkVerbatim refuses a value of a request that a template could not contain verbatim, as LabelValuesByName. Names of Kubernetes objects
// and values of their labels pass.
func checkVerbatim(m prometheus.Matcher) error {
	allowed := literalValue
	if m.Op == "=~" || m.Op == "!~" {
		allowed = patternValue
	}

	if !allowed.MatchString(m.Value) {
		return fmt.Errorf("label %s: value %q: want letters, digits, '-', '_', '.' and ':' only", m.Label, m.Value)
	}

	return nil
}

// execute returns the query of a template for a series.
func (t queryTemplate) execute(series string, c conditions, groupLabels ...string) (string, error) {
	// Values that a request supplies are checked first: a template may place them outside of quotes.
	for _, m := range slices.Concat(c.namespace, c.request) {
		if err := checkVerbatim(m); err != nil {
			return "", err
		}
	}

	var parts []string
	for _, m := range slices.Concat(c.namespace, c.request, c.extra) {
		if err := validateMatcher(m); err != nil {
			return "", err
		}

		m.Label = quotedLabel(m.Label)
		parts = append(parts, m.String())
	}

	groups := make([]string, len(groupLabels))
	for i, label := range groupLabels {
		groups[i] = quotedLabel(label)
	}

	var b strings.Builder
	err := t.Execute(&b, templateValues{
		Series:            seriesName(series),
		LabelMatchers:     strings.Join(parts, ","),
		GroupBy:           strings.Join(groups, ","),
		LabelValuesByName: c.valuesByName(),
		GroupBySlice:      groups,
	})
	if err != nil {
		return "", fmt.Errorf("query: %w", err)
	}

	return c.checkQuery(b.String())
}

// bareLabel matches the labels that PromQL allows without quotes.
var bareLabel = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)

// quotedLabel returns a label as a query contains it: rules may name any label of UTF-8, such as k8s.pod.name.
func quotedLabel(label string) string {
	if bareLabel.MatchString(label) {
		return label
	}

	return strconv.Quote(label)
}

// validateMatcher is Matcher.Validate for a label that may need quotes.
func validateMatcher(m prometheus.Matcher) error {
	if m.Label == "" || !utf8.ValidString(m.Label) {
		return fmt.Errorf("label %q: want a name of UTF-8", m.Label)
	}

	m.Label = nameLabel
	return m.Validate()
}

// call returns a call of a PromQL function with an expression, which may end with a comment.
func call(function, expr string) string {
	if strings.Contains(expr, "#") {
		expr += "\n"
	}

	return function + "(" + expr + ")"
}

// asVector returns an expression as one that yields a vector: a rule may define an external metric as a scalar.
func asVector(expr string) string {
	parsed, err := promscope.Parse(expr, true)
	if err == nil && parsed.Type() == parser.ValueTypeScalar {
		return call("vector", expr)
	}

	return expr // A server may understand more than the parser.
}

// marked matches the value of a label, markedSeries the name of a series.
var (
	marked       = regexp.MustCompile(markStart + "([^" + markEnd + "]*)" + markEnd)
	markedSeries = regexp.MustCompile(seriesMarkStart + "([^" + seriesMarkEnd + "]*)" + seriesMarkEnd)
)

// checkQuery returns the query without marks. A value of a request in an expression outside of a string must be a number, or it could change the
// query; the name of a series must be one that PromQL allows there.
func (c conditions) checkQuery(text string) (string, error) {
	if strings.Contains(text, absentValue) {
		return "", errors.New("the rule uses the value of a label that the request does not select: add it to the selector of the metric")
	}

	has := func(matchers []prometheus.Matcher, value string) bool {
		return slices.ContainsFunc(matchers, func(m prometheus.Matcher) bool { return m.Value == value })
	}

	bare := withoutStrings(text)
	for _, m := range marked.FindAllStringSubmatch(bare, -1) {
		// A label that the request does not select is empty.
		isConfigured := !has(c.request, m[1]) && (m[1] == "" || has(slices.Concat(c.extra, c.namespace), m[1]))
		if !isConfigured && !unquotedValue.MatchString(m[1]) {
			return "", fmt.Errorf("value %q of a label: the rule uses it outside of a string, where it must be a number", m[1])
		}
	}

	for _, m := range markedSeries.FindAllStringSubmatch(bare, -1) {
		if m[1] != "" && !metricName.MatchString(m[1]) {
			return "", fmt.Errorf("series %q: the rule uses its name outside of a string, where PromQL does not allow it", m[1])
		}
	}

	return strings.NewReplacer(markStart, "", markEnd, "", seriesMarkStart, "", seriesMarkEnd, "").Replace(text), nil
}

// withoutStrings returns PromQL without its strings and comments.
func withoutStrings(expr string) string {
	var out strings.Builder
	for i := 0; i < len(expr); i++ {
		switch c := expr[i]; c {
		case '#':
			for i+1 < len(expr) && expr[i+1] != '\n' {
				i++
			}
		case '"', '\'', '`':
			for i++; i < len(expr) && expr[i] != c; i++ {
				if expr[i] == '\\' && c != '`' {
					i++
				}
			}

		default:
			out.WriteByte(c)
		}
	}

	return out.String()
}
