// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"slices"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	scheduling "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/units"
)

// Constraints are limits of a cluster on the sizes of its workloads. The zero value has none.
type Constraints struct {
	// MaxCPU and MaxMemory are the largest allocatable amounts of any node, independently of each other; 0 if unknown.
	MaxCPU    units.MilliCPU
	MaxMemory units.Bytes
	// Nodes are the nodes by group; empty if unknown.
	Nodes rightsize.NodeGroups
	// autoscalers are the HorizontalPodAutoscalers of each workload; the keys have no version.
	autoscalers map[Ref][]Autoscaler
}

// Autoscaler is a HorizontalPodAutoscaler of a workload.
type Autoscaler struct {
	Name string
	// Owner is the EffectiveHorizontalPodAutoscaler that controls it; empty if Crane does not own it.
	Owner    string
	Min, Max int32
	Metrics  []autoscalingv2.MetricSpec
}

// effectiveHPA is the kind of Crane's own autoscaler, which creates a HorizontalPodAutoscaler.
const effectiveHPA = "EffectiveHorizontalPodAutoscaler"

// Autoscalers returns the HorizontalPodAutoscalers of a workload, in the order of the list.
func (c Constraints) Autoscalers(ref Ref) []Autoscaler { return c.autoscalers[withoutVersion(ref)] }

// Constraints lists all nodes, and the HorizontalPodAutoscalers of some namespaces (empty: all), page by page.
func (l *Lister) Constraints(ctx context.Context, namespaces []string) (Constraints, error) {
	out := Constraints{autoscalers: map[Ref][]Autoscaler{}}
	var nodes []rightsize.NodeShape
	err := l.each(ctx, Query{Kind: corev1.SchemeGroupVersion.WithKind("Node")}, func(o client.Object) error {
		if n, ok := o.(*corev1.Node); ok {
			shape := nodeShape(n)
			nodes = append(nodes, shape)
			out.MaxCPU = max(out.MaxCPU, shape.PodCPU)
			out.MaxMemory = max(out.MaxMemory, shape.PodMemory)
		}

		return nil
	})
	if err != nil {
		return Constraints{}, err
	}

	out.Nodes = rightsize.GroupNodes(nodes)
	if len(namespaces) == 0 {
		namespaces = []string{metav1.NamespaceAll}
	}

	kind := autoscalingv2.SchemeGroupVersion.WithKind("HorizontalPodAutoscaler")
	for _, ns := range namespaces {
		err := l.each(ctx, Query{Kind: kind, Namespace: ns}, func(o client.Object) error {
			if hpa, ok := o.(*autoscalingv2.HorizontalPodAutoscaler); ok {
				out.add(hpa)
			}

			return nil
		})
		if err != nil {
			return Constraints{}, err
		}
	}

	return out, nil
}

func nodeShape(n *corev1.Node) rightsize.NodeShape {
	return rightsize.NodeShape{
		Name:      n.Name,
		Labels:    n.Labels,
		CPU:       units.MilliCPU(n.Status.Capacity.Cpu().MilliValue()),
		Memory:    units.Bytes(n.Status.Capacity.Memory().Value()),
		PodCPU:    units.MilliCPU(n.Status.Allocatable.Cpu().MilliValue()),
		PodMemory: units.Bytes(n.Status.Allocatable.Memory().Value()),
	}
}

func (c Constraints) add(hpa *autoscalingv2.HorizontalPodAutoscaler) {
	to := hpa.Spec.ScaleTargetRef
	key := withoutVersion(Ref{
		Namespace:  hpa.Namespace,
		APIVersion: to.APIVersion,
		Kind:       to.Kind,
		Name:       to.Name,
	})

	c.autoscalers[key] = append(c.autoscalers[key], AutoscalerOf(hpa))
}

// AutoscalerOf converts a HorizontalPodAutoscaler and returns the workload that it scales.
func AutoscalerOf(hpa *autoscalingv2.HorizontalPodAutoscaler) Autoscaler {
	out := Autoscaler{
		Name:    hpa.Name,
		Min:     1,
		Max:     hpa.Spec.MaxReplicas,
		Metrics: hpa.Spec.Metrics,
	}

	if hpa.Spec.MinReplicas != nil {
		out.Min = *hpa.Spec.MinReplicas
	}
	if owner := metav1.GetControllerOfNoCopy(hpa); owner != nil && owner.Kind == effectiveHPA {
		out.Owner = owner.Name
	}

	return out
}

// UtilizationTargets returns the share of its request at which an autoscaler scales because of a container; nil if none does. A
// metric of the whole pod counts for each container, one of another container does not. The lowest of several targets counts.
func (c Constraints) UtilizationTargets(ref Ref, container string) *rightsize.HPA {
	var out rightsize.HPA
	for _, a := range c.Autoscalers(ref) {
		for _, m := range a.Metrics {
			name, utilization, ok := containerUtilization(m, container)
			if !ok {
				continue
			}

			target := &out.CPUUtilization
			switch name {
			case corev1.ResourceCPU:
			case corev1.ResourceMemory:
				target = &out.MemoryUtilization
			default:
				continue
			}

			// 0 is no target yet.
			if *target == 0 || utilization < *target {
				*target = utilization
			}
		}
	}

	if out == (rightsize.HPA{}) {
		return nil
	}

	return &out
}

// containerUtilization returns the target of a metric that is relative to the requests of a container.
func containerUtilization(m autoscalingv2.MetricSpec, container string) (corev1.ResourceName, units.Ratio, bool) {
	var name corev1.ResourceName
	var target autoscalingv2.MetricTarget
	switch {
	case m.Type == autoscalingv2.ResourceMetricSourceType && m.Resource != nil:
		name, target = m.Resource.Name, m.Resource.Target
	case m.Type == autoscalingv2.ContainerResourceMetricSourceType && m.ContainerResource != nil && m.ContainerResource.Container == container:
		name, target = m.ContainerResource.Name, m.ContainerResource.Target
	}

	if target.AverageUtilization == nil || *target.AverageUtilization <= 0 {
		return "", 0, false // An absolute value does not depend on the request.
	}

	return name, units.Ratio(*target.AverageUtilization) / 100, true
}

// NodeRejectReason returns why a node accepts no pod like this one, whatever its free capacity; empty if it does. It checks
// readiness, taints, selectors and node affinity, as kube-scheduler's filters do.
func NodeRejectReason(node *corev1.Node, pod *corev1.Pod) string {
	if node.Spec.Unschedulable {
		return "cordoned"
	}

	if !NodeReady(node) {
		return "not ready"
	}

	if _, found := scheduling.FindMatchingUntoleratedTaint(klog.Background(), node.Spec.Taints, pod.Spec.Tolerations, blocksScheduling, false); found {
		return "with a taint that it does not tolerate"
	}

	if ok, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node); err != nil || !ok {
		return "that its node selector or affinity leaves out"
	}

	return ""
}

func blocksScheduling(t *corev1.Taint) bool {
	return t.Effect == corev1.TaintEffectNoSchedule || t.Effect == corev1.TaintEffectNoExecute
}

// NodeReady reports whether the condition Ready of a node is true.
func NodeReady(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}
