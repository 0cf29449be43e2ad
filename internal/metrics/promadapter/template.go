// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package promadapter

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"text/template"

	"crane.io/crane/internal/metrics/prometheus"
)

// Labels of a MetricQuery. A rule maps them to labels of its own.
const (
	namespaceLabel = "namespace"
	podLabel       = "pod"
)

// templateValues are the fields that a template of prometheus-adapter can use. All of them enter the query verbatim.
type templateValues struct {
	Series, LabelMatchers, GroupBy string
	LabelValuesByName              map[string]string
	GroupBySlice                   []string
}

func parseTemplate(text string) (*template.Template, error) {
	if strings.TrimSpace(text) == "" {
		return nil, errors.New("the query is empty")
	}

	t, err := template.New("query").Delims("<<", ">>").Option("missingkey=error").Parse(text)
	if err != nil {
		return nil, fmt.Errorf("query: %w", err)
	}

	if err := t.Execute(&strings.Builder{}, templateValues{Series: "x", LabelMatchers: `x="x"`, GroupBy: "x"}); err != nil {
		return nil, fmt.Errorf("query: %w", err)
	}

	return t, nil
}

// CustomSum returns the PromQL of a Pods metric, summed over its pods; found is false without a rule. The series is derived from the name
// of the metric, without a listing.
func (r *Rules) CustomSum(metric string, q MetricQuery) (expr string, found bool, err error) {
	rule, series := findRuleByName(r.custom, metric)
	if rule == nil {
		return "", false, nil
	}

	pod, _ := rule.labels.label(podLabel)
	text, err := executeSum(rule.template, series, rule.labels.conditions(q, true, r.extra), pod)
	return text, true, err
}

// ExternalSum returns the PromQL of an External metric, summed up as an HPA does; found is false without a rule. The series is derived from
// the name of the metric, without a listing.
func (r *Rules) ExternalSum(metric string, q MetricQuery) (expr string, found bool, err error) {
	rule, series := findRuleByName(r.external, metric)
	if rule == nil {
		return "", false, nil
	}

	_, hasNamespace := rule.labels.label(namespaceLabel)
	text, err := executeSum(rule.template, series, rule.labels.conditions(q, rule.namespaced && hasNamespace, r.extra))
	return text, true, err
}

// ResourceSum returns the PromQL of the CPU or memory usage of pods, summed over them; found is false without a rule.
func (r *Rules) ResourceSum(name string, q MetricQuery) (expr string, found bool, err error) {
	rule, ok := r.resource[name]
	if !ok {
		return "", false, nil
	}

	if q.Container != "" {
		q.Matchers = append(slices.Clone(q.Matchers), prometheus.Matcher{Label: rule.container, Op: "=", Value: q.Container})
	}

	pod, _ := rule.labels.label(podLabel)
	text, err := executeSum(rule.template, "", rule.labels.conditions(q, true, r.extra), pod, rule.container)
	return text, true, err
}

// findRuleByName returns the rule for a metric: the first that names its series, or else the first whose pattern matches it. Whether the
// series exists is not known here, so that a pattern must not hide a name.
func findRuleByName(rules []rule, metric string) (*rule, string) {
	for _, named := range []bool{true, false} {
		for i := range rules {
			if (rules[i].literal != "") != named {
				continue
			}

			if series, ok := rules[i].seriesFor(metric); ok {
				return &rules[i], series
			}
		}
	}

	return nil, ""
}

// seriesFor returns the series that a rule would use for a metric. ok is false for a series that is no valid metric name: it enters the
// query verbatim.
func (r *rule) seriesFor(metric string) (series string, ok bool) {
	if r.literal != "" {
		name, matches := r.name.metric(r.literal)
		return r.literal, matches && name == metric && r.passes(r.literal)
	}

	series, ok = r.name.series(metric)
	return series, ok && metricName.MatchString(series) && (r.series == nil || r.series.MatchString(series)) && r.passes(series)
}

func (r *rule) passes(series string) bool {
	return !slices.ContainsFunc(r.filters, func(f filter) bool { return f.match.MatchString(series) != f.want })
}

// conditions are the matchers of one query: of the namespace, of the request and of the configuration.
type conditions struct {
	// namespace has one matcher, or none if the query reads all namespaces.
	namespace      []prometheus.Matcher
	request, extra []prometheus.Matcher
}

// conditions returns the matchers of a query with the labels of the rule. Requests that read one namespace have no matcher for another one.
func (l labelMapping) conditions(q MetricQuery, namespaced bool, extra []prometheus.Matcher) conditions {
	c := conditions{extra: extra}
	namespace, _ := l.label(namespaceLabel)
	if namespaced && q.Namespace != "" {
		c.namespace = []prometheus.Matcher{{Label: namespace, Op: "=", Value: q.Namespace}}
	}

	for _, m := range q.Matchers {
		if m.Label == namespaceLabel {
			continue
		}

		if m.Label == podLabel {
			m.Label, _ = l.label(podLabel)
		}
		if len(c.namespace) == 0 || m.Label != namespace {
			c.request = append(c.request, m)
		}
	}

	return c
}

// valuesByName returns the values of the labels. Those of the configuration replace those of the request, and none replaces the namespace.
func (c conditions) valuesByName() map[string]string {
	out := map[string]string{}
	for _, m := range slices.Concat(c.request, c.extra, c.namespace) {
		out[m.Label] = m.Value
	}

	return out
}

// executeSum returns the sum of the template's query: the metric of an HPA is the total over its pods or values.
func executeSum(t *template.Template, series string, c conditions, groupLabels ...string) (string, error) {
	expr, err := executeTemplate(t, series, c, groupLabels...)
	if err != nil {
		return "", err
	}

	return "sum(" + expr + ")", nil
}

// Texts that a query can contain verbatim. Label values of a request are literals or patterns of quoted literals; without quotes, spaces and
// commas outside of repetitions they cannot end a string or add an operator. Outside of strings they are numbers or durations: a word would be
// a selector of all namespaces.
var (
	metricName    = regexp.MustCompile(`^[a-zA-Z_:][a-zA-Z0-9_:]*$`)
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

// executeTemplate returns the query of a template.
func executeTemplate(t *template.Template, series string, c conditions, groupLabels ...string) (string, error) {
	var parts []string
	// Values that a request supplies are checked first: a template may place them outside of quotes.
	for _, m := range slices.Concat(c.namespace, c.request) {
		if err := checkVerbatim(m); err != nil {
			return "", err
		}
	}

	for _, m := range slices.Concat(c.namespace, c.request, c.extra) {
		if err := m.Validate(); err != nil {
			return "", err
		}

		parts = append(parts, m.String())
	}

	values := templateValues{
		Series:            series,
		LabelMatchers:     strings.Join(parts, ","),
		GroupBy:           strings.Join(groupLabels, ","),
		LabelValuesByName: c.valuesByName(),
		GroupBySlice:      groupLabels,
	}

	// A value in an expression outside of a string must be a number, or it could change the query.
	for _, m := range c.request {
		if unquotedValue.MatchString(m.Value) {
			continue
		}

		unquoted, err := hasUnquoted(t, values, m.Label)
		if err != nil {
			return "", err
		}

		if unquoted {
			return "", fmt.Errorf("label %s: value %q: the rule uses it outside of a string, where it must be a number", m.Label, m.Value)
		}
	}

	return execute(t, values)
}

func execute(t *template.Template, values templateValues) (string, error) {
	var b strings.Builder
	if err := t.Execute(&b, values); err != nil {
		return "", fmt.Errorf("query: %w", err)
	}

	return b.String(), nil
}

// hasUnquoted reports whether the query of a template contains the value of a label outside of strings. It executes the template with a value
// that no query contains.
func hasUnquoted(t *template.Template, values templateValues, label string) (bool, error) {
	const mark = "\x01"
	values.LabelValuesByName = maps.Clone(values.LabelValuesByName)
	values.LabelValuesByName[label] = strings.Repeat(mark, max(1, len(values.LabelValuesByName[label])))
	text, err := execute(t, values)

	return strings.Contains(withoutStrings(text), mark), err
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
