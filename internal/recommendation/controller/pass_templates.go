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
	"k8s.io/apimachinery/pkg/labels"
)

// template is what recommenders need of the pods that a workload would make, of workloads that have none at the moment.
type template struct {
	namespace, workload string
	labels              labels.Set
	claims              []string
	// claimPrefixes tells of the claims that a StatefulSet has made for its pods: the names begin with these, and a number below
	// the bound follows.
	claimPrefixes []string
	ordinalEnd    int
}

// templates are those of a cluster.
type templates struct {
	byNamespace map[string][]template
	read        bool
}

// readTemplates lists workloads of the kinds that are watched anyway.
func (w *passData) readTemplates(ctx context.Context) error {
	if w.objects.templates.read {
		return nil
	}
	t := templates{byNamespace: map[string][]template{}, read: true}
	var deployments appsv1.DeploymentList
	var sets appsv1.StatefulSetList
	var daemons appsv1.DaemonSetList
	var crons batchv1.CronJobList
	if err := w.reader.List(ctx, &deployments); err != nil {
		return fmt.Errorf("listing Deployments: %w", err)
	}
	for i := range deployments.Items {
		d := &deployments.Items[i]
		t.add(d.Namespace, "Deployment "+d.Name, &d.Spec.Template)
	}
	if err := w.reader.List(ctx, &sets); err != nil {
		return fmt.Errorf("listing StatefulSets: %w", err)
	}
	for i := range sets.Items {
		t.addStatefulSet(&sets.Items[i])
	}
	if err := w.reader.List(ctx, &daemons); err != nil {
		return fmt.Errorf("listing DaemonSets: %w", err)
	}
	for i := range daemons.Items {
		d := &daemons.Items[i]
		t.add(d.Namespace, "DaemonSet "+d.Name, &d.Spec.Template)
	}
	if err := w.reader.List(ctx, &crons); err != nil {
		return fmt.Errorf("listing CronJobs: %w", err)
	}
	for i := range crons.Items {
		c := &crons.Items[i]
		t.add(c.Namespace, "CronJob "+c.Name, &c.Spec.JobTemplate.Spec.Template)
	}
	w.objects.templates = t
	return nil
}

func (t templates) add(namespace, name string, of *corev1.PodTemplateSpec) *template {
	one := template{namespace: namespace, workload: name, labels: of.Labels}
	for i := range of.Spec.Volumes {
		if c := of.Spec.Volumes[i].PersistentVolumeClaim; c != nil {
			one.claims = append(one.claims, c.ClaimName)
		}
	}
	t.byNamespace[namespace] = append(t.byNamespace[namespace], one)
	return &t.byNamespace[namespace][len(t.byNamespace[namespace])-1]
}

// addStatefulSet knows the claims that a StatefulSet makes. One that is scaled to zero would have any of them back; one that runs
// has use for as many as it has replicas.
func (t templates) addStatefulSet(s *appsv1.StatefulSet) {
	one := t.add(s.Namespace, "StatefulSet "+s.Name, &s.Spec.Template)
	one.ordinalEnd = 1
	if s.Spec.Replicas != nil {
		one.ordinalEnd = int(*s.Spec.Replicas)
	}
	if s.Spec.Ordinals != nil && one.ordinalEnd > 0 {
		one.ordinalEnd += int(s.Spec.Ordinals.Start)
	}
	for i := range s.Spec.VolumeClaimTemplates {
		one.claimPrefixes = append(one.claimPrefixes, s.Spec.VolumeClaimTemplates[i].Name+"-"+s.Name+"-")
	}
}

// claimUsers names the workloads whose pods would mount a claim.
func (t templates) claimUsers(c claim) []string {
	var out []string
	for _, one := range t.byNamespace[c.namespace] {
		if one.usesClaim(c.name) {
			out = append(out, one.workload)
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

// selectedBy names the workloads whose pods a selector would choose.
func (t templates) selectedBy(namespace string, selector labels.Selector) []string {
	var out []string
	for _, one := range t.byNamespace[namespace] {
		if selector.Matches(one.labels) {
			out = append(out, one.workload)
		}
	}
	return out
}
