// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package craned_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/test/integration/harness"
)

// TestAnnotatesEveryKind checks that the value of a Recommendation replaces the annotation that gocrane left on workloads of each built-in kind.
func TestAnnotatesEveryKind(t *testing.T) {
	c := newClient(t)
	const ns = "kinds"
	meta := metav1.ObjectMeta{Namespace: ns, Name: "work"}
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "work"}}
	once := template("work", "app")
	once.Spec.RestartPolicy = corev1.RestartPolicyNever

	targets := map[string]client.Object{
		"apps/v1 Deployment":  deployment(ns, "work"),
		"apps/v1 StatefulSet": statefulSet(ns, "work", "app"),
		"apps/v1 DaemonSet":   &appsv1.DaemonSet{ObjectMeta: meta, Spec: appsv1.DaemonSetSpec{Selector: selector, Template: template("work", "app")}},
		"apps/v1 ReplicaSet":  &appsv1.ReplicaSet{ObjectMeta: meta, Spec: appsv1.ReplicaSetSpec{Selector: selector, Template: template("work", "app")}},
		"batch/v1 Job":        &batchv1.Job{ObjectMeta: meta, Spec: batchv1.JobSpec{Suspend: new(true), Template: once}},
		"batch/v1 CronJob": &batchv1.CronJob{ObjectMeta: meta, Spec: batchv1.CronJobSpec{
			Schedule: "0 0 1 1 *", Suspend: new(true), JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: once}},
		}},
	}

	startCraned(t, harness.NoPrometheus)
	for kind, target := range targets {
		create(t, c, target)
		version, name, _ := strings.Cut(kind, " ")

		// As gocrane's craned left it, which wrote annotations by updates of the status.
		// The controllers of the kinds may write in between.
		if err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(target), target); err != nil {
				return err
			}

			target.SetAnnotations(map[string]string{analysisv1alpha1.AnnotationResourceRecommendation: "old"})
			return c.Status().Update(t.Context(), target, client.FieldOwner("craned"))
		}); err != nil {
			t.Fatal(err)
		}

		rec := &analysisv1alpha1.Recommendation{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: strings.ToLower(name)},
			Spec: analysisv1alpha1.RecommendationSpec{
				Type: analysisv1alpha1.AnalysisTypeResource, AdoptionType: analysisv1alpha1.AdoptionTypeStatusAndAnnotation,
				TargetRef: corev1.ObjectReference{APIVersion: version, Kind: name, Namespace: ns, Name: "work"},
			},
		}

		create(t, c, rec)
		rec.Status.RecommendedValue = "resourceRequest:\n  containers:\n  - containerName: app\n    target: {cpu: 120m, memory: 128Mi}\n"
		if err := c.Status().Update(t.Context(), rec); err != nil {
			t.Fatal(err)
		}
	}

	for kind, target := range targets {
		eventually(t, kind+" has the annotation", func(ctx context.Context) error {
			if err := c.Get(ctx, client.ObjectKeyFromObject(target), target); err != nil {
				return err
			}

			if value := target.GetAnnotations()[analysisv1alpha1.AnnotationResourceRecommendation]; !strings.Contains(value, "cpu: 120m") {
				return fmt.Errorf("annotation %q", value)
			}

			return nil
		})
	}
}
