// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"testing"

	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/pkg/rightsize"
)

// TestJVM checks that the maximum heap size is read from flags and the live heap from metrics, and that the share is
// derived from the current limit without flags, beside the maximum.
func TestJVM(t *testing.T) {
	const gib = 1 << 30
	flags := func(j rightsize.JVM) *rightsize.JVM { return &j }
	limited := workload.Resources{Memory: 4 * gib}
	for name, c := range map[string]struct {
		flags  *rightsize.JVM
		limits workload.Resources
		said   []metrics.Heap
		want   *rightsize.JVM
	}{
		"nothing":                   {nil, limited, nil, nil},
		"flags alone":               {flags(rightsize.JVM{MaxHeap: gib}), limited, nil, flags(rightsize.JVM{MaxHeap: gib})},
		"flags and live data":       {flags(rightsize.JVM{MaxRAMPercentage: 0.5}), limited, []metrics.Heap{{Live: gib}}, flags(rightsize.JVM{MaxRAMPercentage: 0.5, PeakHeap: gib})},
		"the flag bounds":           {flags(rightsize.JVM{MaxHeap: 2 * gib}), limited, []metrics.Heap{{Max: gib, Live: 5}}, flags(rightsize.JVM{MaxHeap: 2 * gib, PeakHeap: 5})},
		"a share, or a hidden flag": {nil, limited, []metrics.Heap{{Max: gib, Live: gib / 2}, {Max: gib, Live: gib / 4}}, flags(rightsize.JVM{MaxHeap: gib, MaxRAMPercentage: 0.25, PeakHeap: gib / 2})},
		"a larger heap than -Xmx":   {flags(rightsize.JVM{MaxHeap: gib}), limited, []metrics.Heap{{Max: 3 * gib, Live: 5}}, flags(rightsize.JVM{MaxHeap: 3 * gib, PeakHeap: 5})},
		"the share of the flag":     {flags(rightsize.JVM{MaxRAMPercentage: 0.5}), limited, []metrics.Heap{{Max: 2*gib - 1<<20, Live: 5}}, flags(rightsize.JVM{MaxRAMPercentage: 0.5, PeakHeap: 5})},
		"not the share of a flag":   {flags(rightsize.JVM{MaxRAMPercentage: 0.5}), limited, []metrics.Heap{{Max: 3 * gib, Live: 5}}, flags(rightsize.JVM{MaxHeap: 3 * gib, MaxRAMPercentage: 0.5, PeakHeap: 5})},
		"no limit":                  {nil, workload.Resources{}, []metrics.Heap{{Max: gib, Live: gib / 2}}, flags(rightsize.JVM{MaxHeap: gib, PeakHeap: gib / 2})},
		"larger than the limit":     {nil, workload.Resources{Memory: gib}, []metrics.Heap{{Max: 2 * gib, Live: gib / 2}}, flags(rightsize.JVM{MaxHeap: 2 * gib, PeakHeap: gib / 2})},
		"of another workload":       {nil, limited, []metrics.Heap{{Key: key("shop", "StatefulSet", "web", "web-0", "app"), Max: gib}}, nil},
		"live data are unknown":     {nil, limited, []metrics.Heap{{Max: gib}}, flags(rightsize.JVM{MaxHeap: gib, MaxRAMPercentage: 0.25})},
		"nothing that is bounded":   {nil, limited, []metrics.Heap{{}}, nil},
	} {
		u := &Usage{heaps: map[container]heapSizes{}, requested: map[identity]bool{identityOf(web().Ref): true}}
		for _, h := range c.said {
			if h.Key.Pod == "" {
				h.Key = key("shop", "Deployment", "web", "web-1", "app")
			}
			u.addHeap(h)
		}

		got := u.jvm(web().Ref, workload.Container{Name: "app", JVM: c.flags, Limits: c.limits})
		if (got == nil) != (c.want == nil) || got != nil && *got != *c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
