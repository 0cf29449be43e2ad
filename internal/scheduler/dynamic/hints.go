// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package dynamic

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"crane.io/crane/pkg/nodeload"
)

// EventsToRegister lists the events that can open a node for a rejected pod. A new policy and a stale metric cause no
// event: the plugin itself activates pods after these.
func (p *Plugin) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return []fwk.ClusterEventWithHint{
		{
			// A new node, a new load, a larger machine. Taints are listed because the scheduler would add them
			// itself, without a hint.
			Event: fwk.ClusterEvent{
				Resource:   fwk.Node,
				ActionType: fwk.Add | fwk.UpdateNodeAnnotation | fwk.UpdateNodeAllocatable | fwk.UpdateNodeTaint,
			},
			QueueingHintFn: p.nodeHint,
		},
		{
			// A deleted arriving pod frees its node. A pod with lower requests counts for less.
			Event:          fwk.ClusterEvent{Resource: fwk.Pod, ActionType: fwk.Delete | fwk.UpdatePodScaleDown},
			QueueingHintFn: p.podHint,
		},
	}, nil
}

// nodeHint queues a pod if the node was closed for it, or later for another pod, and is open for it now.
func (p *Plugin) nodeHint(logger klog.Logger, pod *corev1.Pod, oldObj, newObj any) (fwk.QueueingHint, error) {
	node, ok := newObj.(*corev1.Node)
	if !ok {
		return fwk.QueueSkip, nil
	}

	if oldObj != nil && !p.pods.wasClosed(pod, node.Name) {
		return fwk.QueueSkip, nil
	}

	hint := p.wouldFit(pod, node)
	logger.V(5).Info("node changed", "plugin", Name, "pod", klog.KObj(pod), "node", klog.KObj(node), "hint", hint)
	return hint, nil
}

// podHint queues a pod if a pod left a node that was closed and is open now, or if its own requests decreased.
func (p *Plugin) podHint(logger klog.Logger, pod *corev1.Pod, oldObj, newObj any) (fwk.QueueingHint, error) {
	if changed, ok := newObj.(*corev1.Pod); ok {
		if changed.UID == pod.UID {
			return fwk.Queue, nil
		}

		return fwk.QueueSkip, nil
	}

	deleted, ok := oldObj.(*corev1.Pod)
	if !ok || deleted.Spec.NodeName == "" || !p.pods.wasClosed(pod, deleted.Spec.NodeName) {
		return fwk.QueueSkip, nil
	}

	// The plugin's own handler may get the event later than the queue.
	p.pods.deleted(deleted)

	v := p.entry(deleted.Spec.NodeName).view.Load()
	if v == nil {
		return fwk.QueueSkip, nil
	}

	hint := p.wouldFit(pod, v.object)
	logger.V(5).Info("pod deleted", "plugin", Name, "pod", klog.KObj(pod), "deleted", klog.KObj(deleted), "hint", hint)
	return hint, nil
}

// wouldFit reports whether the node is open for the pod in its current state, which may be newer than the scheduler's
// snapshot.
func (p *Plugin) wouldFit(pod *corev1.Pod, object *corev1.Node) fwk.QueueingHint {
	last := p.last.Load()
	if last == nil {
		return fwk.Queue
	}

	now := p.clock.Now()
	node := p.entry(object.Name).preview(&p.reader, object, last.Rules, now)
	use, _ := p.pods.estimate(pod, last.Share)
	if limit, _ := last.Closed(node, use, now.UnixNano()); limit != nodeload.Open {
		return fwk.QueueSkip
	}

	return fwk.Queue
}

// retry makes the scheduler retry all pods that the plugin rejected on a node.
func (p *Plugin) retry() {
	if p.activate == nil {
		return
	}

	pods := map[string]*corev1.Pod{}
	for _, r := range p.pods.rejected.All() {
		pods[r.pod.Namespace+"/"+r.pod.Name] = r.pod
	}

	if len(pods) > 0 {
		p.activate(pods)
	}
}
