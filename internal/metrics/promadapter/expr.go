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

// Objects are what a custom metric is asked of.
type Objects struct {
	// Group and Resource, in the singular, say what they are.
	Group, Resource string
	// Namespace is empty for objects outside of namespaces.
	Namespace string
	Names     []string
}

// ExternalExpr returns the PromQL with which prometheus-adapter answers for an external metric: as the template gives it, a value
// for each series. found is false where no rule is about the metric.
func (r *Rules) ExternalExpr(l *Listing, metric, namespace string, matchers []prometheus.Matcher) (expr string, found bool, err error) {
	one, series := findRule(r.external, l.externalOf(), metric, func(*rule) bool { return true })
	if one == nil {
		return "", false, nil
	}
	_, known := one.labels.label(namespaceLabel)
	q := MetricQuery{Namespace: namespace, Matchers: matchers}
	expr, err = executeTemplate(one.template, series, one.labels.conditions(q, one.namespaced && known), r.extra)
	return expr, true, err
}

// CustomExpr returns the PromQL with which prometheus-adapter answers for a metric of objects, and the label of its result that holds
// their names. found is false where no rule is about the metric and the resource.
func (r *Rules) CustomExpr(l *Listing, metric string, o Objects, matchers []prometheus.Matcher) (expr, label string, found bool, err error) {
	resource := singular(o.Resource)
	one, series := findRule(r.custom, l.customOf(), metric, func(one *rule) bool {
		_, known := one.labels.labelIn(o.Group, resource)
		return known
	})
	if one == nil {
		return "", "", false, nil
	}
	label, _ = one.labels.labelIn(o.Group, resource)
	if _, known := one.labels.label(namespaceLabel); o.Namespace != "" && !known {
		return "", "", true, errors.New("the rule has no label for namespaces: objects of all namespaces would be one")
	}
	own := slices.Concat(one.labels.conditions(MetricQuery{Namespace: o.Namespace, Matchers: matchers}, o.Namespace != ""),
		[]prometheus.Matcher{oneOf(label, o.Names)})
	expr, err = executeTemplate(one.template, series, own, r.extra, label)
	return expr, label, true, err
}

// HasExternal tells whether a rule is about an external metric.
func (r *Rules) HasExternal(l *Listing, metric string) bool {
	one, _ := findRule(r.external, l.externalOf(), metric, func(*rule) bool { return true })
	return one != nil
}

// HasCustom tells whether a rule is about a custom metric, of whatever objects.
func (r *Rules) HasCustom(l *Listing, metric string) bool {
	one, _ := findRule(r.custom, l.customOf(), metric, func(*rule) bool { return true })
	return one != nil
}

// IsEmpty tells whether there is no rule to serve by.
func (r *Rules) IsEmpty() bool { return len(r.custom) == 0 && len(r.external) == 0 }

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

// findRule returns the first rule that is about a metric, and its series. Where it is known which series there are, a rule is about those
// alone: one for all names would otherwise keep every other metric from whoever comes after it.
func findRule(rules []rule, listed []map[string]string, metric string, fits func(*rule) bool) (*rule, string) {
	for i := range rules {
		if !fits(&rules[i]) {
			continue
		}
		if i < len(listed) && listed[i] != nil {
			if series, ok := listed[i][metric]; ok {
				return &rules[i], series
			}
			continue
		}
		if series, ok := rules[i].seriesFor(metric); ok {
			return &rules[i], series
		}
	}
	return nil, ""
}

// singular is how overrides are kept; see newLabelMapping.
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

// SelectorMatchers writes the selector of a request as conditions.
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
			m.Op, m.Value = "!~", alternatives(values)
		case selection.NotEquals:
			m.Op, m.Value = "!=", values[0]
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
