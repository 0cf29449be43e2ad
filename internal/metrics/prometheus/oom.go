// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"context"
	"fmt"
	"slices"
	"time"

	"crane.io/crane/internal/metrics"
)

// Metrics of kube-state-metrics about ends of containers.
const (
	oomReasonMetric = "kube_pod_container_status_last_terminated_reason"
	restartsMetric  = "kube_pod_container_status_restarts_total"
)

// OOMKills implements metrics.OOMReader. A kill is a restart within a stretch of step after which the last end of the
// container was for lack of memory; several within one stretch count as one.
func (s *Source) OOMKills(ctx context.Context, w metrics.Window, namespaces []string, visit func(metrics.OOMKill) error) error {
	if w.Step == 0 {
		w.Step = time.Hour
	}
	if err := checkStep(w.Step); err != nil {
		return fmt.Errorf("OOM kills: %w", err)
	}
	from, to := ceilTime(w.Start, w.Step), w.End.UTC().Truncate(w.Step)
	if !from.Before(to) {
		return nil
	}
	reason := Matcher{Label: "reason", Op: "=", Value: "OOMKilled"}
	in, err := s.scopeOf(ctx, namespaces, selector(oomReasonMetric, s.matchers(reason)...), from, to)
	if err != nil || len(in.names) == 0 {
		return err
	}
	for from.Before(to) {
		end := from.Truncate(day).Add(day)
		if end.After(to) {
			end = to
		}
		if err := s.oomKillsOf(ctx, metrics.Window{Start: from, End: end, Step: w.Step}, in, visit); err != nil {
			return fmt.Errorf("OOM kills on %s: %w", from.Format(time.DateOnly), err)
		}
		from = end
	}
	return nil
}

func (s *Source) oomKillsOf(ctx context.Context, w metrics.Window, in scope, visit func(metrics.OOMKill) error) error {
	// The value at t is about (t-step, t]; its stretch begins at t-step.
	shifted := metrics.Window{Start: w.Start.Add(w.Step), End: w.End.Add(w.Step), Step: w.Step}
	var found []metrics.LabelledSeries
	err := s.eachBatch(ctx, in, func(own []Matcher) error {
		reason := append([]Matcher{{Label: "reason", Op: "=", Value: "OOMKilled"}}, own...)
		query := fmt.Sprintf("max by (namespace, pod, container) (%s == 1) and max by (namespace, pod, container) (increase(%s[%s]) > 0)",
			selector(oomReasonMetric, s.matchers(reason...)...), selector(restartsMetric, s.matchers(own...)...), openRange(w.Step))
		list, err := s.Range(ctx, query, shifted)
		found = append(found, list...)
		return err
	})
	if err != nil || len(found) == 0 {
		return err
	}
	var hit []string
	for _, l := range found {
		hit = append(hit, l.Labels["namespace"])
	}
	owners, err := s.readOwners(ctx, w.Start, w.End, scope{names: slices.Compact(slices.Sorted(slices.Values(hit)))})
	if err != nil {
		return err
	}
	for _, l := range found {
		ref, node := owners.resolve(l.Labels["namespace"], l.Labels["pod"])
		key := metrics.ContainerKey{Workload: ref, Pod: l.Labels["pod"], Container: l.Labels["container"], Node: node}
		for i, v := range l.Values {
			if !(v > 0) {
				continue
			}
			if err := visit(metrics.OOMKill{Key: key, Time: l.Time(i).Add(-w.Step)}); err != nil {
				return err
			}
		}
	}
	return nil
}
