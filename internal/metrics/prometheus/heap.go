// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"context"
	"fmt"
	"slices"

	"crane.io/crane/internal/metrics"
	"crane.io/crane/pkg/series"
)

// Metrics of Java's heap, as Micrometer (Spring Boot, Quarkus) names them. Pools without a bound say -1.
const (
	heapLiveMetric = "jvm_gc_live_data_size_bytes"
	heapMaxMetric  = "jvm_memory_max_bytes"
)

var _ metrics.HeapReader = (*Source)(nil)

// Heaps implements metrics.HeapReader in two queries, and those for owners where there is an answer. Series need the labels
// namespace, pod and container, as a PodMonitor or a ServiceMonitor sets them.
func (s *Source) Heaps(ctx context.Context, w metrics.Window, namespaces []string, visit func(metrics.Heap) error) error {
	if now := s.now(); now.Before(w.End) {
		w.End = now
	}
	if !w.Start.Before(w.End) {
		return nil
	}
	in := scope{names: slices.Compact(slices.Sorted(slices.Values(namespaces))), all: len(namespaces) == 0}
	found := map[rowKey]*metrics.Heap{}
	err := s.eachBatch(ctx, in, func(own []Matcher) error {
		labelled := append([]Matcher{{Label: "container", Op: "!=", Value: ""}, {Label: "pod", Op: "!=", Value: ""}}, own...)
		heap := append(slices.Clone(labelled), Matcher{Label: "area", Op: "=", Value: "heap"})
		for _, q := range []struct {
			query string
			set   func(*metrics.Heap, series.Bytes)
		}{
			{
				fmt.Sprintf("max by (namespace, pod, container) (max_over_time(%s[%s]))", selector(heapLiveMetric, s.matchers(labelled...)...), promDuration(w.End.Sub(w.Start))),
				func(h *metrics.Heap, v series.Bytes) { h.Live = v },
			},
			{
				fmt.Sprintf("max by (namespace, pod, container) (sum by (namespace, pod, container, instance, job) (last_over_time(%s[%s]) > 0))",
					selector(heapMaxMetric, s.matchers(heap...)...), promDuration(day)),
				func(h *metrics.Heap, v series.Bytes) { h.Max = v },
			},
		} {
			list, err := s.Instant(ctx, q.query, w.End)
			if err != nil {
				return err
			}
			for _, sample := range list {
				key := rowKey{sample.Labels["namespace"], sample.Labels["pod"], sample.Labels["container"]}
				if !(sample.Value > 0 && sample.Value <= maxAmount) || key.namespace == "" || key.pod == "" || key.container == "" {
					continue
				}
				if found[key] == nil {
					found[key] = &metrics.Heap{}
				}
				q.set(found[key], series.Bytes(sample.Value))
			}
		}
		return nil
	})
	if err != nil || len(found) == 0 {
		return err
	}
	owners, err := s.readOwners(ctx, w.Start, w.End, scope{names: namespacesOf(found)})
	if err != nil {
		return err
	}
	for key, h := range found {
		ref, node := owners.resolve(key.namespace, key.pod)
		h.Key = metrics.ContainerKey{Workload: ref, Pod: key.pod, Container: key.container, Node: node}
		if err := visit(*h); err != nil {
			return err
		}
	}
	return nil
}

func namespacesOf(found map[rowKey]*metrics.Heap) []string {
	var names []string
	for key := range found {
		names = append(names, key.namespace)
	}
	return slices.Compact(slices.Sorted(slices.Values(names)))
}
