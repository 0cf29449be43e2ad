// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package promadapter

import (
	"errors"
	"fmt"
	"regexp"
	"text/template"

	"sigs.k8s.io/yaml"

	"crane.io/crane/internal/metrics/prometheus"
)

// Rules are a validated configuration. They are immutable after Parse.
type Rules struct {
	custom, external []rule
	resource         map[string]resourceRule
	extra            []prometheus.Matcher
}

// MetricQuery selects the values of a metric.
type MetricQuery struct {
	// Namespace is the namespace of the workload; it becomes a matcher if the rule has a label for namespaces.
	Namespace string
	// Matchers restrict the series. The labels "namespace" and "pod" are replaced by those of the rule; a matcher for
	// namespace is ignored if Namespace is set.
	Matchers []prometheus.Matcher
	// Container restricts the query to one container if not empty; for Resource only.
	Container string
}

// config is the configuration file, without the fields that do not affect expressions.
type config struct {
	Rules         []ruleConfig `json:"rules"`
	ExternalRules []ruleConfig `json:"externalRules"`
	ResourceRules *struct {
		CPU    resourceConfig `json:"cpu"`
		Memory resourceConfig `json:"memory"`
	} `json:"resourceRules"`
}

type ruleConfig struct {
	SeriesQuery   string         `json:"seriesQuery"`
	SeriesFilters []filterConfig `json:"seriesFilters"`
	Resources     labelsConfig   `json:"resources"`
	Name          nameConfig     `json:"name"`
	MetricsQuery  string         `json:"metricsQuery"`
}

type filterConfig struct {
	Is    string `json:"is"`
	IsNot string `json:"isNot"`
}

type nameConfig struct {
	Matches string `json:"matches"`
	As      string `json:"as"`
}

type labelsConfig struct {
	Template  string `json:"template"`
	Overrides map[string]struct {
		Group    string `json:"group"`
		Resource string `json:"resource"`
	} `json:"overrides"`
	Namespaced *bool `json:"namespaced"`
}

type resourceConfig struct {
	ContainerQuery string       `json:"containerQuery"`
	Resources      labelsConfig `json:"resources"`
	ContainerLabel string       `json:"containerLabel"`
}

// rule is an entry of rules or externalRules.
type rule struct {
	series       *regexp.Regexp // matches the name of the series
	literal      string         // the name of the series, where the rule selects one
	filters      []filter
	listSelector string // selector that lists the series of a server
	name         nameMapping
	labels       labelMapping
	template     *template.Template
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
	template  *template.Template
}

// The lists of rules in a configuration.
const (
	listRules         = "rules"
	listExternalRules = "externalRules"
	listResourceRules = "resourceRules"
)

// InvalidRulesError is the error of a configuration with invalid rules.
type InvalidRulesError struct {
	// Counts are the numbers of invalid rules by the key of their list.
	Counts map[string]int
	errs   []error
}

// Error implements error. It names each invalid rule.
func (e *InvalidRulesError) Error() string { return errors.Join(e.errs...).Error() }

// Unwrap returns the error of each invalid rule.
func (e *InvalidRulesError) Unwrap() []error { return e.errs }

func (e *InvalidRulesError) add(list, name string, err error) {
	e.Counts[list]++
	e.errs = append(e.errs, fmt.Errorf("%s: %w", name, err))
}

// Parse reads a configuration; extra matchers are added to each query. The error wraps an InvalidRulesError for invalid rules.
func Parse(data []byte, extra []prometheus.Matcher) (*Rules, error) {
	var c config
	if err := yaml.Unmarshal(data, &c); err != nil {
		return nil, fmt.Errorf("prometheus-adapter's configuration: %w", err)
	}

	out := &Rules{resource: map[string]resourceRule{}, extra: extra}
	invalid := &InvalidRulesError{Counts: map[string]int{}}
	// All invalid rules are collected, so that the user sees them in one run.
	list := func(name string, configs []ruleConfig, parsed *[]rule) {
		for i, definition := range configs {
			r, err := newRule(definition, extra)
			if err != nil {
				invalid.add(name, fmt.Sprintf("%s[%d]", name, i), err)
				continue
			}

			*parsed = append(*parsed, r)
		}
	}

	list(listRules, c.Rules, &out.custom)
	list(listExternalRules, c.ExternalRules, &out.external)

	if c.ResourceRules != nil {
		for name, definition := range map[string]resourceConfig{"cpu": c.ResourceRules.CPU, "memory": c.ResourceRules.Memory} {
			if definition.ContainerQuery == "" {
				continue
			}

			r, err := newResourceRule(definition)
			if err != nil {
				invalid.add(listResourceRules, listResourceRules+"."+name, err)
				continue
			}

			out.resource[name] = r
		}
	}

	if len(invalid.errs) > 0 {
		return nil, fmt.Errorf("prometheus-adapter's configuration: %w", invalid)
	}

	return out, nil
}

func newRule(c ruleConfig, extra []prometheus.Matcher) (rule, error) {
	r := rule{namespaced: c.Resources.Namespaced == nil || *c.Resources.Namespaced}
	var err error
	if r.literal, r.series, err = parseSeriesQuery(c.SeriesQuery); err != nil {
		return rule{}, err
	}

	// Filters apply to the names of the series that the server lists.
	r.listSelector = listingExpr(c.SeriesQuery, extra)
	for i, f := range c.SeriesFilters {
		nameFilter := filter{want: f.Is != ""}
		if f.Is != "" && f.IsNot != "" {
			return rule{}, fmt.Errorf("seriesFilters[%d]: want is or isNot, not both", i)
		}

		if nameFilter.match, err = regexp.Compile(f.Is + f.IsNot); err != nil {
			return rule{}, fmt.Errorf("seriesFilters[%d]: %w", i, err)
		}

		r.filters = append(r.filters, nameFilter)
	}

	if r.name, err = newNameMapping(c.Name); err != nil {
		return rule{}, err
	}

	if r.labels, err = newLabelMapping(c.Resources); err != nil {
		return rule{}, err
	}

	r.template, err = parseTemplate(c.MetricsQuery)
	return r, err
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

	r.template, err = parseTemplate(c.ContainerQuery)
	return r, err
}

// seriesQuery matches a metric name, conditions in braces, or both.
var seriesQuery = regexp.MustCompile(`^\s*([a-zA-Z_:][a-zA-Z0-9_:]*)?\s*(?:\{(.*)\})?\s*$`)

// parseSeriesQuery returns the series of a rule. The other conditions select series during discovery and are not part
// of the queries of the rule, which metricsQuery defines completely.
func parseSeriesQuery(text string) (literal string, series *regexp.Regexp, err error) {
	parts := seriesQuery.FindStringSubmatch(text)
	if parts == nil || parts[1] == "" && parts[2] == "" {
		return "", nil, fmt.Errorf("seriesQuery %q: want a metric, conditions in braces, or both", text)
	}

	matchers, err := prometheus.ParseMatchers(parts[2])
	if err != nil {
		return "", nil, fmt.Errorf("seriesQuery %q: %w", text, err)
	}

	literal = parts[1]
	for _, m := range matchers {
		switch {
		case m.Label != "__name__":
			continue
		case m.Op == "=":
			literal = m.Value
		case m.Op == "=~":
			if series, err = regexp.Compile("^(?:" + m.Value + ")$"); err != nil {
				return "", nil, fmt.Errorf("seriesQuery %q: %w", text, err)
			}
		}
	}

	return literal, series, nil
}
