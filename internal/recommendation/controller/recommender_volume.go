// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"

	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/pkg/recommend"
	"crane.io/crane/pkg/recommend/observation"
	"crane.io/crane/pkg/recommend/volume"
	"crane.io/crane/pkg/units"
)

// volumeEvaluator finds unused persistent volumes.
type volumeEvaluator struct {
	settings volume.Settings

	volumes map[string]*corev1.PersistentVolume
	// claims maps each existing claim to its volume, mounts to the pods that mount it, and mounted to their number in each
	// hour.
	claims  map[claim]string
	mounts  map[claim][]string
	mounted map[claim]observation.Hours
}

// claim names a PersistentVolumeClaim.
type claim struct{ namespace, name string }

func (e *volumeEvaluator) gather(ctx context.Context, d *runData, _ []workload.Workload) error {
	e.volumes = map[string]*corev1.PersistentVolume{}
	e.claims = map[claim]string{}

	e.mounts = map[claim][]string{}
	err := listEach(ctx, d, &corev1.PersistentVolumeList{}, func(v *corev1.PersistentVolume) {
		v.Annotations = nil
		v.ManagedFields = nil
		e.volumes[v.Name] = v
	})
	if err != nil {
		return err
	}

	err = listEach(ctx, d, &corev1.PersistentVolumeClaimList{}, func(c *corev1.PersistentVolumeClaim) {
		e.claims[claim{c.Namespace, c.Name}] = c.Spec.VolumeName
	})
	if err != nil {
		return err
	}

	all, err := d.pods(ctx)
	if err != nil {
		return err
	}

	// A claim is in use if a pod mounts it, or if a template would mount it in its next pod.
	for _, p := range all {
		for _, name := range p.claims {
			key := claim{p.namespace, name}
			e.mounts[key] = append(e.mounts[key], p.Name)
		}
	}

	if err := d.readTemplates(ctx); err != nil {
		return err
	}

	e.mounted, err = readHours(ctx, d, metrics.ClaimMounts, nil, e.settings.Hours, func(h metrics.HourlySeries) claim {
		return claim{h.Key.Workload.Namespace, h.Key.Workload.Name}
	})

	return err
}

func (e *volumeEvaluator) decide(d *runData, target workload.Workload) (decision, error) {
	v, exists := e.volumes[target.Name]
	if !exists {
		return decision{plan: recommend.ClearPlan("It is gone.")}, nil
	}

	since := v.CreationTimestamp.Time
	if t := v.Status.LastPhaseTransitionTime; t != nil {
		since = t.Time
	}

	in := volume.Input{
		Phase:     volume.Phase(v.Status.Phase),
		Capacity:  units.Bytes(v.Spec.Capacity.Storage().Value()),
		KeepsData: v.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRetain,
		Since:     d.now.Sub(since).Truncate(time.Hour),
	}

	if ref := v.Spec.ClaimRef; ref != nil {
		key := claim{ref.Namespace, ref.Name}
		volumeName, exists := e.claims[key]
		in.Claim = ref.Namespace + "/" + ref.Name
		in.ClaimGone = !exists || volumeName != v.Name // The claim may have another volume by now.
		in.MountingPods = e.mounts[key]
		in.MatchingWorkloads = d.objects.templates.claimUsers(key)
		in.Mounted = e.mounted[key]
	}

	return decision{plan: volume.Decide(in, e.settings)}, nil
}
