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
		name:  string(analysisv1alpha1.AnalysisTypeThrottle),
		takes: takesWorkloads,
		configure: func(config map[string]string) (job, error) {
			s, err := throttle.ParseSettings(config)
			return &throttleJob{settings: s}, err
		},
	}
}

type throttleJob struct {
	settings throttle.Settings
	held     map[part]observation.Hours
	most     series.MilliCPU
}

// part is a container of a workload.
type part struct {
	owner
	container string
}

func partOf(h metrics.Hourly) part { return part{ownerOf(h.Key.Workload), h.Key.Container} }

func (j *throttleJob) gather(ctx context.Context, w *world, targets []workload.Workload) error {
	if _, err := w.pods(ctx); err != nil {
		return err
	}
	limits, err := w.constraints(ctx)
	if err != nil {
		return err
	}
	j.most = limits.MaxCPU
	list, err := w.hourly(ctx, metrics.ContainerThrottled, targets, j.settings.Hours)
	if err != nil {
		return err
	}
	j.held = hoursOf(list, partOf)
	return nil
}

func (j *throttleJob) decide(w *world, target workload.Workload) (decision, error) {
	in := throttle.Input{MaxCPU: j.most, Guaranteed: guaranteed(w.podsOf(target.Ref))}
	for _, c := range target.Containers {
		if c.Role == workload.Init {
			continue // It runs to its end, and what holds it up is not measured by the hour.
		}
		in.Containers = append(in.Containers, throttle.Container{
			Name: c.Name, Limit: c.Limits.CPU, Throttled: j.held[part{ownerOf(target.Ref), c.Name}],
		})
	}
	plan := throttle.Decide(in, j.settings)
	out := decision{plan: plan.Plan}
	if plan.State != recommend.Ready {
		return out, nil
	}
	var current, recommended []change
	for _, l := range plan.Limits {
		c, _ := target.Container(l.Container)
		from, to := rightsize.FormatCPU(l.From), rightsize.FormatCPU(l.To)
		before, after := change{container: c.Name, role: c.Role}, change{container: c.Name, role: c.Role}
		limit(&before, &after, corev1.ResourceCPU, &from, &to)
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
func (d *decision) writePatch(kind string, current, recommended []change) error {
	if len(recommended) == 0 {
		return nil
	}
	var err error
	if d.current, err = patchOf(kind, current); err != nil {
		return err
	}
	d.recommended, err = patchOf(kind, recommended)
	return err
}

// guaranteed tells whether there are pods and all of them have that class.
func guaranteed(pods []pod) bool {
	for _, p := range pods {
		if !p.uses.guaranteed {
			return false
		}
	}
	return len(pods) > 0
}
