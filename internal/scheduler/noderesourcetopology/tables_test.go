// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package noderesourcetopology

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/klog/v2"

	topology "crane.io/crane/api/topology/v1alpha1"
)

// amounts are CPUs, GiB of memory and MiB of huge pages.
type amounts struct{ cpu, memory, hugePages int }

func (a amounts) list() corev1.ResourceList {
	out := corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewQuantity(int64(a.cpu), resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(int64(a.memory)<<30, resource.BinarySI),
	}
	if a.hugePages > 0 {
		out["hugepages-2Mi"] = *resource.NewQuantity(int64(a.hugePages)<<20, resource.BinarySI)
	}

	return out
}

// TestSchedulerPluginsTable filters the cases of the filter test of scheduler-plugins (pkg/noderesourcetopology) about CPUs, memory and huge
// pages: the same zones, in which each amount is free, and the same pods.
func TestSchedulerPluginsTable(t *testing.T) {
	eightAndFour := []amounts{{4, 8, 0}, {8, 8, 0}}
	small := []amounts{{2, 4, 0}, {4, 4, 0}}
	smallWithPages := []amounts{{2, 4, 128}, {4, 4, 128}}
	large := []amounts{{30, 60, 384}, {32, 64, 512}}
	for name, c := range map[string]struct {
		zones, containers []amounts
		fits              bool
	}{
		"one container":         {eightAndFour, []amounts{{2, 2, 0}}, true},
		"all of a zone":         {eightAndFour, []amounts{{8, 8, 0}}, true},
		"more CPUs than a zone": {eightAndFour, []amounts{{9, 1, 0}}, false},
		// scheduler-plugins refuses it here. No zone limits the resource, and NodeResourcesFit refuses a node without it.
		"a resource that no zone has":        {eightAndFour, []amounts{{2, 1, 64}}, true},
		"huge pages":                         {smallWithPages, []amounts{{2, 2, 64}}, true},
		"more huge pages than a zone":        {smallWithPages, []amounts{{2, 2, 256}}, false},
		"three of three CPUs":                {small, []amounts{{3, 1, 0}, {3, 1, 0}, {3, 1, 0}}, false},
		"one CPU":                            {small, []amounts{{1, 1, 0}}, true},
		"three of one CPU":                   {small, []amounts{{1, 1, 0}, {1, 1, 0}, {1, 1, 0}}, true},
		"all memory of a zone":               {small, []amounts{{2, 4, 0}}, true},
		"a large pod":                        {large, []amounts{{2, 2, 0}, {4, 8, 0}, {26, 32, 512}}, true},
		"too many CPUs of a large pod":       {large, []amounts{{2, 2, 0}, {8, 8, 0}, {26, 26, 52}}, false},
		"too much memory of a large pod":     {large, []amounts{{2, 4, 0}, {4, 16, 0}, {26, 52, 52}}, false},
		"too many huge pages of a large pod": {large, []amounts{{2, 2, 0}, {4, 8, 0}, {26, 32, 3328}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			zones := nrt("n")
			for i, z := range c.zones {
				zones.Zones = append(zones.Zones, topology.Zone{Name: fmt.Sprint("node", i), Type: topology.ZoneTypeNode, Resources: &topology.ResourceInfo{Capacity: z.list()}})
			}

			pod := newPod("p", "1")
			pod.Spec.Containers = nil
			for i, container := range c.containers {
				pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{
					Name: fmt.Sprint("c", i), Resources: corev1.ResourceRequirements{Requests: container.list(), Limits: container.list()},
				})
			}

			f := newPlugin(t)
			f.aware = []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, "hugepages-2Mi"}
			f.core.topologyChanged(klog.Background(), zones)
			if _, status := f.filter(t, pod, "n"); status.IsSuccess() != c.fits {
				t.Errorf("filter of %v in %v = %v %q, want fits %t", c.containers, c.zones, status.Code(), status.Message(), c.fits)
			}
		})
	}
}
