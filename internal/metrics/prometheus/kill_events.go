// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"crane.io/crane/internal/metrics"
	"crane.io/crane/pkg/series"
	"crane.io/crane/pkg/units"
)

// oomEventsMetric counts the kills in a container by the kernel, as the kubelet exports them: also those of processes other than the first
// one of a container, which then goes on. The series of a container that ends is exported for seconds only, so that the reasons of
// kube-state-metrics are needed as well.
const oomEventsMetric = "container_oom_events_total"

// countedTimes are the times of counted kills by container.
type countedTimes map[rowKey][]time.Time

// has reports whether a kill of another source in the step from a time on is counted.
func (c countedTimes) has(kill metrics.OOMKill, step time.Duration) bool {
	key := rowKey{kill.Key.Workload.Namespace, kill.Key.Pod, kill.Key.Container}
	return slices.ContainsFunc(c[key], func(at time.Time) bool { return at.Sub(kill.Time).Abs() <= step })
}

// eventKills yields the kills by the counters of the kernel, and returns them and whether to go on. Steps end with the window, so that one query reads
// all of it.
func (e *eventReader) eventKills(ctx context.Context, w metrics.Window, in scope, yield func(metrics.OOMKill, error) bool) (countedTimes, bool) {
	steps := (w.End.Sub(w.Start) + w.Step - 1) / w.Step
	// The value at t covers (t-step, t]. The first step only shows which kills are older.
	read := metrics.Window{Start: w.End.Add(-steps * w.Step), End: w.End.Add(time.Second), Step: w.Step}

	kills, unknown, err := e.readCounters(ctx, read, in)
	if isTooLarge(err) && len(in.names) == 0 {
		// All namespaces at once are too large, and are read one by one under their names.
		in, err = e.scopeOf(ctx, nil, e.expr.containers(oomEventsMetric), read.Start, read.End)
		if err == nil {
			kills, unknown, err = e.readCounters(ctx, read, scope{names: in.names})
		}
	}

	if err == nil && len(kills) > 0 {
		err = e.completeKills(ctx, read, kills)
	}

	if err != nil {
		yield(metrics.OOMKill{}, fmt.Errorf("OOM kills by the counters of the kernel: %w", err))
		return nil, false
	}

	times := countedTimes{}
	for _, kill := range kills {
		key := rowKey{kill.Key.Workload.Namespace, kill.Key.Pod, kill.Key.Container}
		times[key] = append(times[key], kill.Time)
	}

	for namespace, reason := range unknown {
		kills = append(kills, unknownKills(namespace, reason))
	}

	for _, kill := range kills {
		if !yield(kill, nil) {
			return nil, false
		}
	}

	return times, true
}

// readCounters reads the counters of the kernel of some namespaces. It returns the kills, without what completeKills adds, and the reason by
// namespace why they are unknown.
func (e *eventReader) readCounters(ctx context.Context, w metrics.Window, in scope) (kills []metrics.OOMKill, unknown map[string]string, err error) {
	unknown = map[string]string{}
	err = e.eachBatchOr(ctx, in, func(matchers []Matcher) error {
		list, err := e.Range(ctx, e.expr.oomEvents(w.Step, matchers), w)
		if err != nil {
			return err
		}

		for _, l := range list {
			kills = append(kills, countedKills(l, w.Step)...)
		}

		return nil
	}, func(namespace string, err error) error {
		unknown[namespace] = metrics.PublicMessage(err)
		return nil
	})

	return kills, unknown, err
}

// oomEvents returns the query of the counters of a window that are above zero.
func (x expressions) oomEvents(window time.Duration, matchers []Matcher) string {
	sel := x.containers(oomEventsMetric, append([]Matcher{{Label: "pod", Op: "!=", Value: ""}}, matchers...)...)
	return fmt.Sprintf("max by (%s, id) (max_over_time(%s[%s])) > 0", byContainer, sel, openRange(window))
}

// countedKills returns a kill for each step in which the counter of a run rises. A counter that there is before the second step, or that was
// lower before, has older kills; one that falls is reset.
func countedKills(l metrics.LabeledSeries, step time.Duration) []metrics.OOMKill {
	key := rowKey{l.Labels["namespace"], l.Labels["pod"], l.Labels["container"]}
	if key.namespace == "" {
		return nil
	}

	var out []metrics.OOMKill
	last := 0.0
	seen := len(slices.DeleteFunc(slices.Clone(l.Values), series.IsGap))
	for i, v := range l.Values {
		if series.IsGap(v) || !(v > 0 && v <= maxAmount) {
			continue
		}

		if v > last && i > 0 {
			out = append(out, metrics.OOMKill{
				Key:  metrics.ContainerKey{Workload: newRef(key.namespace, "Pod", key.pod), Pod: key.pod, Container: key.container},
				Time: l.Time(i).Add(-step),
				// Limits are read at some times only, which may miss a pod of minutes.
				NoLimit: seen > 1,
			})
		}

		last = v
	}

	return out
}

// completeKills sets the limits and the owners of kills.
func (e *eventReader) completeKills(ctx context.Context, w metrics.Window, kills []metrics.OOMKill) error {
	var namespaces []string
	for _, kill := range kills {
		namespaces = append(namespaces, kill.Key.Workload.Namespace)
	}

	in := newScope(namespaces)
	start := w.Start.Add(-w.Step)
	owners, err := e.owners.read(ctx, start, w.End, in)
	if err != nil {
		return err
	}

	limits := metrics.NewCapacities()
	capacity := &capacityReader{queries: e.queries}
	err = capacity.limits(ctx, limits, start.UTC().Truncate(day), w.End, in)
	if err != nil && !isTooLarge(err) {
		return fmt.Errorf("limits of containers: %w", err)
	}

	limited := limits.NamespacesWithLimits()
	for i := range kills {
		kill := &kills[i]
		kill.Memory = units.Bytes(limits.Limit(kill.Key, metrics.Memory, kill.Time))
		kill.NoLimit = kill.NoLimit && kill.Memory == 0 && limited[kill.Key.Workload.Namespace]
		kill.Key.Workload, kill.Key.Node = owners.resolve(kill.Key.Workload.Namespace, kill.Key.Pod)
	}

	slices.SortFunc(kills, func(a, b metrics.OOMKill) int {
		return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.Key.Pod, b.Key.Pod))
	})
	return nil
}
