// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package promadapter

import (
	"errors"
	"fmt"
	"regexp"
	"slices"

	"crane.io/crane/internal/metrics/prometheus"
)

// Rules are a configuration. They are immutable after Parse.
type Rules struct {
	custom, external []rule
	resource         map[string]resourceRule
	extra            []prometheus.Matcher
	refused          *InvalidRulesError // nil for none
}

// Refused returns an *InvalidRulesError with the rules that are not in force, nil for none.
func (r *Rules) Refused() error {
	if r == nil || r.refused == nil {
		return nil
	}

	return r.refused
}

// MetricQuery selects the values of a metric.
type MetricQuery struct {
	// Namespace is the namespace of the workload; it becomes a matcher if the rule has a label for namespaces.
	Namespace string
	// Matchers restrict the series. The labels "namespace" and "pod" are replaced by those of the rule.
	Matchers []prometheus.Matcher
	// Selector restricts the series by their own labels, as the selector of a metric does.
	Selector []prometheus.Matcher
	// Container restricts the query to one container if not empty; for Resource only.
	Container string
}

// rule is an entry of rules or externalRules.
type rule struct {
	name         string // as in the configuration, for instance rules[2]
	series       seriesSelector
	filters      []filter
	listSelector string // selector that lists the series of a server
	naming       nameMapping
	labels       labelMapping
	query        queryTemplate
	// namespaced is set if an external metric belongs to a namespace.
	namespaced bool
}

type filter struct {
	match *regexp.Regexp
	want  bool
}

type resourceRule struct {
	labels    labelMapping
	container string
	query     queryTemplate
}

func newRule(list string, c ruleConfig, extra []prometheus.Matcher) (rule, error) {
	r := rule{namespaced: c.Resources.Namespaced == nil || *c.Resources.Namespaced}
	var err error
	if r.series, err = parseSeriesQuery(c.SeriesQuery); err != nil {
		return rule{}, err
	}

	// Filters apply to the names of the series that the server lists.
	r.listSelector = r.series.text(extra)
	for i, f := range c.SeriesFilters {
		nameFilter := filter{want: f.Is != ""}
		switch {
		case f.Is != "" && f.IsNot != "":
			return rule{}, fmt.Errorf("seriesFilters[%d]: want is or isNot, not both", i)
		case f.Is == "" && f.IsNot == "":
			return rule{}, fmt.Errorf("seriesFilters[%d]: want is or isNot", i)
		}

		if nameFilter.match, err = regexp.Compile(f.Is + f.IsNot); err != nil {
			return rule{}, fmt.Errorf("seriesFilters[%d]: %w", i, err)
		}

		r.filters = append(r.filters, nameFilter)
	}

	if r.naming, err = newNameMapping(c.Name); err != nil {
		return rule{}, err
	}

	if r.labels, err = newLabelMapping(c.Resources); err != nil {
		return rule{}, err
	}

	// An external metric is of no objects, and a custom one of those that the rule has labels for.
	var groups []string
	if list == listRules {
		groups = []string{podLabel}
	}

	if r.query, err = parseTemplate(c.MetricsQuery, groups...); err != nil {
		return rule{}, err
	}

	if list == listRules && r.labels.isEmpty() {
		return rule{}, errors.New("resources: want overrides, a template, or both: a custom metric without them is of no objects")
	}

	return r, nil
}

func newResourceRule(c resourceConfig) (resourceRule, error) {
	r := resourceRule{container: c.ContainerLabel}
	if r.container == "" {
		r.container = "container"
	}

	var err error
	if r.labels, err = newLabelMapping(c.Resources); err != nil {
		return resourceRule{}, err
	}

	r.query, err = parseTemplate(c.ContainerQuery, podLabel, r.container)
	return r, err
}

func (r *rule) passes(series string) bool {
	return !slices.ContainsFunc(r.filters, func(f filter) bool { return f.match.MatchString(series) != f.want })
}
