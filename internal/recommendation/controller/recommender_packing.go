// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"

	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics/profile"
	"crane.io/crane/pkg/cost"
	"crane.io/crane/pkg/recommend"
	"crane.io/crane/pkg/recommend/packing"
	"crane.io/crane/pkg/recommend/resource"
	"crane.io/crane/pkg/rightsize"
)

// packingEvaluator finds workloads of which another pod fits on no node. Its settings are those of the Resource recommender, which
// define the proposed requests.
type packingEvaluator struct {
	policies rightsize.PolicySet
	inputs   map[workload.Ref]packing.Input
	usage    *profile.Usage
}

// gather computes the free capacity first, and reads the usage of workloads that fit nowhere only.
func (e *packingEvaluator) gather(ctx context.Context, d *runData, targets []workload.Workload) error {
	if _, err := d.pods(ctx); err != nil {
		return err
	}

	if _, err := d.allNodes(ctx); err != nil {
		return err
	}

	capacity := d.nodeCapacity()
	e.inputs = map[workload.Ref]packing.Input{}
	var blocked []workload.Workload
	for _, t := range targets {
		in, err := packingInput(d, t, capacity)
		if err != nil {
			return err
		}

		e.inputs[t.Ref] = in
		if packing.IsBlocked(in) {
			blocked = append(blocked, t)
		}
	}

	// Only blocked workloads are resized, so only their usage is read.
	if len(blocked) == 0 {
		return nil
	}

	limits, err := d.constraints(ctx)
	if err != nil {
		return err
	}

	readCtx, cancel := context.WithTimeout(ctx, d.historyTimeout)
	defer cancel()

	e.usage, err = profile.Collect(readCtx, d.history, profile.Request{
		Workloads:  blocked,
		End:        d.historyEnd,
		Length:     e.policies.Window(),
		NodeGroups: limits.Nodes.Of,
	})
	if err != nil {
		return wrapSourceError(err)
	}

	e.usage.SetConstraints(limits)
	return nil
}

// packingInput returns the input for a workload, with its largest pod.
func packingInput(d *runData, t workload.Workload, capacity []packing.Node) (packing.Input, error) {
	in := packing.Input{Replicas: t.Replicas, Nodes: capacity}
	if t.Kind == "DaemonSet" {
		in.Replicas = 0 // It has one pod on each node and needs capacity on no other.
		return in, nil
	}

	for _, p := range d.podsOfWorkload(t.Ref) {
		if in.Allowed != nil && p.Requests.CPU <= in.Pod.CPU && p.Requests.Memory <= in.Pod.Memory && p.Requests.GPU <= in.Pod.GPU {
			continue
		}

		allowed, err := d.allowedNodes(p)
		if err != nil {
			return in, err
		}

		in.Pod = p.Requests
		in.Allowed = allowed
	}

	for _, c := range t.Containers {
		asks := cost.Amounts{CPU: c.Requests.CPU, Memory: c.Requests.Memory}
		if in.Largest == "" || asks.CPU > in.LargestRequests.CPU || asks.CPU == in.LargestRequests.CPU && asks.Memory > in.LargestRequests.Memory {
			in.Largest = c.Name
			in.LargestRequests = asks
		}
	}

	return in, nil
}

func (e *packingEvaluator) decide(d *runData, target workload.Workload) (decision, error) {
	in := e.inputs[target.Ref]
	var sized resource.Plan
	if packing.IsBlocked(in) {
		policy, why := e.policies.For(target.Subject())
		input := e.usage.ResourceInput(target, policy, d.now)
		input.PolicyWhy = why
		if sized = resource.Decide(input); sized.State == recommend.Ready && !sized.Incomplete {
			after := cost.Amounts{CPU: sized.Pod.CPUAfter, Memory: sized.Pod.MemoryAfter, GPU: in.Pod.GPU}
			in.Resized = &after
		} else {
			in.ResizeProblem = sized.Description
		}
	}

	out := decision{plan: packing.Decide(in)}
	if out.plan.Action != recommend.Patch {
		return out, nil
	}

	current, recommended := changesOf(target, sized)
	return out.withPatch(target.Kind, current, recommended)
}
