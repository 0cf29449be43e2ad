// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package noderesourcetopology

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	topology "crane.io/crane/api/topology/v1alpha1"
)

func TestCompile(t *testing.T) {
	o := nrt("n", 8)
	o.Zones[0].Resources.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("7500m"), corev1.ResourceMemory: resource.MustParse("1Gi")}
	o.Zones[0].Resources.ReservedCPUNums = 2
	o.Zones[0].Costs = []topology.CostInfo{{Name: "node0", Value: 10}}

	o.Zones = append(o.Zones, topology.Zone{Name: "socket0", Type: topology.ZoneTypeSocket}, topology.Zone{Name: "node1", Type: topology.ZoneTypeNode})
	c, err := compile(o)
	if err != nil {
		t.Fatalf("compile: %v, want no error", err)
	}

	if len(c.zones) != 2 || c.zones[0].Usable.String() != "cpu=6, memory=1073741824" || !c.managed || !c.singleZone {
		t.Errorf("compile = %+v, want two managed zones, the first with 6 CPUs and 1 GiB, pods on a single zone", c)
	}

	for what, breakIt := range map[string]func(*topology.NodeResourceTopology){
		"negative": func(o *topology.NodeResourceTopology) {
			o.Zones[0].Resources.Capacity[corev1.ResourceCPU] = resource.MustParse("-1")
		},
		"huge": func(o *topology.NodeResourceTopology) {
			o.Zones[0].Resources.Allocatable = corev1.ResourceList{"memory": resource.MustParse("1e2000000000")}
		},
		"twice": func(o *topology.NodeResourceTopology) { o.Zones = append(o.Zones, o.Zones[0]) },
	} {
		o := nrt("n", 8)
		breakIt(o)

		if _, err := compile(o); err == nil {
			t.Errorf("%s: compile returned no error, want one", what)
		}
	}
}

// BenchmarkFilter measures Filter on a node with an unchanged view, and on one whose view changes each time.
func BenchmarkFilter(b *testing.B) {
	f := newPlugin(b, nrt("n", 64, 64))
	for i := range 30 {
		pod := newPod(string(rune('a'+i)), "1")
		if s := f.reserve(b, pod, "n"); !s.IsSuccess() {
			b.Fatalf("Reserve of %s = %v, want success", pod.Name, s)
		}

		f.bound(pod, "n")
	}

	pod := newPod("p", "2")
	state, _ := f.filter(b, pod, "n")
	info := f.info("n")
	b.Run("same", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			f.Filter(b.Context(), state, pod, info)
		}
	})

	b.Run("changed", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			info.generation++
			f.Filter(b.Context(), state, pod, info)
		}
	})
}
