// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package promadapter

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"crane.io/crane/internal/metrics/prometheus"
)

// maxSeries bounds the series names that a rule can find. A rule with more would select every metric of a server.
const maxSeries = 10_000

// Listing holds the series that each rule finds on a server, by metric. A nil map means that the rule is not listed. It is immutable.
type Listing struct {
	custom, external []map[string]string // by rule: metric to series
	unused           []IneffectiveRule
}

// List queries a server for the series names of each rule. ask evaluates PromQL and returns the names in the result. A rule whose query
// fails keeps its entry of before, a listing by the same rules, and the returned error names the rule.
func (r *Rules) List(ctx context.Context, before *Listing, ask func(ctx context.Context, expr string) ([]string, error)) (*Listing, error) {
	return r.ListSince(ctx, 0, before, ask)
}

// ListSince is List with the series that have samples within an age; 0 means those with a value now, as PromQL defines it.
func (r *Rules) ListSince(
	ctx context.Context, maxAge time.Duration, before *Listing, ask func(ctx context.Context, expr string) ([]string, error),
) (*Listing, error) {
	out := &Listing{}
	var errs []error
	list := func(rules []rule, previous []map[string]string) []map[string]string {
		found := make([]map[string]string, len(rules))
		for i := range rules {
			names, err := ask(ctx, rules[i].listingExpr(maxAge))
			if err == nil && len(names) > maxSeries {
				err = tooManySeriesError(len(names))
			}

			// A query that fails keeps the earlier names of its rule: metrics do not vanish with one failure.
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", rules[i].name, err))
				if len(previous) == len(rules) {
					found[i] = previous[i]
				}

				// A rule that cannot be listed must not keep its possible metrics from the other rules for ever.
				if len(found[i]) == 0 && isPermanent(err) {
					found[i] = map[string]string{}
					out.unused = append(out.unused, IneffectiveRule{rules[i].name, ReasonNotListed})
				}

				continue
			}

			found[i] = rules[i].metrics(names)
			switch {
			case len(names) == 0:
				out.unused = append(out.unused, IneffectiveRule{rules[i].name, ReasonNoSeries})
			case len(found[i]) == 0:
				out.unused = append(out.unused, IneffectiveRule{rules[i].name, ReasonNoMatch})
			}
		}

		return found
	}

	if before == nil {
		before = &Listing{}
	}

	out.custom = list(r.custom, before.custom)
	out.external = list(r.external, before.external)
	return out, errors.Join(errs...)
}

// tooManySeriesError is the number of series names that a rule finds, which is more than maxSeries.
type tooManySeriesError int

// Error implements error.
func (e tooManySeriesError) Error() string {
	return fmt.Sprintf("seriesQuery finds %d series names, more than %d", int(e), maxSeries)
}

// isPermanent reports whether a rule cannot be listed until it is changed: the server is there, and refuses its seriesQuery.
func isPermanent(err error) bool {
	if tooMany := tooManySeriesError(0); errors.As(err, &tooMany) {
		return true
	}

	refusal := new(prometheus.Error)
	return errors.As(err, &refusal) && refusal.Kind == prometheus.Refused
}

// Reasons why a rule has no effect.
const (
	// ReasonRefused means that the rule is invalid.
	ReasonRefused = "refused"
	// ReasonNoSeries means that its seriesQuery finds no series.
	ReasonNoSeries = "no_series"
	// ReasonNoMatch means that its filters and its name leave none of the series.
	ReasonNoMatch = "no_match"
	// ReasonNotListed means that the server refuses its seriesQuery, or that it finds too many series.
	ReasonNotListed = "not_listed"
)

// IneffectiveRule is a rule that defines no metric.
type IneffectiveRule struct {
	// Rule is the rule as in the configuration, for instance rules[2].
	Rule string
	// Reason is ReasonRefused, ReasonNoSeries, ReasonNoMatch or ReasonNotListed.
	Reason string
}

// Ineffective returns the rules that define no metric, as of a listing; nil for those that are refused alone.
func (r *Rules) Ineffective(l *Listing) []IneffectiveRule {
	var out []IneffectiveRule
	if r != nil && r.refused != nil {
		for _, name := range r.refused.Names {
			out = append(out, IneffectiveRule{name, ReasonRefused})
		}
	}

	if l != nil {
		out = append(out, l.unused...)
	}

	return out
}

// metrics maps the metrics that a rule defines to their series. Of two series with the same metric the first by name counts. Series with
// a name that could end a string are omitted: a template contains the name verbatim, and targets choose it.
func (r *rule) metrics(series []string) map[string]string {
	out := map[string]string{}
	for _, s := range slices.Sorted(slices.Values(series)) {
		if !metricName.MatchString(s) && (!quotedName.MatchString(s) || !utf8.ValidString(s)) || !r.series.matches(s) || !r.passes(s) {
			continue
		}

		metric, ok := r.naming.metric(s)
		if _, twice := out[metric]; ok && metric != "" && !twice {
			out[metric] = s
		}
	}

	return out
}

// Equal reports whether two listings hold the same series; nil holds none.
func (l *Listing) Equal(other *Listing) bool {
	if l == nil || other == nil {
		return l == other
	}

	same := func(a, b []map[string]string) bool { return slices.EqualFunc(a, b, maps.Equal) }
	return same(l.custom, other.custom) && same(l.external, other.external)
}

// ListedMetric is a metric with series on the server.
type ListedMetric struct {
	Metric string
	// Resources are the resources that the rule has labels for, as the configuration names them; empty for external metrics.
	Resources []schema.GroupResource
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
func commonResources() []schema.GroupResource {
	return []schema.GroupResource{
		{Resource: "namespace"}, {Resource: "pod"}, {Resource: "node"}, {Resource: "service"}, {Group: "batch", Resource: "job"}, {Group: "apps", Resource: "deployment"},
	}
}

// resources returns the resources that have labels, as the configuration names them.
func (l labelMapping) resources() []schema.GroupResource {
	var out []schema.GroupResource
	for _, o := range l.overrides {
		out = append(out, schema.GroupResource{Group: o.resource.Group, Resource: guessSingular(strings.ToLower(o.resource.Resource))})
	}

	if l.template != nil {
		out = append(out, commonResources()...)
	}

	slices.SortFunc(out, func(a, b schema.GroupResource) int { return strings.Compare(a.String(), b.String()) })
	return slices.Compact(out)
}

// listingExpr returns the query that counts the series of a rule by name.
func (r *rule) listingExpr(maxAge time.Duration) string {
	selector := r.listSelector
	if maxAge > 0 {
		selector = fmt.Sprintf("last_over_time(%s[%dms])", selector, maxAge.Milliseconds())
	}

	return "count by (__name__) (" + selector + ")"
}
