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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"

	"crane.io/crane/internal/metrics/prometheus"
)

// Objects are the objects that a custom metric is read for.
type Objects struct {
	// Group and Resource, in the singular, are the resource of the objects. Plural and Resolve are as in Resource.
	Group, Resource, Plural string
	Resolve                 func(group, name string) (schema.GroupResource, error)
	// Namespace is empty for cluster-scoped objects.
	Namespace string
	Names     []string
}

func (o Objects) resource() Resource {
	out := Resource{
		Group:    o.Group,
		Singular: strings.ToLower(o.Resource),
		Plural:   o.Plural,
		Resolve:  o.Resolve,
	}
	if out.Plural == "" {
		out.Singular = guessSingular(out.Singular)
	}

	return out
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

	expr, err = rule.query.execute(series, rule.externalConditions(MetricQuery{Namespace: namespace, Selector: matchers}, r.extra))
	if err != nil {
		return "", true, err
	}

	return asVector(expr), true, nil
}

// externalConditions returns the matchers of an external metric, which belongs to the namespace of the request where the rule has a label.
func (r *rule) externalConditions(q MetricQuery, extra []prometheus.Matcher) conditions {
	_, hasNamespace := r.labels.label(namespaceResource())
	return r.labels.conditions(q, r.namespaced && hasNamespace, extra)
}

// CustomExpr returns the PromQL of a metric of objects, and the label of its result that has their names. found is false without a rule
// for the metric and the resource. The error wraps ErrNotListed while the series of a rule are not listed.
func (r *Rules) CustomExpr(l *Listing, metric string, o Objects, matchers []prometheus.Matcher) (expr, label string, found bool, err error) {
	resource := o.resource()
	rule, series, err := findListed(r.custom, l.customOf(), metric, func(candidate *rule) bool {
		_, hasLabel := candidate.labels.label(resource)
		return hasLabel
	})
	if rule == nil || err != nil {
		return "", "", err != nil, err
	}

	label, _ = rule.labels.label(resource)
	namespace, hasNamespace := rule.labels.label(namespaceResource())
	// A request in a namespace must not read the values of another one.
	switch {
	case o.Namespace == "":
	case !hasNamespace:
		return "", "", true, errors.New("the rule has no label for namespaces: the values of all namespaces would be added up")
	case label == namespace && !slices.Equal(o.Names, []string{o.Namespace}):
		return "", "", true, fmt.Errorf("a request in namespace %s reads no metrics of other namespaces", o.Namespace)
	}

	// Where the objects are namespaces, the condition on the namespace already selects them.
	c := rule.labels.conditions(MetricQuery{Namespace: o.Namespace, Selector: matchers}, o.Namespace != "", r.extra)
	if o.Namespace == "" || label != namespace {
		c.request = append(c.request, oneOf(label, o.Names))
	}

	expr, err = rule.query.execute(series, c, label)
	return expr, label, true, err
}

// Total is the query for the total of a metric of an HPA.
type Total struct {
	Expr string
	// Rule is the rule of the configuration, for instance rules[2], and Series the series that it found; empty for a resource.
	Rule, Series string
}

// CustomSum returns the query of a Pods metric, summed over its pods, by the rule that CustomExpr uses; found is false without one. The error
// wraps ErrNotListed while the series of a rule are not listed.
func (r *Rules) CustomSum(l *Listing, metric string, q MetricQuery) (total Total, found bool, err error) {
	rule, series, err := findListed(r.custom, l.customOf(), metric, func(candidate *rule) bool {
		_, hasLabel := candidate.labels.label(podResource())
		return hasLabel
	})
	if rule == nil || err != nil {
		return Total{}, err != nil, err
	}

	if _, hasNamespace := rule.labels.label(namespaceResource()); !hasNamespace {
		return Total{Rule: rule.name}, true, errors.New("the rule has no label for namespaces: the values of all namespaces would be added up")
	}

	pod, _ := rule.labels.label(podResource())
	expr, err := rule.query.execute(series, rule.labels.conditions(q, true, r.extra), pod)
	return newTotal(expr, rule.name, series, err)
}

// ExternalSum returns the query of an External metric, summed up as an HPA does, by the rule that ExternalExpr uses; found is false without
// one. The error wraps ErrNotListed while the series of a rule are not listed.
func (r *Rules) ExternalSum(l *Listing, metric string, q MetricQuery) (total Total, found bool, err error) {
	rule, series, err := findListed(r.external, l.externalOf(), metric, func(*rule) bool { return true })
	if rule == nil || err != nil {
		return Total{}, err != nil, err
	}

	expr, err := rule.query.execute(series, rule.externalConditions(q, r.extra))
	return newTotal(asVector(expr), rule.name, series, err)
}

// ResourceSum returns the query of the CPU or memory usage of pods, summed over them; found is false without a rule.
func (r *Rules) ResourceSum(name string, q MetricQuery) (total Total, found bool, err error) {
	rule, ok := r.resource[name]
	if !ok {
		return Total{}, false, nil
	}

	if q.Container != "" {
		q.Selector = append(slices.Clone(q.Selector), prometheus.Matcher{Label: rule.container, Op: "=", Value: q.Container})
	}

	pod, _ := rule.labels.label(podResource())
	expr, err := rule.query.execute("", rule.labels.conditions(q, true, r.extra), pod, rule.container)
	return newTotal(expr, listResourceRules+"."+name, "", err)
}

// newTotal returns the sum of a rule's query: the metric of an HPA is the total over its pods or values.
func newTotal(expr, rule, series string, err error) (total Total, found bool, failure error) {
	if err != nil {
		return Total{Rule: rule, Series: series}, true, err
	}

	return Total{call("sum", expr), rule, series}, true, nil
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

// findListed returns the last rule whose listed series include a metric, as prometheus-adapter does, and that series. Without one, or where a
// later rule may define the metric by its name and its series are not listed, it returns ErrNotListed or nothing.
func findListed(rules []rule, listed []map[string]string, metric string, fits func(*rule) bool) (*rule, string, error) {
	for i := range slices.Backward(rules) {
		if !fits(&rules[i]) {
			continue
		}

		if i < len(listed) && listed[i] != nil {
			if series, ok := listed[i][metric]; ok {
				return &rules[i], series, nil
			}

			continue
		}

		if rules[i].mayDefine(metric) {
			return nil, "", ErrNotListed
		}
	}

	return nil, "", nil
}

// mayDefine reports whether a rule whose series are not listed could define a metric.
func (r *rule) mayDefine(metric string) bool {
	series, ok := r.series.literal()
	if ok {
		name, matches := r.naming.metric(series)
		return matches && name == metric && r.passes(series)
	}

	// A name that is the same for all series says nothing about them.
	if r.naming.isConstant() {
		return metric == r.naming.as
	}

	series, ok = r.naming.series(metric)
	return ok && metricName.MatchString(series) && r.series.matches(series) && r.passes(series)
}

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
