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

// maxSeries bounds the names of series that a rule may find. More is a rule for every metric of a server.
const maxSeries = 10_000

// Listing is which metrics there are by what a server holds. It is needed for a rule whose series do not follow from the name of a
// metric, and for whoever wants to know what there is. It is not changed after List.
type Listing struct {
	custom, external []map[string]string // by rule: metric to series
}

// List asks a server for the names of the series of each rule. ask evaluates PromQL and returns the names of the result. Where a
// rule could not be asked about, what the listing before says of it stays, if it was made by the same rules, and the error names it.
func (r *Rules) List(ctx context.Context, before *Listing, ask func(ctx context.Context, expr string) ([]string, error)) (*Listing, error) {
	out := &Listing{}
	var errs []error
	list := func(what string, rules []rule, had []map[string]string) []map[string]string {
		found := make([]map[string]string, len(rules))
		for i := range rules {
			names, err := ask(ctx, rules[i].listing)
			if err == nil && len(names) > maxSeries {
				err = fmt.Errorf("seriesQuery finds %d series names, more than %d", len(names), maxSeries)
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("%s[%d]: %w", what, i, err))
				if len(had) == len(rules) {
					found[i] = had[i]
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

// metrics are what a rule calls the series of a list; of two that it calls alike the first by name counts.
func (r *rule) metrics(series []string) map[string]string {
	out := map[string]string{}
	for _, s := range slices.Sorted(slices.Values(series)) {
		if r.series != nil && !r.series.MatchString(s) || !r.passes(s) {
			continue
		}
		metric, ok := r.name.metric(s)
		if _, twice := out[metric]; ok && metric != "" && !twice {
			out[metric] = s
		}
	}
	return out
}

// ListedMetric is a metric that a server holds series of.
type ListedMetric struct {
	Metric string
	// Resources are the singular names of resources that the rule has labels for; empty for external metrics.
	Resources []string
}

// Custom lists the custom metrics.
func (l *Listing) Custom(r *Rules) []ListedMetric { return listedMetrics(r.custom, l.custom) }

// External lists the external metrics.
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

// commonResources are tried with a template; there is no list of what it may be about.
func commonResources() []string {
	return []string{"namespace", "pod", "node", "service", "job", "deployment"}
}

// resources are singular names that a rule has labels for.
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

// listingExpr counts the series of a seriesQuery by name. The conditions that are added to every query hold here as well.
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
