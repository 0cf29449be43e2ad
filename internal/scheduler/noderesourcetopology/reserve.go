// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package noderesourcetopology

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

// Reserve holds zones for the pod, selected from the currently free ones. It may be called twice.
func (p *Plugin) Reserve(_ context.Context, state fwk.CycleState, pod *corev1.Pod, node string) *fwk.Status {
	c := readCycle(state)
	if c == nil {
		return nil
	}

	info, err := p.snapshot(node)
	if err != nil {
		return fwk.AsStatus(fmt.Errorf("looking up node %s: %w", node, err))
	}

	v, err := p.core.store.assume(pod, p.view(info), c.request)
	if err != nil {
		return fwk.AsStatus(fmt.Errorf("holding zones of node %s: %w", node, err))
	}

	// Another pod may have taken the zones since Filter.
	if !v.passes(p.missing) {
		p.core.waiting.add(waiter{
			pod:     pod,
			request: c.request,
			missing: p.missing,
			queue:   p.queue,
		})

		return fwk.NewStatus(fwk.Unschedulable, reasonTaken)
	}

	p.core.waiting.remove(pod.UID)
	return nil
}

// Unreserve releases the zones of a pod that was not bound. It may be called without Reserve.
func (p *Plugin) Unreserve(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, _ string) {
	p.core.store.forget(pod.UID)
}
