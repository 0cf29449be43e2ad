// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/pkg/recommend"
	"crane.io/crane/pkg/recommend/gpu"
	"crane.io/crane/pkg/recommend/observation"
)

// gpuEvaluator finds GPUs that containers hold and do not use.
type gpuEvaluator struct {
	settings gpu.Settings
	// devices are by container, pod and the device name of the source.
	devices map[containerKey]map[string]map[string]*gpu.Device
}

func (e *gpuEvaluator) gather(ctx context.Context, d *runData, targets []workload.Workload) error {
	e.devices = map[containerKey]map[string]map[string]*gpu.Device{}
	if _, err := d.pods(ctx); err != nil {
		return err
	}

	for _, f := range []struct {
		metric metrics.HourlyMetric
		set    func(*gpu.Device, observation.Hours)
	}{
		{metrics.GPUUse, func(d *gpu.Device, h observation.Hours) { d.Use = h }},
		{metrics.GPUMemory, func(d *gpu.Device, h observation.Hours) { d.Memory = h }},
	} {
		list, err := d.hourlyFigures(ctx, f.metric, targets, e.settings.Hours)
		if err != nil {
			return err
		}

		for _, h := range list {
			f.set(e.device(h), h.Values)
		}
	}

	return nil
}

func (e *gpuEvaluator) device(h metrics.HourlySeries) *gpu.Device {
	key := containerKeyOf(h)
	if e.devices[key] == nil {
		e.devices[key] = map[string]map[string]*gpu.Device{}
	}

	pods := e.devices[key]
	if pods[h.Key.Pod] == nil {
		pods[h.Key.Pod] = map[string]*gpu.Device{}
	}
	if pods[h.Key.Pod][h.Device] == nil {
		pods[h.Key.Pod][h.Device] = &gpu.Device{}
	}

	return pods[h.Key.Pod][h.Device]
}

func (e *gpuEvaluator) decide(d *runData, target workload.Workload) (decision, error) {
	in := gpu.Input{Replicas: int(target.Replicas)}
	roles := map[string]workload.Role{}
	for _, ask := range gpuRequestsOf(d.podsOfWorkload(target.Ref)) {
		spec, exists := target.Container(ask.container)
		if !exists {
			continue // It was injected into the pods, so the pod template cannot change it.
		}

		roles[ask.container] = spec.Role
		c := gpu.Container{Name: ask.container, Resource: string(ask.resource), Requested: ask.count}
		for _, devices := range e.devices[containerKey{workloadKeyOf(target.Ref), ask.container}] {
			var all []gpu.Device
			for _, d := range devices {
				all = append(all, *d)
			}
			c.Pods = append(c.Pods, all)
		}

		in.Containers = append(in.Containers, c)
	}

	plan := gpu.Decide(in, e.settings)
	out := decision{plan: plan.Plan}
	if plan.State != recommend.Ready {
		return out, nil
	}

	out.notApplicable = proposalOnly("usage does not show whether a program works with fewer GPUs")
	var current, recommended []containerChange
	for _, r := range plan.Requests {
		// Kubernetes requires the same request and limit of devices.
		before, after := changeOf(r.Container, roles[r.Container], corev1.ResourceName(r.Resource), strconv.FormatInt(r.From, 10), strconv.FormatInt(r.To, 10), true)
		current = append(current, before)
		recommended = append(recommended, after)
	}

	return out.withPatch(target.Kind, current, recommended)
}

// gpuRequestsOf returns the GPU requests of a workload by container: the largest of its pods, which may have different templates.
func gpuRequestsOf(pods []pod) []gpuRequest {
	largest := map[string]gpuRequest{}
	for _, p := range pods {
		for _, request := range p.gpus {
			if request.count > largest[request.container].count {
				largest[request.container] = request
			}
		}
	}

	out := make([]gpuRequest, 0, len(largest))
	for _, name := range slices.Sorted(maps.Keys(largest)) {
		out = append(out, largest[name])
	}

	return out
}
