// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package promadapter

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"crane.io/crane/internal/metrics/prometheus"
)

// Objects are the objects that a custom metric is read for.
type Objects struct {
	// Group and Resource, in the singular, are the resource of the objects.
	Group, Resource string
	// Namespace is empty for cluster-scoped objects.
	Namespace string
	Names     []string
}

// ErrNotListed means that a rule may define a metric, but the series of the rule are not listed yet, so that it has no answer. The name
// of a metric, which tenants choose, never becomes a query by itself.
var ErrNotListed = errors.New("the series of the rule that may define this metric have not been listed yet")

// ExternalExpr returns the PromQL of an external metric, one value per series. found is false without a rule. The error wraps
// ErrNotListed while the series of a rule are not listed.
func (r *Rules) ExternalExpr(l *Listing, metric, namespace string, matchers []prometheus.Matcher) (expr string, found bool, err error) {
	rule, series, err := findListed(r.external, l.externalOf(), metric, func(*rule) bool { return true })
	if rule == nil || err != nil {
		return "", err != nil, err
	}

	_, hasNamespace := rule.labels.label(namespaceLabel)
	q := MetricQuery{Namespace: namespace, Matchers: matchers}
	expr, err = executeTemplate(rule.template, series, rule.labels.conditions(q, rule.namespaced && hasNamespace, r.extra))

	return expr, true, err
}

// CustomExpr returns the PromQL of a metric of objects, and the label of its result that has their names. found is false without a rule
// for the metric and the resource. The error wraps ErrNotListed while the series of a rule are not listed.
func (r *Rules) CustomExpr(l *Listing, metric string, o Objects, matchers []prometheus.Matcher) (expr, label string, found bool, err error) {
	resource := singular(o.Resource)
	rule, series, err := findListed(r.custom, l.customOf(), metric, func(candidate *rule) bool {
		_, hasLabel := candidate.labels.labelIn(o.Group, resource)
		return hasLabel
	})
	if rule == nil || err != nil {
		return "", "", err != nil, err
	}

	label, _ = rule.labels.labelIn(o.Group, resource)
	namespace, hasNamespace := rule.labels.label(namespaceLabel)
	// A request in a namespace must not read the values of another one.
	switch {
	case o.Namespace == "":
	case !hasNamespace:
		return "", "", true, errors.New("the rule has no label for namespaces: the values of all namespaces would be added up")
	case label == namespace && !slices.Equal(o.Names, []string{o.Namespace}):
		return "", "", true, fmt.Errorf("a request in namespace %s reads no metrics of other namespaces", o.Namespace)
	}

	// Where the objects are namespaces, the condition on the namespace already selects them.
	c := rule.labels.conditions(MetricQuery{Namespace: o.Namespace, Matchers: matchers}, o.Namespace != "", r.extra)
	if o.Namespace == "" || label != namespace {
		c.request = append(c.request, oneOf(label, o.Names))
	}

	expr, err = executeTemplate(rule.template, series, c, label)
	return expr, label, true, err
}

// HasExternal reports whether a rule defines an external metric, or may define it and is not listed yet.
func (r *Rules) HasExternal(l *Listing, metric string) bool {
	rule, _, err := findListed(r.external, l.externalOf(), metric, func(*rule) bool { return true })
	return rule != nil || err != nil
}

// HasCustom reports whether a rule defines a custom metric of any resource, or may define it and is not listed yet.
func (r *Rules) HasCustom(l *Listing, metric string) bool {
	rule, _, err := findListed(r.custom, l.customOf(), metric, func(*rule) bool { return true })
	return rule != nil || err != nil
}

func (l *Listing) externalOf() []map[string]string {
	if l == nil {
		return nil
	}

	return l.external
}

func (l *Listing) customOf() []map[string]string {
	if l == nil {
		return nil
	}

	return l.custom
}

// findListed returns the first rule whose listed series include a metric, and that series. Without one it returns ErrNotListed when a rule
// whose series are not listed may define the metric by its name, and nil otherwise.
func findListed(rules []rule, listed []map[string]string, metric string, fits func(*rule) bool) (*rule, string, error) {
	var pending error
	for i := range rules {
		switch {
		case !fits(&rules[i]):
		case i < len(listed) && listed[i] != nil:
			if series, ok := listed[i][metric]; ok {
				return &rules[i], series, nil
			}
		default:
			if _, ok := rules[i].seriesFor(metric); ok {
				pending = ErrNotListed
			}
		}
	}

	return nil, "", pending
}

// singular returns the form of a resource name that overrides are stored under.
func singular(resource string) string { return strings.TrimSuffix(strings.ToLower(resource), "s") }

// oneOf matches a label against a list of literal values.
func oneOf(label string, values []string) prometheus.Matcher {
	if len(values) == 1 {
		return prometheus.Matcher{Label: label, Op: "=", Value: values[0]}
	}

	return prometheus.Matcher{Label: label, Op: "=~", Value: alternatives(values)}
}

func alternatives(values []string) string {
	quoted := make([]string, len(values))
	for i, v := range values {
		quoted[i] = regexp.QuoteMeta(v)
	}

	return strings.Join(quoted, "|")
}

// SelectorMatchers returns a label selector as PromQL matchers.
func SelectorMatchers(selector labels.Selector) ([]prometheus.Matcher, error) {
	requirements, selectable := selector.Requirements()
	if !selectable {
		return nil, errors.New("the selector selects nothing")
	}

	var out []prometheus.Matcher
	for _, r := range requirements {
		values := slices.Sorted(slices.Values(r.Values().UnsortedList()))
		m := prometheus.Matcher{Label: r.Key()}
		switch r.Operator() {
		case selection.In, selection.Equals, selection.DoubleEquals:
			m = oneOf(r.Key(), values)
		case selection.NotIn:
			m.Op = "!~"
			m.Value = alternatives(values)
		case selection.NotEquals:
			m.Op = "!="
			m.Value = values[0]

		case selection.Exists:
			m.Op = "!="
		case selection.DoesNotExist:
			m.Op = "="
		default:
			return nil, fmt.Errorf("selector %q: operator %s: want =, !=, in, notin or the name of a label alone", selector, r.Operator())
		}

		if err := m.Validate(); err != nil {
			return nil, fmt.Errorf("selector %q: %w", selector, err)
		}

		out = append(out, m)
	}

	return out, nil
}
