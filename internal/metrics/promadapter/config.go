// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package promadapter

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	yamlnode "sigs.k8s.io/yaml/goyaml.v3"

	"crane.io/crane/internal/metrics/prometheus"
)

// unknownFields are the fields of a rule that the format does not have: a rule with a misspelled one would do something else than its author means.
type unknownFields map[string]any

type ruleConfig struct {
	SeriesQuery   string         `yaml:"seriesQuery"`
	SeriesFilters []filterConfig `yaml:"seriesFilters"`
	Resources     labelsConfig   `yaml:"resources"`
	Name          nameConfig     `yaml:"name"`
	MetricsQuery  string         `yaml:"metricsQuery"`
	Unknown       unknownFields  `yaml:",inline"`
}

func (c ruleConfig) unknown() []unknownFields {
	out := append(c.Resources.unknown(), c.Unknown, c.Name.Unknown)
	for _, f := range c.SeriesFilters {
		out = append(out, f.Unknown)
	}

	return out
}

type filterConfig struct {
	Is      string        `yaml:"is"`
	IsNot   string        `yaml:"isNot"`
	Unknown unknownFields `yaml:",inline"`
}

type nameConfig struct {
	Matches string        `yaml:"matches"`
	As      string        `yaml:"as"`
	Unknown unknownFields `yaml:",inline"`
}

type labelsConfig struct {
	Template   string                  `yaml:"template"`
	Overrides  map[string]resourceName `yaml:"overrides"`
	Namespaced *bool                   `yaml:"namespaced"`
	Unknown    unknownFields           `yaml:",inline"`
}

func (c labelsConfig) unknown() []unknownFields {
	out := []unknownFields{c.Unknown}
	for _, name := range c.Overrides {
		out = append(out, name.Unknown)
	}

	return out
}

// resourceName names a resource in the singular or the plural. An empty group is that of the core, or whichever has the resource.
type resourceName struct {
	Group    string        `yaml:"group"`
	Resource string        `yaml:"resource"`
	Unknown  unknownFields `yaml:",inline"`
}

type resourceConfig struct {
	ContainerQuery string        `yaml:"containerQuery"`
	NodeQuery      string        `yaml:"nodeQuery"` // of the metrics of nodes, which are not forecast
	Resources      labelsConfig  `yaml:"resources"`
	ContainerLabel string        `yaml:"containerLabel"`
	Unknown        unknownFields `yaml:",inline"`
}

func (c resourceConfig) unknown() []unknownFields { return append(c.Resources.unknown(), c.Unknown) }

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
	invalid := &InvalidRulesError{Counts: map[string]int{}}
	fields, err := parseDocument(data, invalid)
	if err != nil {
		return nil, fmt.Errorf("prometheus-adapter's configuration: %w", err)
	}

	out := &Rules{resource: map[string]resourceRule{}, extra: extra}
	seen := map[string]bool{}
	for _, f := range fields {
		if seen[f.key] {
			invalid.add(listAll, f.key, errors.New("the field is there twice: the first one is in force"))
			continue
		}

		seen[f.key] = true
		switch f.key {
		case listRules:
			out.custom = parseRules(f.key, f.value, extra, invalid)
		case listExternalRules:
			out.external = parseRules(f.key, f.value, extra, invalid)
		case listResourceRules:
			out.resource = parseResourceRules(f.value, invalid)
		default:
			invalid.add(listAll, f.key, errors.New("unknown field: want rules, externalRules or resourceRules"))
		}
	}

	if len(invalid.errs) > 0 {
		out.refused = invalid
	}

	return out, nil
}

// field is a field of a mapping in YAML.
type field struct {
	key   string
	value *yamlnode.Node
}

// parseDocument returns the fields of the first document. The nodes keep what belongs to one rule apart from the others, and the text of
// scalars: the label y is no boolean.
func parseDocument(data []byte, invalid *InvalidRulesError) ([]field, error) {
	decoder := yamlnode.NewDecoder(bytes.NewReader(data))

	var document yamlnode.Node
	err := decoder.Decode(&document)
	if errors.Is(err, io.EOF) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}

	err = decoder.Decode(&yamlnode.Node{})
	if err == nil {
		invalid.add(listAll, "document 2", errors.New("a configuration has one document of YAML"))
	} else if !errors.Is(err, io.EOF) {
		return nil, err
	}

	return mappingFields(document.Content[0])
}

// resolved returns the node that an alias stands for.
func resolved(node *yamlnode.Node) *yamlnode.Node {
	if node.Kind == yamlnode.AliasNode {
		return node.Alias
	}

	return node
}

func isNull(node *yamlnode.Node) bool {
	return node.Kind == yamlnode.ScalarNode && node.ShortTag() == "!!null"
}

// mappingFields returns the fields of a mapping in order, none of null.
func mappingFields(node *yamlnode.Node) ([]field, error) {
	node = resolved(node)
	if isNull(node) {
		return nil, nil
	}

	if node.Kind != yamlnode.MappingNode {
		return nil, fmt.Errorf("line %d: want fields", node.Line)
	}

	const perField = 2 // The nodes of a mapping are keys and values by turns.

	var out []field
	for pair := range slices.Chunk(node.Content, perField) {
		out = append(out, field{pair[0].Value, pair[1]})
	}

	return out, nil
}

func parseRules(list string, node *yamlnode.Node, extra []prometheus.Matcher, invalid *InvalidRulesError) []rule {
	node = resolved(node)
	if isNull(node) {
		return nil
	}

	if node.Kind != yamlnode.SequenceNode {
		invalid.add(list, list, fmt.Errorf("line %d: want a list of rules", node.Line))
		return nil
	}

	var out []rule
	for i, item := range node.Content {
		name := fmt.Sprintf("%s[%d]", list, i)

		var c ruleConfig
		err := decodeStrict(item, &c)
		if err != nil {
			invalid.add(list, name, err)
			continue
		}

		parsed, err := newRule(list, c, extra)
		if err != nil {
			invalid.add(list, name, err)
			continue
		}

		parsed.name = name
		out = append(out, parsed)
	}

	return out
}

func parseResourceRules(node *yamlnode.Node, invalid *InvalidRulesError) map[string]resourceRule {
	out := map[string]resourceRule{}
	fields, err := mappingFields(node)
	if err != nil {
		invalid.add(listResourceRules, listResourceRules, err)
		return out
	}

	for _, f := range fields {
		name := listResourceRules + "." + f.key
		switch f.key {
		case "window":
			continue // of the values that the metrics API of resources reports
		case "cpu", "memory":
		default:
			invalid.add(listResourceRules, name, errors.New("unknown field: want cpu, memory or window"))
			continue
		}

		var c resourceConfig
		err := decodeStrict(f.value, &c)
		if err != nil {
			invalid.add(listResourceRules, name, err)
			continue
		}

		if c.ContainerQuery == "" {
			continue
		}

		parsed, err := newResourceRule(c)
		if err != nil {
			invalid.add(listResourceRules, name, err)
			continue
		}

		out[f.key] = parsed
	}

	return out
}

// decodeStrict refuses fields that are unknown or there twice.
func decodeStrict(node *yamlnode.Node, out interface{ unknown() []unknownFields }) error {
	if err := node.Decode(out); err != nil {
		return errors.New(strings.Join(strings.Fields(err.Error()), " "))
	}

	for _, fields := range out.unknown() {
		if len(fields) > 0 {
			return fmt.Errorf("unknown field %q", slices.Sorted(maps.Keys(fields))[0])
		}
	}

	return nil
}
