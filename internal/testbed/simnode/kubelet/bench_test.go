// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// full returns a node with the kubelet's default maximum of running pods.
func full(b *testing.B) (*Node, time.Time) {
	b.Helper()

	spec := NodeSpec{Name: "n1", CPU: resource.MustParse("64"), Memory: resource.MustParse("256Gi")}
	n := NewNode(spec, DefaultTiming(), "127.0.0.1", "10.192.0.")
	now := epoch
	for i := range DefaultMaxPods {
		p := newPod(fmt.Sprintf("p%d", i), "100m", "256Mi")
		n.Observe(p, now)
		n.Step(p.UID, now)
		n.Step(p.UID, now.Add(time.Minute))
	}

	n.Events()
	n.Dirty()
	return n, now.Add(time.Minute)
}

// BenchmarkMeasure measures one sample of a node with 110 pods.
func BenchmarkMeasure(b *testing.B) {
	n, now := full(b)
	b.ReportAllocs()

	for b.Loop() {
		now = now.Add(5 * time.Second)
		n.Measure(Idle{}, now)
	}
}

// BenchmarkContainers measures listing the containers of a node with 110 pods.
func BenchmarkContainers(b *testing.B) {
	n, _ := full(b)
	var list []ContainerState
	b.ReportAllocs()

	for b.Loop() {
		list = n.Containers(list[:0], true)
	}
}

// BenchmarkStep measures a step of a pod without pending transitions.
func BenchmarkStep(b *testing.B) {
	n, now := full(b)
	pod := n.Pods()[0]
	b.ReportAllocs()

	for b.Loop() {
		n.Step(pod.UID, now)
	}
}
