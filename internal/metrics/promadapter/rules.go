// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package promadapter

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"

	"sigs.k8s.io/yaml"

	"crane.io/crane/internal/metrics/prometheus"
)

// Rules are a configuration. They are immutable after Parse.
type Rules struct {
	custom, external []rule
	resource         map[string]resourceRule
	extra            []prometheus.Matcher
	refused          *InvalidRulesError // nil for none
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
	Template   string                  `json:"template"`
	Overrides  map[string]resourceName `json:"overrides"`
	Namespaced *bool                   `json:"namespaced"`
}

// resourceName names a resource in the singular or the plural. An empty group is that of the core, or whichever has the resource.
type resourceName struct {
	Group    string `json:"group"`
	Resource string `json:"resource"`
}

type resourceConfig struct {
	ContainerQuery string       `json:"containerQuery"`
	NodeQuery      string       `json:"nodeQuery"` // of the metrics of nodes, which are not forecast
	Resources      labelsConfig `json:"resources"`
	ContainerLabel string       `json:"containerLabel"`
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

// The lists of rules in a configuration.
const (
	listRules         = "rules"
	listExternalRules = "externalRules"
	listResourceRules = "resourceRules"
	// listAll counts what belongs to no list.
	listAll = "all"
)

// InvalidRulesError has the rules of a configuration that are refused.
type InvalidRulesError struct {
	// Counts are the numbers of refused rules by the key of their list.
	Counts map[string]int
	// Names are the rules as in the configuration, for instance rules[2].
	Names []string
	errs  []error
}

// Error implements error. It names each refused rule.
func (e *InvalidRulesError) Error() string { return errors.Join(e.errs...).Error() }

// Unwrap returns the error of each refused rule.
func (e *InvalidRulesError) Unwrap() []error { return e.errs }

func (e *InvalidRulesError) add(list, name string, err error) {
	e.Counts[list]++
	e.Names = append(e.Names, name)
	e.errs = append(e.errs, fmt.Errorf("%s: %w", name, err))
}

// Parse reads a configuration; extra matchers are added to each query. A rule that is invalid is left out, see Refused; the others are in
// force. An error means that the whole text is no configuration.
func Parse(data []byte, extra []prometheus.Matcher) (*Rules, error) {
	text, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return nil, fmt.Errorf("prometheus-adapter's configuration: %w", err)
	}

	var lists map[string]json.RawMessage
	if err := json.Unmarshal(text, &lists); err != nil {
		return nil, fmt.Errorf("prometheus-adapter's configuration: %w", err)
	}

	out := &Rules{resource: map[string]resourceRule{}, extra: extra}
	invalid := &InvalidRulesError{Counts: map[string]int{}}
	for _, key := range sortedKeys(lists) {
		switch key {
		case listRules:
			out.custom = parseRules(key, lists[key], extra, invalid)
		case listExternalRules:
			out.external = parseRules(key, lists[key], extra, invalid)
		case listResourceRules:
			out.resource = parseResourceRules(lists[key], invalid)
		default:
			invalid.add(listAll, key, errors.New("unknown field: want rules, externalRules or resourceRules"))
		}
	}

	if len(invalid.errs) > 0 {
		out.refused = invalid
	}

	return out, nil
}

// Refused returns an *InvalidRulesError with the rules that are not in force, nil for none.
func (r *Rules) Refused() error {
	if r == nil || r.refused == nil {
		return nil
	}

	return r.refused
}

func parseRules(list string, text json.RawMessage, extra []prometheus.Matcher, invalid *InvalidRulesError) []rule {
	var texts []json.RawMessage
	if err := json.Unmarshal(text, &texts); err != nil {
		invalid.add(list, list, err)
		return nil
	}

	var out []rule
	for i, text := range texts {
		name := fmt.Sprintf("%s[%d]", list, i)

		var c ruleConfig
		err := decodeStrict(text, &c)
		if err != nil {
			invalid.add(list, name, err)
			continue
		}

		parsed, err := newRule(c, extra)
		if err != nil {
			invalid.add(list, name, err)
			continue
		}

		parsed.name = name
		out = append(out, parsed)
	}

	return out
}

func parseResourceRules(text json.RawMessage, invalid *InvalidRulesError) map[string]resourceRule {
	out := map[string]resourceRule{}
	var texts map[string]json.RawMessage
	if err := json.Unmarshal(text, &texts); err != nil {
		invalid.add(listResourceRules, listResourceRules, err)
		return out
	}

	for _, name := range sortedKeys(texts) {
		field := listResourceRules + "." + name
		switch name {
		case "window":
			continue // of the values that the metrics API of resources reports
		case "cpu", "memory":
		default:
			invalid.add(listResourceRules, field, errors.New("unknown field: want cpu, memory or window"))
			continue
		}

		var c resourceConfig
		err := decodeStrict(texts[name], &c)
		if err != nil {
			invalid.add(listResourceRules, field, err)
			continue
		}

		if c.ContainerQuery == "" {
			continue
		}

		parsed, err := newResourceRule(c)
		if err != nil {
			invalid.add(listResourceRules, field, err)
			continue
		}

		out[name] = parsed
	}

	return out
}

// decodeStrict refuses unknown fields: a rule with a misspelled one would do something else than its author means.
func decodeStrict(text json.RawMessage, out any) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()

	return decoder.Decode(out)
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}

	slices.Sort(keys)
	return keys
}

func newRule(c ruleConfig, extra []prometheus.Matcher) (rule, error) {
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

	r.query, err = parseTemplate(c.MetricsQuery)
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

	r.query, err = parseTemplate(c.ContainerQuery)
	return r, err
}

func (r *rule) passes(series string) bool {
	return !slices.ContainsFunc(r.filters, func(f filter) bool { return f.match.MatchString(series) != f.want })
}
