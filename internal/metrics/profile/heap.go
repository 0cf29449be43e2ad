// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/series"
)

// heapSizes is what the Java runtimes of a container's pods said of their heaps at most.
type heapSizes struct{ max, live series.Bytes }

func (u *Usage) addHeap(h metrics.Heap) error {
	id := identityOf(h.Key.Workload)
	if _, wanted := u.byWorkload[id]; wanted {
		key := container{identity: id, name: h.Key.Container}
		known := u.heaps[key]
		u.heaps[key] = heapSizes{max: max(known.max, h.Max), live: max(known.live, h.Live)}
	}
	return nil
}

// jvm puts together what flags and metrics say of a Java heap. Where no flag bounds the heap, the JVM takes a share of the
// limit, and what it has now tells which: a limit that falls takes heap away.
func (u *Usage) jvm(ref workload.Ref, c workload.Container) *rightsize.JVM {
	said, known := u.heaps[container{identity: identityOf(ref), name: c.Name}]
	if !known {
		return c.JVM
	}
	var out rightsize.JVM
	if c.JVM != nil {
		out = *c.JVM
	}
	out.PeakHeap = said.live
	switch {
	case out.MaxHeap > 0 || out.MaxRAMPercentage > 0:
	case c.Limits.Memory > 0 && said.max > 0 && said.max <= c.Limits.Memory && said.live > 0:
		out.MaxRAMPercentage = series.Ratio(said.max) / series.Ratio(c.Limits.Memory)
	default:
		out.MaxHeap = said.max
	}
	if out == (rightsize.JVM{}) {
		return nil
	}
	return &out
}
