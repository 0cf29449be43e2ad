// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package promadapter

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"crane.io/crane/internal/metrics/prometheus"
)

// maxSeriesQuery bounds the text that is parsed, in bytes.
const maxSeriesQuery = 16 << 10

// nameLabel is the label with the name of a metric.
const nameLabel = labels.MetricName

// seriesSelector is a seriesQuery.
type seriesSelector struct{ matchers []*labels.Matcher }

// parseSeriesQuery parses a seriesQuery with the parser of PromQL. Its conditions select series during discovery and are not part of the
// queries of the rule, which metricsQuery defines completely.
func parseSeriesQuery(text string) (seriesSelector, error) {
	if len(text) > maxSeriesQuery {
		return seriesSelector{}, fmt.Errorf("seriesQuery: it has %d bytes, more than %d", len(text), maxSeriesQuery)
	}

	matchers, err := parser.NewParser(parser.Options{}).ParseMetricSelector(text)
	if err == nil && len(matchers) == 0 {
		err = errors.New("it has no condition")
	}
	if err != nil {
		return seriesSelector{}, fmt.Errorf("seriesQuery %q: want a metric, conditions in braces, or both: %w", text, err)
	}

	return seriesSelector{matchers: matchers}, nil
}

// matches reports whether the conditions allow the name of a series.
func (s seriesSelector) matches(name string) bool {
	return !slices.ContainsFunc(s.matchers, func(m *labels.Matcher) bool { return m.Name == nameLabel && !m.Matches(name) })
}

// literal returns the only name that the selector allows, and false where there may be several.
func (s seriesSelector) literal() (string, bool) {
	for _, m := range s.matchers {
		if m.Name == nameLabel && m.Type == labels.MatchEqual {
			return m.Value, true
		}
	}

	return "", false
}

// text returns the selector with the matchers that are added to every query.
func (s seriesSelector) text(extra []prometheus.Matcher) string {
	name, named := s.literal()
	named = named && metricName.MatchString(name)

	var parts []string
	for _, m := range s.matchers {
		// The only name stands before the braces, where it is one that PromQL allows there.
		if !named || m.Name != nameLabel || m.Type != labels.MatchEqual || m.Value != name {
			parts = append(parts, m.String())
		}
	}

	for _, m := range extra {
		parts = append(parts, m.String())
	}

	if !named {
		name = ""
	}

	return name + "{" + strings.Join(parts, ",") + "}"
}
