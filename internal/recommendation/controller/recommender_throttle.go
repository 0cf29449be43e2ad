// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/pkg/recommend"
	"crane.io/crane/pkg/recommend/observation"
	"crane.io/crane/pkg/recommend/throttle"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/series"
)

// throttleRecommender finds CPU limits that hold their containers up.
func throttleRecommender() recommender {
	return recommender{
		name:     string(analysisv1alpha1.AnalysisTypeThrottle),
		supports: supportsWorkloads,
		configure: func(config map[string]string) (evaluator, error) {
			s, err := throttle.ParseSettings(config)
			return &throttleEvaluator{settings: s}, err
		},
	}
}

type throttleEvaluator struct {
	settings  throttle.Settings
	throttled map[containerKey]observation.Hours
	maxCPU    series.MilliCPU
}

// containerKey is a container of a workload.
type containerKey struct {
	workloadKey
	container string
}

func containerKeyOf(h metrics.HourlySeries) containerKey {
	return containerKey{workloadKeyOf(h.Key.Workload), h.Key.Container}
}

func (j *throttleEvaluator) gather(ctx context.Context, w *passData, targets []workload.Workload) error {
	if _, err := w.pods(ctx); err != nil {
		return err
	}
	limits, err := w.constraints(ctx)
	if err != nil {
		return err
	}
	j.maxCPU = limits.MaxCPU
	list, err := w.hourlyFigures(ctx, metrics.ContainerThrottled, targets, j.settings.Hours)
	if err != nil {
		return err
	}
	j.throttled = hoursByKey(list, containerKeyOf)
	return nil
}

func (j *throttleEvaluator) decide(w *passData, target workload.Workload) (decision, error) {
	in := throttle.Input{MaxCPU: j.maxCPU, Guaranteed: allGuaranteed(w.podsOfWorkload(target.Ref))}
	for _, c := range target.Containers {
		if c.Role == workload.Init {
			continue // It runs to its end, and what holds it up is not measured by the hour.
		}
		in.Containers = append(in.Containers, throttle.Container{
			Name: c.Name, Limit: c.Limits.CPU, Throttled: j.throttled[containerKey{workloadKeyOf(target.Ref), c.Name}],
		})
	}
	plan := throttle.Decide(in, j.settings)
	out := decision{plan: plan.Plan}
	if plan.State != recommend.Ready {
		return out, nil
	}
	var current, recommended []containerChange
	for _, l := range plan.Limits {
		c, _ := target.Container(l.Container)
		from, to := rightsize.FormatCPU(l.From), rightsize.FormatCPU(l.To)
		before, after := containerChange{container: c.Name, role: c.Role}, containerChange{container: c.Name, role: c.Role}
		setLimit(&before, &after, corev1.ResourceCPU, &from, &to)
		if l.WithRequest {
			before.requests = analysisv1alpha1.ResourceValues{corev1.ResourceCPU: from}
			after.requests = analysisv1alpha1.ResourceValues{corev1.ResourceCPU: to}
		}
		current, recommended = append(current, before), append(recommended, after)
	}
	err := out.writePatch(target.Kind, current, recommended) // Before out is returned, which it changes.
	return out, err
}

// writePatch writes changes of containers; nothing where there are none.
func (d *decision) writePatch(kind string, current, recommended []containerChange) error {
	if len(recommended) == 0 {
		return nil
	}
	var err error
	if d.current, err = encodePatch(kind, current); err != nil {
		return err
	}
	d.recommended, err = encodePatch(kind, recommended)
	return err
}

// allGuaranteed tells whether there are pods and all of them have that class.
func allGuaranteed(pods []pod) bool {
	for _, p := range pods {
		if !p.status.guaranteed {
			return false
		}
	}
	return len(pods) > 0
}
