// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package recording writes the agent's snapshots to a file and reads them again, so that rules can be tested against the past of a node.
//
// A recording is a series of gzip members, which gzip -d reads as one file, each with one line of JSON. An incomplete one, as after
// SIGKILL, affects no other.
package recording

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"crane.io/crane/internal/agent/cluster"
	"crane.io/crane/internal/agent/observe"
)

// Entry is a line: a snapshot, and the state of the cluster if it changed since the previous line.
type Entry struct {
	Snapshot *observe.Snapshot `json:"look"`
	Cluster  *cluster.State    `json:"cluster,omitempty"`
}

// withoutSecrets returns a state without fields that decisions do not use, such as environment variables, which may be secret.
func withoutSecrets(s *cluster.State) *cluster.State {
	out := *s
	if s.Node != nil {
		out.Node = &corev1.Node{TypeMeta: s.Node.TypeMeta, ObjectMeta: s.Node.ObjectMeta}
		out.Node.ManagedFields = nil
		out.Node.Spec.Taints = s.Node.Spec.Taints
		out.Node.Status.Capacity, out.Node.Status.Allocatable = s.Node.Status.Capacity, s.Node.Status.Allocatable
	}
	out.Pods = make([]*corev1.Pod, len(s.Pods))
	for i, p := range s.Pods {
		out.Pods[i] = podWithoutSecrets(p)
	}
	return &out
}

// lastApplied is kubectl's annotation with the whole object.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

func podWithoutSecrets(p *corev1.Pod) *corev1.Pod {
	out := p.DeepCopy()
	out.ManagedFields = nil
	delete(out.Annotations, lastApplied)
	out.Spec = corev1.PodSpec{
		NodeName: p.Spec.NodeName, Priority: p.Spec.Priority, PriorityClassName: p.Spec.PriorityClassName, Overhead: p.Spec.Overhead,
		Resources: p.Spec.Resources, TerminationGracePeriodSeconds: p.Spec.TerminationGracePeriodSeconds,
		Containers: containersWithoutSecrets(p.Spec.Containers), InitContainers: containersWithoutSecrets(p.Spec.InitContainers),
	}
	return out
}

func containersWithoutSecrets(list []corev1.Container) []corev1.Container {
	out := slices.Clone(list)
	for i := range out {
		c := &out[i]
		*c = corev1.Container{Name: c.Name, Resources: c.Resources, RestartPolicy: c.RestartPolicy}
	}
	return out
}
