// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package noderesourcetopology

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	topology "crane.io/crane/api/topology/v1alpha1"
)

// EventsToRegister lists what can help a pod that found no zones. Changes of NodeResourceTopologies are not among them: the
// plugin watches these itself and wakes the pods (see waiting).
func (p *Plugin) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return []fwk.ClusterEventWithHint{
		// A pod that leaves gives its zones back.
		{Event: fwk.ClusterEvent{Resource: fwk.Pod, ActionType: fwk.Delete}, QueueingHintFn: p.podDeleted},
		// The pod itself may ask for less, or for shared CPUs, or no longer for a single zone.
		{Event: fwk.ClusterEvent{Resource: fwk.Pod, ActionType: fwk.Update}, QueueingHintFn: p.podUpdated},
		// A new node may be good. Taints are named only because the scheduler else adds them, without a hint.
		{Event: fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add | fwk.UpdateNodeTaint}, QueueingHintFn: p.nodeAdded},
	}, nil
}

// podDeleted wakes the pod if what the other held makes room for it.
func (p *Plugin) podDeleted(_ klog.Logger, pod *corev1.Pod, before, _ any) (fwk.QueueingHint, error) {
	gone, ok := before.(*corev1.Pod)
	if !ok {
		return fwk.Queue, nil
	}
	r := p.request(pod)
	if r == nil {
		return fwk.Queue, nil // it asks nothing any more
	}
	node := gone.Spec.NodeName
	if node == "" || gone.UID == pod.UID || result(gone) == "" && p.request(gone) == nil {
		return fwk.QueueSkip, nil
	}
	// What is left of the node counts from here on, also for the next pod that leaves before anybody looks at the node.
	p.core.store.leave(gone.UID, node)
	return hint(p.core.store.fitNow(node, r).passes(p.missing)), nil
}

// podUpdated wakes the pod if it asks for something else than before.
func (p *Plugin) podUpdated(_ klog.Logger, pod *corev1.Pod, before, after any) (fwk.QueueingHint, error) {
	old, ok := before.(*corev1.Pod)
	changed, too := after.(*corev1.Pod)
	if !ok || !too {
		return fwk.Queue, nil
	}
	return hint(changed.UID == pod.UID && !p.request(old).equal(p.request(changed))), nil
}

// nodeAdded wakes the pod if the node is one where it may go. Where nodes without topology are refused, the node's
// NodeResourceTopology wakes it once that is there.
func (p *Plugin) nodeAdded(_ klog.Logger, pod *corev1.Pod, before, after any) (fwk.QueueingHint, error) {
	node, ok := after.(*corev1.Node)
	if !ok {
		return fwk.Queue, nil
	}
	if before != nil {
		return fwk.QueueSkip, nil
	}
	r := p.request(pod)
	return hint(r == nil || p.core.store.fitNow(node.Name, r).passes(p.missing)), nil
}

func hint(wake bool) fwk.QueueingHint {
	if wake {
		return fwk.Queue
	}
	return fwk.QueueSkip
}

// signature is what the plugin reads of a pod. Pods with the same one get the same answers.
type signature struct {
	Resources  string
	SingleZone *bool
}

// SignPod implements fwk.SignPlugin.
func (p *Plugin) SignPod(_ context.Context, pod *corev1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	var s signature
	if r := p.request(pod); r != nil {
		s = signature{Resources: r.resources.String(), SingleZone: r.singleZone}
	}
	return []fwk.SignFragment{{Key: topology.GroupName + "/" + Name, Value: s}}, nil
}
