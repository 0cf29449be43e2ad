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
)

// nameMapping maps the name of a series to that of a metric.
type nameMapping struct {
	matches *regexp.Regexp
	as      string
}

func newNameMapping(c nameConfig) (nameMapping, error) {
	if c.Matches == "" {
		c.Matches = ".*"
	}

	re, err := regexp.Compile(c.Matches)
	if err != nil {
		return nameMapping{}, fmt.Errorf("name.matches: %w", err)
	}

	n := nameMapping{matches: re, as: c.As}
	if n.as == "" {
		switch re.NumSubexp() {
		case 0:
			n.as = "$0"
		case 1:
			n.as = "$1"
		default:
			return nameMapping{}, errors.New("name.as is needed where name.matches has several groups")
		}
	}

	return n, nil
}

// metric returns the name of the metric of a series; ok is false if the rule does not match the series.
func (n nameMapping) metric(series string) (name string, ok bool) {
	at := n.matches.FindStringSubmatchIndex(series)
	if at == nil {
		return "", false
	}

	return string(n.matches.ExpandString(nil, n.as, series, at)), true
}

// isConstant reports whether each series that the mapping matches has the same name.
func (n nameMapping) isConstant() bool { return !strings.Contains(n.as, "$") }

// plainMatches and plainAs match mappings that can be reversed: literal text around one group, in the series name and in the new name.
var (
	plainMatches = regexp.MustCompile(`^\^?([a-zA-Z0-9_:]*)\((\.[*+])\)([a-zA-Z0-9_:]*)\$?$`)
	plainAs      = regexp.MustCompile(`^([a-zA-Z0-9_:]*)\$(?:\{1\}|1)([a-zA-Z0-9_:]*)$`)
)

// series returns a name of a series that metric maps to the given name; ok is false where the mapping cannot be reversed.
func (n nameMapping) series(metric string) (string, bool) {
	if n.matches.String() == ".*" && (n.as == "$0" || n.as == "${0}") {
		return metric, true
	}

	from := plainMatches.FindStringSubmatch(n.matches.String())
	to := plainAs.FindStringSubmatch(n.as)
	if from == nil || to == nil {
		return "", false
	}

	rest, ok := strings.CutPrefix(metric, to[1])
	if !ok {
		return "", false
	}

	if rest, ok = strings.CutSuffix(rest, to[2]); !ok {
		return "", false
	}

	series := from[1] + rest + from[3]
	restored, ok := n.metric(series)
	return series, ok && restored == metric
}

// labelMapping maps resources to the labels that contain their names.
type labelMapping struct {
	overrides []override // sorted by label
	template  *template.Template
}

// override is a label with the names of the objects of a resource.
type override struct {
	label    string
	resource resourceName
}

func newLabelMapping(c labelsConfig) (labelMapping, error) {
	var l labelMapping
	for _, label := range slices.Sorted(maps.Keys(c.Overrides)) {
		resource := c.Overrides[label]
		if resource.Resource == "" {
			return labelMapping{}, fmt.Errorf("resources.overrides[%s]: the resource is missing", label)
		}

		l.overrides = append(l.overrides, override{label, resource})
	}

	if c.Template == "" {
		return l, nil
	}

	t, err := template.New("resources").Delims("<<", ">>").Option("missingkey=error").Parse(c.Template)
	if err != nil {
		return labelMapping{}, fmt.Errorf("resources.template: %w", err)
	}

	l.template = t
	if _, err := l.templateLabel(Resource{Singular: podLabel}); err != nil {
		return labelMapping{}, fmt.Errorf("resources.template: %w", err)
	}

	return l, nil
}

// isEmpty reports whether no resource has a label.
func (l labelMapping) isEmpty() bool { return len(l.overrides) == 0 && l.template == nil }

// label returns the label of a resource; ok is false if the rule has none.
func (l labelMapping) label(resource Resource) (label string, ok bool) {
	for _, o := range l.overrides {
		if resource.is(o.resource) {
			return o.label, true
		}
	}

	if l.template == nil {
		return resource.Singular, false
	}

	label, err := l.templateLabel(resource)
	return label, err == nil
}

func (l labelMapping) templateLabel(resource Resource) (string, error) {
	group := strings.NewReplacer(".", "_", "-", "_").Replace(resource.Group)

	var b strings.Builder
	if err := l.template.Execute(&b, struct{ Group, Resource string }{group, resource.Singular}); err != nil {
		return "", err
	}

	if b.Len() == 0 {
		return "", errors.New("the label is empty")
	}

	return b.String(), nil
}
