// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"crane.io/crane/internal/metrics"
	"crane.io/crane/pkg/units"
)

const (
	// oomReasonMetric and restartsMetric are exported by kube-state-metrics.
	oomReasonMetric = "kube_pod_container_status_last_terminated_reason"
	restartsMetric  = "kube_pod_container_status_restarts_total"

	// heapLiveMetric and heapMaxMetric are named by Micrometer (Spring Boot, Quarkus). Memory pools without a limit export -1.
	heapLiveMetric = "jvm_gc_live_data_size_bytes"
	heapMaxMetric  = "jvm_memory_max_bytes"
)

// eventReader reads OOM kills and Java heaps. It implements metrics.OOMReader and metrics.HeapReader.
type eventReader struct {
	*queries

	owners *ownerReader
}

// OOMKills implements metrics.OOMReader. A kill is a restart within a step after which the last termination reason of the container is
// OOMKilled; several within one step count as one.
func (e *eventReader) OOMKills(ctx context.Context, w metrics.Window, namespaces []string) iter.Seq2[metrics.OOMKill, error] {
	return func(yield func(metrics.OOMKill, error) bool) {
		if w.Step == 0 {
			w.Step = time.Hour
		}

		if err := checkStep(w.Step); err != nil {
			yield(metrics.OOMKill{}, fmt.Errorf("OOM kills: %w", err))
			return
		}

		from := ceilTime(w.Start, w.Step)
		to := w.End.UTC().Truncate(w.Step)
		if !from.Before(to) {
			return
		}

		reason := Matcher{Label: "reason", Op: "=", Value: "OOMKilled"}
		in, err := e.scopeOf(ctx, namespaces, e.expr.selector(oomReasonMetric, reason), from, to)
		if err != nil {
			yield(metrics.OOMKill{}, err)
			return
		}

		if len(in.names) == 0 {
			return
		}

		// One query covers one day, which keeps its result small.
		for from.Before(to) {
			end := from.Truncate(day).Add(day)
			if end.After(to) {
				end = to
			}

			kills, err := e.oomKillsOf(ctx, metrics.Window{Start: from, End: end, Step: w.Step}, in)
			if err != nil {
				yield(metrics.OOMKill{}, fmt.Errorf("OOM kills on %s: %w", from.Format(time.DateOnly), err))
				return
			}

			for _, k := range kills {
				if !yield(k, nil) {
					return
				}
			}

			from = end
		}
	}
}

// oomKillsOf reads the kills of one day.
func (e *eventReader) oomKillsOf(ctx context.Context, w metrics.Window, in scope) ([]metrics.OOMKill, error) {
	// The value at t covers (t-step, t].
	shifted := metrics.Window{Start: w.Start.Add(w.Step), End: w.End.Add(w.Step), Step: w.Step}
	var found []metrics.LabeledSeries

	err := e.eachBatch(ctx, in, func(matchers []Matcher) error {
		reason := append([]Matcher{{Label: "reason", Op: "=", Value: "OOMKilled"}}, matchers...)
		query := fmt.Sprintf("%s (%s == 1) and %s (increase(%s[%s]) > 0)", byContainerLabels, e.expr.selector(oomReasonMetric, reason...),
			byContainerLabels, e.expr.selector(restartsMetric, matchers...), openRange(w.Step))
		list, err := e.Range(ctx, query, shifted)
		found = append(found, list...)

		return err
	})

	if err != nil || len(found) == 0 {
		return nil, err
	}

	namespaces := make([]string, len(found))
	for i, l := range found {
		namespaces[i] = l.Labels["namespace"]
	}

	owners, err := e.owners.read(ctx, w.Start, w.End, newScope(namespaces))
	if err != nil {
		return nil, err
	}

	var out []metrics.OOMKill
	for _, l := range found {
		ref, node := owners.resolve(l.Labels["namespace"], l.Labels["pod"])
		key := metrics.ContainerKey{
			Workload:  ref,
			Pod:       l.Labels["pod"],
			Container: l.Labels["container"],
			Node:      node,
		}

		for i, v := range l.Values {
			if v > 0 {
				out = append(out, metrics.OOMKill{Key: key, Time: l.Time(i).Add(-w.Step)})
			}
		}
	}

	return out, nil
}

// Heaps implements metrics.HeapReader with two queries, and those for owners where there is a result. Series need the labels namespace, pod
// and container, as a PodMonitor or a ServiceMonitor sets them.
func (e *eventReader) Heaps(ctx context.Context, w metrics.Window, namespaces []string) iter.Seq2[metrics.Heap, error] {
	return func(yield func(metrics.Heap, error) bool) {
		if now := e.now(); now.Before(w.End) {
			w.End = now
		}

		if !w.Start.Before(w.End) {
			return
		}

		found, err := e.heapSizes(ctx, w, newScope(namespaces))
		if err != nil {
			yield(metrics.Heap{}, err)
			return
		}

		if len(found) == 0 {
			return
		}

		// Owners are read only in namespaces with heaps, which may be few.
		var withHeap []string
		for key := range found {
			withHeap = append(withHeap, key.namespace)
		}

		owners, err := e.owners.read(ctx, w.Start, w.End, newScope(withHeap))
		if err != nil {
			yield(metrics.Heap{}, err)
			return
		}

		for key, h := range found {
			ref, node := owners.resolve(key.namespace, key.pod)
			h.Key = metrics.ContainerKey{
				Workload:  ref,
				Pod:       key.pod,
				Container: key.container,
				Node:      node,
			}
			if !yield(h, nil) {
				return
			}
		}
	}
}

// heapSizes reads the heaps of containers, without their keys.
func (e *eventReader) heapSizes(ctx context.Context, w metrics.Window, in scope) (map[rowKey]metrics.Heap, error) {
	found := map[rowKey]metrics.Heap{}
	err := e.eachBatch(ctx, in, func(matchers []Matcher) error {
		labeled := append([]Matcher{{Label: "container", Op: "!=", Value: ""}, {Label: "pod", Op: "!=", Value: ""}}, matchers...)
		heap := append(slices.Clone(labeled), Matcher{Label: "area", Op: "=", Value: "heap"})

		live, err := e.Instant(ctx, fmt.Sprintf("%s (max_over_time(%s[%s]))",
			byContainerLabels, e.expr.selector(heapLiveMetric, labeled...), promDuration(w.End.Sub(w.Start))), w.End)
		if err != nil {
			return err
		}

		// The maximum of a heap is the sum over its pools; a pool without a limit exports -1.
		limits, err := e.Instant(ctx, fmt.Sprintf("%s (sum by (namespace, pod, container, instance, job) (last_over_time(%s[%s]) > 0))",
			byContainerLabels, e.expr.selector(heapMaxMetric, heap...), promDuration(day)), w.End)
		if err != nil {
			return err
		}

		for _, s := range live {
			if key, ok := heapKey(s); ok {
				h := found[key]
				h.Live = units.Bytes(s.Value)
				found[key] = h
			}
		}

		for _, s := range limits {
			if key, ok := heapKey(s); ok {
				h := found[key]
				h.Max = units.Bytes(s.Value)
				found[key] = h
			}
		}

		return nil
	})

	return found, err
}

// heapKey returns the container of a heap sample; ok is false for an incomplete key or a value out of range.
func heapKey(s metrics.Sample) (key rowKey, ok bool) {
	key = rowKey{s.Labels["namespace"], s.Labels["pod"], s.Labels["container"]}
	return key, s.Value > 0 && s.Value <= maxAmount && key.namespace != "" && key.pod != "" && key.container != ""
}
