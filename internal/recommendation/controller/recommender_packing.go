// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics/profile"
	"crane.io/crane/pkg/cost"
	"crane.io/crane/pkg/recommend"
	"crane.io/crane/pkg/recommend/packing"
	"crane.io/crane/pkg/recommend/resource"
	"crane.io/crane/pkg/rightsize"
)

// packingRecommender finds workloads of which one more pod fits on no node. It takes the settings of the Resource
// recommender: those say what the pods should ask for instead.
func packingRecommender() recommender {
	return recommender{
		name:     string(analysisv1alpha1.AnalysisTypePacking),
		supports: supportsWorkloads,
		configure: func(config map[string]string) (evaluator, error) {
			policies, err := parsePolicies(config)
			return &packingEvaluator{policies: policies}, err
		},
	}
}

type packingEvaluator struct {
	policies rightsize.PolicySet
	inputs   map[workload.Ref]packing.Input
	usage    *profile.Usage
}

// gather counts room first, and reads what is used only of workloads that are in their own way.
func (j *packingEvaluator) gather(ctx context.Context, w *passData, targets []workload.Workload) error {
	if _, err := w.pods(ctx); err != nil {
		return err
	}
	if _, err := w.allNodes(ctx); err != nil {
		return err
	}
	room := w.nodeCapacity()
	j.inputs = map[workload.Ref]packing.Input{}
	var suspects []workload.Workload
	for _, t := range targets {
		in, err := packingInput(w, t, room)
		if err != nil {
			return err
		}
		j.inputs[t.Ref] = in
		if packing.IsBlocked(in) {
			suspects = append(suspects, t)
		}
	}
	if len(suspects) == 0 {
		return nil
	}
	limits, err := w.constraints(ctx)
	if err != nil {
		return err
	}
	reading, cancel := context.WithTimeout(ctx, w.historyTimeout)
	defer cancel()
	j.usage, err = profile.Collect(reading, w.history, profile.Request{
		Workloads: suspects, End: w.historyEnd, Length: j.policies.Window(), NodeGroups: limits.Nodes.Of,
	})
	if err != nil {
		return wrapSourceError(err)
	}
	j.usage.SetConstraints(limits)
	return nil
}

// packingInput takes the pod that asks for most as the one that there could be more of.
func packingInput(w *passData, t workload.Workload, room []packing.Node) (packing.Input, error) {
	in := packing.Input{Replicas: t.Replicas, Nodes: room}
	if t.Kind == "DaemonSet" {
		in.Replicas = 0 // It has one pod on each node, and needs room on no other.
		return in, nil
	}
	for _, p := range w.podsOfWorkload(t.Ref) {
		if in.Allowed != nil && p.Requests.CPU <= in.Pod.CPU && p.Requests.Memory <= in.Pod.Memory && p.Requests.GPU <= in.Pod.GPU {
			continue
		}
		allowed, err := w.allowedNodes(p)
		if err != nil {
			return in, err
		}
		in.Pod, in.Allowed = p.Requests, allowed
	}
	for _, c := range t.Containers {
		asks := cost.Amounts{CPU: c.Requests.CPU, Memory: c.Requests.Memory}
		if in.Largest == "" || asks.CPU > in.LargestRequests.CPU || asks.CPU == in.LargestRequests.CPU && asks.Memory > in.LargestRequests.Memory {
			in.Largest, in.LargestRequests = c.Name, asks
		}
	}
	return in, nil
}

func (j *packingEvaluator) decide(w *passData, target workload.Workload) (decision, error) {
	in := j.inputs[target.Ref]
	var sized resource.Plan
	if packing.IsBlocked(in) {
		policy, why := j.policies.For(target.Subject())
		of := j.usage.ResourceInput(target, policy, w.now)
		of.PolicyWhy = why
		of.Autoscaler = w.autoscaler(target.Ref).asInput()
		if sized = resource.Decide(of); sized.State == recommend.Ready && !sized.Incomplete {
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
	err := out.writePatch(target.Kind, current, recommended) // Before out is returned, which it changes.
	return out, err
}
