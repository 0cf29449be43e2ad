// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"context"
	"fmt"
	"iter"
	"slices"

	"crane.io/crane/internal/metrics"
	"crane.io/crane/pkg/units"
)

const (
	// heapLiveMetric and heapMaxMetric are named by Micrometer (Spring Boot, Quarkus). Memory pools without a limit export -1.
	heapLiveMetric = "jvm_gc_live_data_size_bytes"
	heapMaxMetric  = "jvm_memory_max_bytes"
)

// eventReader reads OOM kills and Java heaps. It implements metrics.OOMReader and metrics.HeapReader.
type eventReader struct {
	*queries

	owners *ownerReader
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

		in, err := e.owners.clusters.narrow(ctx, newScope(namespaces))
		if err != nil {
			yield(metrics.Heap{}, err)
			return
		}

		found, err := e.heapSizes(ctx, w, in)
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
