// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeletapi

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"crane.io/crane/internal/testbed/simnode/kubelet"
)

// summary returns the content of /stats/summary: CPU and memory of the node, the pods and the containers.
func summary(source Source) *stats.Summary {
	state := source.State()
	out := &stats.Summary{Node: stats.NodeStats{NodeName: state.Spec.Name, StartTime: metav1.NewTime(state.StartedAt)}, Pods: []stats.PodStats{}}
	if state.Use.Known {
		out.Node.CPU = cpu(state.SampledAt, state.Use.CPU, state.CPUSeconds)
		out.Node.Memory = memory(state.SampledAt, state.Use.Memory)
		available := uint64(max(0, state.Spec.Memory.AsApproximateFloat64()-state.Use.Memory))
		out.Node.Memory.AvailableBytes = &available
	}
	for _, g := range byPod(source.Containers()) {
		pod := g[0].Pod
		p := stats.PodStats{PodRef: stats.PodReference{Name: pod.Name, Namespace: pod.Namespace, UID: string(pod.UID)}}
		if pod.Status.StartTime != nil {
			p.StartTime = *pod.Status.StartTime
		}
		var total kubelet.Use
		seconds := 0.0
		for _, c := range g {
			p.Containers = append(p.Containers, stats.ContainerStats{
				Name: c.Container, StartTime: metav1.NewTime(c.StartedAt),
				CPU: cpu(c.SampledAt, c.Use.CPU, c.CPUSeconds), Memory: memory(c.SampledAt, c.Use.Memory),
			})
			total.CPU += c.Use.CPU
			total.Memory += c.Use.Memory
			seconds += c.CPUSeconds
		}
		p.CPU, p.Memory = cpu(g[0].SampledAt, total.CPU, seconds), memory(g[0].SampledAt, total.Memory)
		out.Pods = append(out.Pods, p)
	}
	return out
}

func cpu(at time.Time, cores, seconds float64) *stats.CPUStats {
	now, total := uint64(cores*1e9), uint64(seconds*1e9)
	return &stats.CPUStats{Time: metav1.NewTime(at), UsageNanoCores: &now, UsageCoreNanoSeconds: &total}
}

func memory(at time.Time, bytes float64) *stats.MemoryStats {
	v := uint64(bytes)
	return &stats.MemoryStats{Time: metav1.NewTime(at), UsageBytes: &v, WorkingSetBytes: &v, RSSBytes: &v}
}
