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

// EventsToRegister lists the events that can help a pod without zones. Changes of NodeResourceTopologies are not
// among them: the plugin watches these itself and wakes the pods (see waiting).
func (p *Plugin) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return []fwk.ClusterEventWithHint{
		// A deleted pod frees its zones.
		{Event: fwk.ClusterEvent{Resource: fwk.Pod, ActionType: fwk.Delete}, QueueingHintFn: p.podDeleted},
		// The pod itself may request less, shared CPUs, or no single zone any more. Another one may release its zones.
		{Event: fwk.ClusterEvent{Resource: fwk.Pod, ActionType: fwk.Update}, QueueingHintFn: p.podUpdated},
		// A new node may fit. Taints are listed because the scheduler would add them itself, without a hint.
		{Event: fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add | fwk.UpdateNodeTaint}, QueueingHintFn: p.nodeAdded},
	}, nil
}

// podDeleted wakes the pod if the deleted pod's zones make it fit.
func (p *Plugin) podDeleted(_ klog.Logger, pod *corev1.Pod, before, _ any) (fwk.QueueingHint, error) {
	deleted, ok := before.(*corev1.Pod)
	if !ok {
		return fwk.Queue, nil
	}

	r := p.request(pod)
	if r == nil {
		return fwk.Queue, nil // it has no zone request any more
	}

	node := deleted.Spec.NodeName
	if node == "" || deleted.UID == pod.UID || result(deleted) == "" && p.request(deleted) == nil {
		return fwk.QueueSkip, nil
	}

	// The departure applies at once, also to the next event before the node is read again.
	p.core.store.recordDeparture(deleted.UID, node)
	return hint(p.core.store.fitNow(node, r).passes(p.missing)), nil
}

// podUpdated wakes the pod if its request has changed, or if another pod has released zones that make it fit.
func (p *Plugin) podUpdated(_ klog.Logger, pod *corev1.Pod, before, after any) (fwk.QueueingHint, error) {
	old, oldOK := before.(*corev1.Pod)
	changed, changedOK := after.(*corev1.Pod)
	if !oldOK || !changedOK {
		return fwk.Queue, nil
	}

	if changed.UID == pod.UID {
		return hint(!p.request(old).equal(p.request(changed))), nil
	}

	node := changed.Spec.NodeName
	r := p.request(pod)
	if node == "" || r == nil || result(old) == "" || releasesZones(old) || !releasesZones(changed) {
		return fwk.QueueSkip, nil
	}

	p.core.store.recordDeparture(changed.UID, node)
	return hint(p.core.store.fitNow(node, r).passes(p.missing)), nil
}

// nodeAdded wakes the pod if it fits on the node. If nodes without topology are rejected, the node's
// NodeResourceTopology wakes it later.
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

// signature is what the plugin reads of a pod. Pods with equal signatures get equal answers.
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
