// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package promadapter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"crane.io/crane/internal/metrics/prometheus"
)

// maxSeries bounds the series names that a rule can find. A rule with more would select every metric of a server.
const maxSeries = 10_000

// Listing holds the series that each rule finds on a server, by metric. A nil map means that the rule is not listed. It is immutable.
type Listing struct {
	custom, external []map[string]string // by rule: metric to series
}

// List queries a server for the series names of each rule. ask evaluates PromQL and returns the names in the result. A rule whose query
// fails keeps its entry of before, a listing by the same rules, and the returned error names the rule.
func (r *Rules) List(ctx context.Context, before *Listing, ask func(ctx context.Context, expr string) ([]string, error)) (*Listing, error) {
	out := &Listing{}
	var errs []error
	list := func(what string, rules []rule, previous []map[string]string) []map[string]string {
		found := make([]map[string]string, len(rules))
		for i := range rules {
			names, err := ask(ctx, rules[i].listSelector)
			if err == nil && len(names) > maxSeries {
				err = fmt.Errorf("seriesQuery finds %d series names, more than %d", len(names), maxSeries)
			}

			// A query that fails keeps the earlier names of its rule: metrics do not vanish with one failure.
			if err != nil {
				errs = append(errs, fmt.Errorf("%s[%d]: %w", what, i, err))
				if len(previous) == len(rules) {
					found[i] = previous[i]
				}

				continue
			}

			found[i] = rules[i].metrics(names)
		}

		return found
	}

	if before == nil {
		before = &Listing{}
	}

	out.custom = list("rules", r.custom, before.custom)
	out.external = list("externalRules", r.external, before.external)
	return out, errors.Join(errs...)
}

// metrics maps the metrics that a rule defines to their series. Of two series with the same metric the first by name counts. Series with
// characters that PromQL does not allow in a bare metric name are omitted: a template contains the name verbatim, and targets choose it.
func (r *rule) metrics(series []string) map[string]string {
	out := map[string]string{}
	for _, s := range slices.Sorted(slices.Values(series)) {
		if !metricName.MatchString(s) || r.series != nil && !r.series.MatchString(s) || !r.passes(s) {
			continue
		}

		metric, ok := r.name.metric(s)
		if _, twice := out[metric]; ok && metric != "" && !twice {
			out[metric] = s
		}
	}

	return out
}

// ListedMetric is a metric with series on the server.
type ListedMetric struct {
	Metric string
	// Resources are the singular names of resources that the rule has labels for; empty for external metrics.
	Resources []string
}

// Custom returns the custom metrics, sorted by name.
func (l *Listing) Custom(r *Rules) []ListedMetric { return listedMetrics(r.custom, l.custom) }

// External returns the external metrics, sorted by name.
func (l *Listing) External(r *Rules) []ListedMetric { return listedMetrics(r.external, l.external) }

func listedMetrics(rules []rule, listed []map[string]string) []ListedMetric {
	var out []ListedMetric
	for i := range rules {
		if i >= len(listed) {
			break
		}

		resources := rules[i].labels.resources()
		for metric := range listed[i] {
			out = append(out, ListedMetric{Metric: metric, Resources: resources})
		}
	}

	slices.SortFunc(out, func(a, b ListedMetric) int { return strings.Compare(a.Metric, b.Metric) })
	return out
}

// commonResources returns the resources that a label template is listed for; it applies to any.
func commonResources() []string {
	return []string{"namespace", "pod", "node", "service", "job", "deployment"}
}

// resources returns the singular names of the resources that have labels.
func (l labelMapping) resources() []string {
	var out []string
	for resource := range l.overrides {
		out = append(out, resource)
	}

	if l.template != nil {
		out = append(out, commonResources()...)
	}

	slices.Sort(out)
	return slices.Compact(out)
}

// listingExpr returns the query that counts the series of a seriesQuery by name, with the matchers that are added to every query.
func listingExpr(text string, extra []prometheus.Matcher) string {
	parts := seriesQuery.FindStringSubmatch(text)
	var conds []string
	if inner := strings.Trim(parts[2], " ,"); inner != "" {
		conds = append(conds, inner)
	}

	for _, m := range extra {
		conds = append(conds, m.String())
	}

	return "count by (__name__) (" + parts[1] + "{" + strings.Join(conds, ",") + "})"
}
