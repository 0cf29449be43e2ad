// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// template holds the parts of a pod template that recommenders need, so that workloads without pods count too.
type template struct {
	namespace, workload string
	labels              labels.Set
	claims              []string
	// claimPrefixes are the prefixes of the claims that a StatefulSet creates for its pods; an ordinal below ordinalEnd
	// follows, or any ordinal if ordinalEnd is 0.
	claimPrefixes []string
	ordinalEnd    int
}

// templates are the pod templates of a cluster.
type templates struct {
	byNamespace map[string][]template
	read        bool
}

// readTemplates lists the workloads of the watched kinds.
func (d *runData) readTemplates(ctx context.Context) error {
	if d.objects.templates.read {
		return nil
	}

	t := templates{byNamespace: map[string][]template{}, read: true}
	for _, list := range []client.ObjectList{&appsv1.DeploymentList{}, &appsv1.StatefulSetList{}, &appsv1.DaemonSetList{}, &batchv1.CronJobList{}} {
		for _, namespace := range d.scopes() {
			err := d.reader.List(ctx, list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy)
			if err == nil {
				err = meta.EachListItem(list, func(o runtime.Object) error {
					t.addWorkload(o)
					return nil
				})
			}

			if err != nil {
				return fmt.Errorf("listing %T: %w", list, err)
			}
		}
	}

	d.objects.templates = t
	return nil
}

func (t templates) addWorkload(o runtime.Object) {
	switch w := o.(type) {
	case *appsv1.Deployment:
		t.add(w.Namespace, "Deployment "+w.Name, &w.Spec.Template)
	case *appsv1.StatefulSet:
		t.addStatefulSet(w)
	case *appsv1.DaemonSet:
		t.add(w.Namespace, "DaemonSet "+w.Name, &w.Spec.Template)
	case *batchv1.CronJob:
		t.add(w.Namespace, "CronJob "+w.Name, &w.Spec.JobTemplate.Spec.Template)
	}
}

func (t templates) add(namespace, name string, podTemplate *corev1.PodTemplateSpec) *template {
	added := template{namespace: namespace, workload: name, labels: podTemplate.Labels}
	for i := range podTemplate.Spec.Volumes {
		if c := podTemplate.Spec.Volumes[i].PersistentVolumeClaim; c != nil {
			added.claims = append(added.claims, c.ClaimName)
		}
	}

	t.byNamespace[namespace] = append(t.byNamespace[namespace], added)
	return &t.byNamespace[namespace][len(t.byNamespace[namespace])-1]
}

// addStatefulSet adds a StatefulSet with the claims that it creates. With zero replicas it may use any of them again; otherwise
// it uses one of each claim template per replica.
func (t templates) addStatefulSet(s *appsv1.StatefulSet) {
	added := t.add(s.Namespace, "StatefulSet "+s.Name, &s.Spec.Template)
	added.ordinalEnd = 1
	if s.Spec.Replicas != nil {
		added.ordinalEnd = int(*s.Spec.Replicas)
	}
	if s.Spec.Ordinals != nil && added.ordinalEnd > 0 {
		added.ordinalEnd += int(s.Spec.Ordinals.Start)
	}

	for i := range s.Spec.VolumeClaimTemplates {
		added.claimPrefixes = append(added.claimPrefixes, s.Spec.VolumeClaimTemplates[i].Name+"-"+s.Name+"-")
	}
}

// claimUsers returns the workloads whose pods would mount a claim.
func (t templates) claimUsers(c claim) []string {
	var out []string
	for _, candidate := range t.byNamespace[c.namespace] {
		if candidate.usesClaim(c.name) {
			out = append(out, candidate.workload)
		}
	}

	return out
}

func (t template) usesClaim(claim string) bool {
	if slices.Contains(t.claims, claim) {
		return true
	}

	for _, prefix := range t.claimPrefixes {
		rest, found := strings.CutPrefix(claim, prefix)
		if !found {
			continue
		}

		if n, err := strconv.Atoi(rest); err == nil && n >= 0 && (t.ordinalEnd == 0 || n < t.ordinalEnd) {
			return true
		}
	}

	return false
}

// selectedBy returns the workloads whose pods a selector would match.
func (t templates) selectedBy(namespace string, selector labels.Selector) []string {
	var out []string
	for _, candidate := range t.byNamespace[namespace] {
		if selector.Matches(candidate.labels) {
			out = append(out, candidate.workload)
		}
	}

	return out
}
