// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// TestMarkSensitive checks which pods are latency-sensitive and why.
func TestMarkSensitive(t *testing.T) {
	guaranteed := func(p *corev1.Pod) { p.Status.QOSClass = corev1.PodQOSGuaranteed }
	elastic := func(p *corev1.Pod) {
		guaranteed(p)
		p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"gocrane.io/cpu": resource.MustParse("2")}
	}

	for name, test := range map[string]struct {
		change   func(*corev1.Pod)
		priority int32
		said     bool
		want     string
	}{
		"nothing said, burstable":  {nil, 0, false, ""},
		"nothing said, guaranteed": {guaranteed, 0, false, "class Guaranteed"},
		"highest":                  {nil, 0, true, "cpuPriority 0"},
		"batch work, guaranteed":   {guaranteed, 5, true, ""},
		"reclaimed capacity":       {elastic, 0, true, ""},
		"reclaimed, nothing said":  {elastic, 0, false, ""},
	} {
		p := inventory(pod(test.change))
		p.MarkSensitive(func(*corev1.Pod) (int32, bool) { return test.priority, test.said })

		if got, _ := p.Find("uid-1"); got.SensitiveReason != test.want {
			t.Errorf("%s: sensitive by %q, want %q", name, got.SensitiveReason, test.want)
		}
	}
}

// TestDistributed checks the share of the offered capacity that running pods request.
func TestDistributed(t *testing.T) {
	asks := func(cpu string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"gocrane.io/cpu": resource.MustParse(cpu)}
		}
	}

	ended := pod(asks("100"))
	ended.Status.Phase = corev1.PodSucceeded

	p := inventory(pod(asks("2")), pod(asks("1")), pod(nil), ended)
	for offered, want := range map[string]float64{"6": 0.5, "2": 1.5, "0": -1, "": -1} {
		node := &corev1.Node{}
		if offered != "" {
			node.Status.Allocatable = corev1.ResourceList{"gocrane.io/cpu": resource.MustParse(offered)}
		}

		p.SetOffered(node)
		if got := p.Distributed().CPU; (got != nil) != (want >= 0) || got != nil && float64(*got) != want {
			t.Errorf("of %q: %v; want %g", offered, got, want)
		}
	}

	if got := (Pods{}).Distributed(); got.CPU != nil || got.Memory != nil {
		t.Errorf("Distributed of an unknown node = %+v, want unknown", got)
	}
}
