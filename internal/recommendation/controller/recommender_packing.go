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
		name:  string(analysisv1alpha1.AnalysisTypePacking),
		takes: takesWorkloads,
		configure: func(config map[string]string) (job, error) {
			policies, err := policiesOf(config)
			return &packingJob{policies: policies}, err
		},
	}
}

type packingJob struct {
	policies rightsize.PolicySet
	inputs   map[workload.Ref]packing.Input
	usage    *profile.Usage
}

// gather counts room first, and reads what is used only of workloads that are in their own way.
func (j *packingJob) gather(ctx context.Context, w *world, targets []workload.Workload) error {
	if _, err := w.pods(ctx); err != nil {
		return err
	}
	if _, err := w.allNodes(ctx); err != nil {
		return err
	}
	room := w.room()
	j.inputs = map[workload.Ref]packing.Input{}
	var suspects []workload.Workload
	for _, t := range targets {
		in, err := packingInput(w, t, room)
		if err != nil {
			return err
		}
		j.inputs[t.Ref] = in
		if packing.Suspect(in) {
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
		Workloads: suspects, End: w.end, Length: j.policies.Window(), NodeGroups: limits.Nodes.Of,
	})
	if err != nil {
		return queried(err)
	}
	j.usage.Constrain(limits)
	return nil
}

// packingInput takes the pod that asks for most as the one that there could be more of.
func packingInput(w *world, t workload.Workload, room []packing.Node) (packing.Input, error) {
	in := packing.Input{Replicas: t.Replicas, Nodes: room}
	if t.Kind == "DaemonSet" {
		in.Replicas = 0 // It has one pod on each node, and needs room on no other.
		return in, nil
	}
	for _, p := range w.podsOf(t.Ref) {
		if in.Allowed != nil && p.Requests.CPU <= in.Pod.CPU && p.Requests.Memory <= in.Pod.Memory && p.Requests.GPU <= in.Pod.GPU {
			continue
		}
		allowed, err := w.allowed(p)
		if err != nil {
			return in, err
		}
		in.Pod, in.Allowed = p.Requests, allowed
	}
	for _, c := range t.Containers {
		asks := cost.Amounts{CPU: c.Requests.CPU, Memory: c.Requests.Memory}
		if in.Largest == "" || asks.CPU > in.LargestAsks.CPU || asks.CPU == in.LargestAsks.CPU && asks.Memory > in.LargestAsks.Memory {
			in.Largest, in.LargestAsks = c.Name, asks
		}
	}
	return in, nil
}

func (j *packingJob) decide(w *world, target workload.Workload) (decision, error) {
	in := j.inputs[target.Ref]
	var sized resource.Plan
	if packing.Suspect(in) {
		policy, why := j.policies.For(target.Subject())
		of := j.usage.Resource(target, policy, w.now)
		of.PolicyWhy = why
		of.Autoscaler = w.autoscaler(target.Ref).asInput()
		if sized = resource.Decide(of); sized.State == recommend.Ready && !sized.Incomplete {
			after := cost.Amounts{CPU: sized.Pod.CPUAfter, Memory: sized.Pod.MemoryAfter, GPU: in.Pod.GPU}
			in.Sized = &after
		} else {
			in.SizedWhy = sized.Description
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
