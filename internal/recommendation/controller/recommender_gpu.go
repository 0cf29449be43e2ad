// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/pkg/recommend"
	"crane.io/crane/pkg/recommend/gpu"
	"crane.io/crane/pkg/recommend/observation"
)

// gpuRecommender finds GPUs that containers hold and do not use.
func gpuRecommender() recommender {
	return recommender{
		name:     string(analysisv1alpha1.AnalysisTypeGPU),
		supports: supportsWorkloads,
		configure: func(config map[string]string) (evaluator, error) {
			s, err := gpu.ParseSettings(config)
			return &gpuEvaluator{settings: s}, err
		},
	}
}

type gpuEvaluator struct {
	settings gpu.Settings
	// devices of each pod of each container, by what the source calls them.
	devices map[containerKey]map[string]map[string]*gpu.Device
}

func (j *gpuEvaluator) gather(ctx context.Context, w *passData, targets []workload.Workload) error {
	j.devices = map[containerKey]map[string]map[string]*gpu.Device{}
	if _, err := w.pods(ctx); err != nil {
		return err
	}
	for _, f := range []struct {
		of  metrics.HourlyMetric
		set func(*gpu.Device, observation.Hours)
	}{
		{metrics.GPUUse, func(d *gpu.Device, h observation.Hours) { d.Use = h }},
		{metrics.GPUMemory, func(d *gpu.Device, h observation.Hours) { d.Memory = h }},
	} {
		list, err := w.hourlyFigures(ctx, f.of, targets, j.settings.Hours)
		if err != nil {
			return err
		}
		for _, h := range list {
			f.set(j.device(h), h.Values)
		}
	}
	return nil
}

func (j *gpuEvaluator) device(h metrics.HourlySeries) *gpu.Device {
	key := containerKeyOf(h)
	if j.devices[key] == nil {
		j.devices[key] = map[string]map[string]*gpu.Device{}
	}
	pods := j.devices[key]
	if pods[h.Key.Pod] == nil {
		pods[h.Key.Pod] = map[string]*gpu.Device{}
	}
	if pods[h.Key.Pod][h.Device] == nil {
		pods[h.Key.Pod][h.Device] = &gpu.Device{}
	}
	return pods[h.Key.Pod][h.Device]
}

func (j *gpuEvaluator) decide(w *passData, target workload.Workload) (decision, error) {
	in := gpu.Input{Replicas: int(target.Replicas)}
	roles := map[string]workload.Role{}
	for _, ask := range gpuRequestsOf(w.podsOfWorkload(target.Ref)) {
		known, there := target.Container(ask.container)
		if !there {
			continue // Something has put it into the pods: the workload's template is not where it can be changed.
		}
		roles[ask.container] = known.Role
		c := gpu.Container{Name: ask.container, Resource: string(ask.resource), Requested: ask.count}
		for _, devices := range j.devices[containerKey{workloadKeyOf(target.Ref), ask.container}] {
			var all []gpu.Device
			for _, d := range devices {
				all = append(all, *d)
			}
			c.Pods = append(c.Pods, all)
		}
		in.Containers = append(in.Containers, c)
	}
	plan := gpu.Decide(in, j.settings)
	out := decision{plan: plan.Plan}
	if plan.State != recommend.Ready {
		return out, nil
	}
	out.notApplicable = notApplicableProposal("whether a program can do with fewer GPUs is not seen in how it uses them")
	var current, recommended []containerChange
	for _, r := range plan.Requests {
		before, after := containerChange{container: r.Container, role: roles[r.Container]}, containerChange{container: r.Container, role: roles[r.Container]}
		from, to := strconv.FormatInt(r.From, 10), strconv.FormatInt(r.To, 10)
		// Kubernetes wants requests and limits of devices to be the same, and takes the one from the other.
		setLimit(&before, &after, corev1.ResourceName(r.Resource), &from, &to)
		before.requests = analysisv1alpha1.ResourceValues{corev1.ResourceName(r.Resource): from}
		after.requests = analysisv1alpha1.ResourceValues{corev1.ResourceName(r.Resource): to}
		current, recommended = append(current, before), append(recommended, after)
	}
	err := out.writePatch(target.Kind, current, recommended) // Before out is returned, which it changes.
	return out, err
}

// gpuRequestsOf are the GPUs that the containers of a workload ask for: those of the pod that asks for most, as pods of two
// templates may run side by side.
func gpuRequestsOf(pods []pod) []gpuRequest {
	most := map[string]gpuRequest{}
	for _, p := range pods {
		for _, ask := range p.gpus {
			if ask.count > most[ask.container].count {
				most[ask.container] = ask
			}
		}
	}
	out := make([]gpuRequest, 0, len(most))
	for _, name := range slices.Sorted(maps.Keys(most)) {
		out = append(out, most[name])
	}
	return out
}
