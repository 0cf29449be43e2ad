// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/pkg/recommend"
	"crane.io/crane/pkg/recommend/observation"
	"crane.io/crane/pkg/recommend/volume"
	"crane.io/crane/pkg/series"
)

// volumeRecommender finds persistent volumes that nobody uses.
func volumeRecommender() recommender {
	return recommender{
		name:     string(analysisv1alpha1.AnalysisTypeVolume),
		supports: supportsKinds("PersistentVolume"),
		configure: func(config map[string]string) (evaluator, error) {
			s, err := volume.ParseSettings(config)
			return &volumeEvaluator{settings: s}, err
		},
	}
}

type volumeEvaluator struct {
	settings volume.Settings

	volumes map[string]*corev1.PersistentVolume
	// claims tells of those that there are which volume they have, mounts the pods that mount each, mounted for how many
	// pods did in each hour.
	claims  map[claim]string
	mounts  map[claim][]string
	mounted map[claim]observation.Hours
}

// claim names a persistent volume claim.
type claim struct{ namespace, name string }

func (j *volumeEvaluator) gather(ctx context.Context, w *passData, _ []workload.Workload) error {
	j.volumes, j.claims, j.mounts = map[string]*corev1.PersistentVolume{}, map[claim]string{}, map[claim][]string{}
	err := w.listEach(ctx, func() client.ObjectList { return &corev1.PersistentVolumeList{} }, func(o client.Object) {
		if v, ok := o.(*corev1.PersistentVolume); ok {
			v.Annotations, v.ManagedFields = nil, nil
			j.volumes[v.Name] = v
		}
	})
	if err != nil {
		return err
	}
	err = w.listEach(ctx, func() client.ObjectList { return &corev1.PersistentVolumeClaimList{} }, func(o client.Object) {
		if c, ok := o.(*corev1.PersistentVolumeClaim); ok {
			j.claims[claim{c.Namespace, c.Name}] = c.Spec.VolumeName
		}
	})
	if err != nil {
		return err
	}
	all, err := w.pods(ctx)
	if err != nil {
		return err
	}
	for _, p := range all {
		for _, name := range p.claims {
			key := claim{p.namespace, name}
			j.mounts[key] = append(j.mounts[key], p.Name)
		}
	}
	if err := w.readTemplates(ctx); err != nil {
		return err
	}
	list, err := w.hourlyFigures(ctx, metrics.ClaimMounts, nil, j.settings.Hours)
	if err != nil {
		return err
	}
	j.mounted = hoursByKey(list, func(h metrics.HourlySeries) claim { return claim{h.Key.Workload.Namespace, h.Key.Workload.Name} })
	return nil
}

func (j *volumeEvaluator) decide(w *passData, target workload.Workload) (decision, error) {
	v, known := j.volumes[target.Name]
	if !known {
		return decision{plan: recommend.Plan{State: recommend.Clear, Description: "It is gone."}}, nil
	}
	since := v.CreationTimestamp.Time
	if t := v.Status.LastPhaseTransitionTime; t != nil {
		since = t.Time
	}
	in := volume.Input{
		Phase: volume.Phase(v.Status.Phase), Capacity: series.Bytes(v.Spec.Capacity.Storage().Value()),
		KeepsData: v.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRetain,
		Since:     w.now.Sub(since).Truncate(time.Hour),
	}
	if ref := v.Spec.ClaimRef; ref != nil {
		key := claim{ref.Namespace, ref.Name}
		has, there := j.claims[key]
		in.Claim = ref.Namespace + "/" + ref.Name
		in.ClaimGone = !there || has != v.Name // A claim of that name may have another volume by now.
		in.MountingPods, in.MatchingWorkloads, in.Mounted = j.mounts[key], w.objects.templates.claimUsers(key), j.mounted[key]
	}
	return decision{plan: volume.Decide(in, j.settings)}, nil
}
