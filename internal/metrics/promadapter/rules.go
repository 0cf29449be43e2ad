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

// Rules are a configuration that was checked. They are not changed after Parse.
type Rules struct {
	custom, external []rule
	resource         map[string]resourceRule
	extra            []prometheus.Matcher
}

// MetricQuery is what is asked about a metric.
type MetricQuery struct {
	// Namespace of the workload; it is a matcher where the rule knows namespaces.
	Namespace string
	// Matchers narrow the series down. Labels "namespace" and "pod" stand for what the rule calls them; namespace beside
	// Namespace counts once.
	Matchers []prometheus.Matcher
	// Container is asked for alone where it is not empty; for Resource.
	Container string
}

// config is the file. Fields that say nothing of expressions are left out.
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

// rule is one of rules or externalRules.
type rule struct {
	series   *regexp.Regexp // what the name of the series has to match
	literal  string         // the series, where the rule is about one
	filters  []filter
	listing  string // what asks a server for the names of the series
	name     nameMapping
	labels   labelMapping
	template *template.Template
	// namespaced tells that an external metric belongs to a namespace.
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

// Parse reads a configuration; extra matchers are added to each query. An error names the rule.
func Parse(data []byte, extra []prometheus.Matcher) (*Rules, error) {
	var c config
	if err := yaml.Unmarshal(data, &c); err != nil {
		return nil, fmt.Errorf("prometheus-adapter's configuration: %w", err)
	}
	out := &Rules{resource: map[string]resourceRule{}, extra: extra}
	var errs []error
	list := func(name string, from []ruleConfig, into *[]rule) {
		for i, one := range from {
			r, err := newRule(one, extra)
			if err != nil {
				errs = append(errs, fmt.Errorf("%s[%d]: %w", name, i, err))
				continue
			}
			*into = append(*into, r)
		}
	}
	list("rules", c.Rules, &out.custom)
	list("externalRules", c.ExternalRules, &out.external)
	if c.ResourceRules != nil {
		for name, one := range map[string]resourceConfig{"cpu": c.ResourceRules.CPU, "memory": c.ResourceRules.Memory} {
			if one.ContainerQuery == "" {
				continue
			}
			r, err := newResourceRule(one)
			if err != nil {
				errs = append(errs, fmt.Errorf("resourceRules.%s: %w", name, err))
				continue
			}
			out.resource[name] = r
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("prometheus-adapter's configuration: %w", err)
	}
	return out, nil
}

func newRule(c ruleConfig, extra []prometheus.Matcher) (rule, error) {
	r := rule{namespaced: c.Resources.Namespaced == nil || *c.Resources.Namespaced}
	var err error
	if r.literal, r.series, err = parseSeriesQuery(c.SeriesQuery); err != nil {
		return rule{}, err
	}
	r.listing = listingExpr(c.SeriesQuery, extra)
	for i, f := range c.SeriesFilters {
		one := filter{want: f.Is != ""}
		if f.Is != "" && f.IsNot != "" {
			return rule{}, fmt.Errorf("seriesFilters[%d]: want is or isNot, not both", i)
		}
		if one.match, err = regexp.Compile(f.Is + f.IsNot); err != nil {
			return rule{}, fmt.Errorf("seriesFilters[%d]: %w", i, err)
		}
		r.filters = append(r.filters, one)
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

// seriesQuery is a name, conditions in braces, or both.
var seriesQuery = regexp.MustCompile(`^\s*([a-zA-Z_:][a-zA-Z0-9_:]*)?\s*(?:\{(.*)\})?\s*$`)

// parseSeriesQuery returns which series a rule is about. Its other conditions find these, and are no part of the rule's queries: what is to be
// asked of the series is all in metricsQuery.
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
