// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/series"
)

// heapSizes are the largest sizes of the Java heaps of a container's pods.
type heapSizes struct{ max, live series.Bytes }

// addHeap adds the heap of a pod's container, if it belongs to a requested workload.
func (u *Usage) addHeap(h metrics.Heap) {
	if key := (container{identity: identityOf(h.Key.Workload), name: h.Key.Container}); u.includes(key) {
		known := u.heaps[key]
		u.heaps[key] = heapSizes{max: max(known.max, h.Max), live: max(known.live, h.Live)}
	}
}

// jvm combines the flags and metrics of a Java heap. Without a flag the JVM derives the maximum heap from the memory limit; the ratio of the
// two then applies to a new limit as well.
func (u *Usage) jvm(ref workload.Ref, c workload.Container) *rightsize.JVM {
	sizes, known := u.heaps[container{identity: identityOf(ref), name: c.Name}]
	if !known {
		return c.JVM
	}
	var out rightsize.JVM
	if c.JVM != nil {
		out = *c.JVM
	}
	out.PeakHeap = sizes.live
	switch {
	case out.MaxHeap > 0 || out.MaxRAMPercentage > 0:
	case c.Limits.Memory > 0 && sizes.max > 0 && sizes.max <= c.Limits.Memory && sizes.live > 0:
		out.MaxRAMPercentage = series.Ratio(sizes.max) / series.Ratio(c.Limits.Memory)
	default:
		out.MaxHeap = sizes.max
	}
	if out == (rightsize.JVM{}) {
		return nil
	}
	return &out
}
