// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/pkg/recommend"
	"crane.io/crane/pkg/recommend/observation"
	"crane.io/crane/pkg/recommend/throttle"
	"crane.io/crane/pkg/units"
)

// throttleEvaluator finds CPU limits that throttle their containers.
type throttleEvaluator struct {
	settings  throttle.Settings
	throttled map[containerKey]observation.Hours
	maxCPU    units.MilliCPU
}

// containerKey names a container of a workload.
type containerKey struct {
	workloadKey
	container string
}

func containerKeyOf(h metrics.HourlySeries) containerKey {
	return containerKey{workloadKeyOf(h.Key.Workload), h.Key.Container}
}

func (e *throttleEvaluator) gather(ctx context.Context, d *runData, targets []workload.Workload) error {
	if _, err := d.pods(ctx); err != nil {
		return err
	}

	limits, err := d.constraints(ctx)
	if err != nil {
		return err
	}

	e.maxCPU = limits.MaxCPU
	e.throttled, err = readHours(ctx, d, metrics.ContainerThrottled, targets, e.settings.Hours, containerKeyOf)
	return err
}

func (e *throttleEvaluator) decide(d *runData, target workload.Workload) (decision, error) {
	in := throttle.Input{MaxCPU: e.maxCPU, Guaranteed: allGuaranteed(d.podsOfWorkload(target.Ref))}
	for _, c := range target.Containers {
		if c.Role == workload.Init {
			continue // It runs to completion, and its throttling is not measured by the hour.
		}

		in.Containers = append(in.Containers, throttle.Container{
			Name: c.Name, Limit: c.Limits.CPU, Throttled: e.throttled[containerKey{workloadKeyOf(target.Ref), c.Name}],
		})
	}

	plan := throttle.Decide(in, e.settings)
	out := decision{plan: plan.Plan}
	if plan.State != recommend.Ready {
		return out, nil
	}

	var current, recommended []containerChange
	for _, l := range plan.Limits {
		c, _ := target.Container(l.Container)
		before, after := changeOf(c.Name, c.Role, corev1.ResourceCPU, units.FormatCPU(l.From), units.FormatCPU(l.To), l.WithRequest)
		current = append(current, before)
		recommended = append(recommended, after)
	}

	return out.withPatch(target.Kind, current, recommended)
}

// allGuaranteed reports whether there are pods and all of them have the QoS class Guaranteed.
func allGuaranteed(pods []pod) bool {
	for _, p := range pods {
		if !p.status.guaranteed {
			return false
		}
	}

	return len(pods) > 0
}
