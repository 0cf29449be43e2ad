// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package evpa_test

import (
	"context"
	"errors"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	"crane.io/crane/test/integration/harness"
)

// podUIDs returns the UIDs of pods.
func podUIDs(pods []corev1.Pod) map[types.UID]bool {
	out := map[types.UID]bool{}
	for i := range pods {
		out[pods[i].UID] = true
	}

	return out
}

// testInitial checks that running pods stay unchanged, and that new ones get the decided requests.
func testInitial(w *fixture) {
	w.writeHistory("web", 0.2, 100*mib)
	w.Deploy("web", 2)
	w.CreateAll(autoscaler("web", "", "web", updateMode(autoscalingv1alpha1.UpdateModeInitial)))
	w.recommendation("web", "reaches new pods only", func(rec *analysisv1alpha1.Recommendation) error {
		if rec.Spec.Adoption == nil || rec.Spec.Adoption.Reach != analysisv1alpha1.AdoptionReachNewPods || rec.Status.Adoption == nil {
			return errors.New("it does not")
		}

		return nil
	})

	// The requests of new pods are lowered in steps, too.
	w.await("web", "rests", condition("Applied", metav1.ConditionTrue, "Resting", ""))
	before := podUIDs(w.AwaitPods("web", "are untouched", requestsCPU(1000, 2)))

	var all corev1.PodList
	if err := admin.List(w.T.Context(), &all, client.InNamespace(w.Name)); err != nil {
		w.T.Fatal(err)
	}

	for i := range all.Items {
		w.Remove(&all.Items[i])
	}

	after := w.replaced("web", before, 230, 2)
	for uid := range podUIDs(after) {
		if before[uid] {
			w.T.Error("a pod was resized in place, want it replaced")
		}
	}
}

// testInPlace checks that running pods are resized without eviction, and restored in mode Off.
func testInPlace(w *fixture) {
	w.writeHistory("web", 0.2, 100*mib)
	before := w.deployWithUIDs("web", 2)
	w.CreateAll(autoscaler("web", "", "web", updateMode(autoscalingv1alpha1.UpdateModeInPlace)))
	w.samePods(before, w.AwaitPods("web", "are resized", requestsCPU(230, 2)))

	e := w.await("web", "rests", condition("Applied", metav1.ConditionTrue, "Resting", ""))
	if d := decision(e, corev1.ResourceCPU); d.LoweredAt == nil || d.Request == nil || d.Request.MilliValue() > 236 {
		w.T.Errorf("decision on CPU: %+v, want a lowered request of 236m at most", d)
	}

	// Off restores requests like a deletion.
	w.change("web", func(e *autoscalingv1alpha1.EffectiveVerticalPodAutoscaler) {
		off := autoscalingv1alpha1.UpdateModeOff
		e.Spec.UpdatePolicy.UpdateMode = &off
	})
	w.noRecommendation("web")
	w.samePods(before, w.AwaitPods("web", "have what they had", requestsCPU(1000, 2)))
}

// deployWithUIDs creates a Deployment and returns the UIDs of its pods.
func (w *fixture) deployWithUIDs(name string, replicas int32, edit ...func(*appsv1.Deployment)) map[types.UID]bool {
	w.T.Helper()
	w.Deploy(name, replicas, edit...)
	return podUIDs(w.AwaitPods(name, "are ready", func(pods []corev1.Pod) error { return harness.CheckReady(pods, int(replicas)) }))
}

func (w *fixture) samePods(before map[types.UID]bool, after []corev1.Pod) {
	w.T.Helper()

	for uid := range podUIDs(after) {
		if !before[uid] {
			w.T.Error("a pod was replaced, want it resized in place")
		}
	}
}

// testAuto checks that pods that cannot be resized in place, such as BestEffort pods, are evicted and get requests, and that others
// are resized.
func testAuto(w *fixture) {
	w.writeHistory("bare", 0.2, 100*mib)
	before := w.deployWithUIDs("bare", 2, func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.Containers[0].Resources = corev1.ResourceRequirements{}
	})
	w.CreateAll(autoscaler("bare", "", "bare", updateMode(autoscalingv1alpha1.UpdateModeAuto)))

	for uid := range podUIDs(w.replaced("bare", before, 230, 2)) {
		if before[uid] {
			w.T.Error("a BestEffort pod was given requests in place, want it replaced")
		}
	}

	w.writeHistory("web", 0.2, 100*mib)
	first := w.deployWithUIDs("web", 2)
	w.CreateAll(autoscaler("web", "", "web", updateMode(autoscalingv1alpha1.UpdateModeAuto)))
	w.samePods(first, w.AwaitPods("web", "are resized", requestsCPU(230, 2)))
}

// testInfeasible checks that a size that exceeds the node moves pods in mode Auto and leaves them in mode InPlace.
func testInfeasible(w *fixture) {
	onTight := func(d *appsv1.Deployment) {
		spec := &d.Spec.Template.Spec
		spec.NodeSelector = map[string]string{"pool": "tight"}
		spec.Containers[0].Resources.Requests = harness.ResourceList("300m", "128Mi")
		spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{
				Weight:     100,
				Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "node", Operator: corev1.NodeSelectorOpIn, Values: []string{"tight"}}}},
			}},
		}}
	}

	for _, name := range []string{"stays", "moves"} {
		w.writeHistory(name, 2.5, 100*mib) // 2.9 cores, and the node has 2.
		w.Deploy(name, 2, onTight)
	}

	stays := w.AwaitPods("stays", "are on the tight node", onNode("tight"))
	before := podUIDs(w.AwaitPods("moves", "are on the tight node", onNode("tight")))
	w.CreateAll(autoscaler("stays", "", "stays", updateMode(autoscalingv1alpha1.UpdateModeInPlace)))
	w.recommendation("stays", "says why", func(rec *analysisv1alpha1.Recommendation) error {
		if rec.Status.Adoption == nil || !strings.Contains(strings.Join(rec.Status.Adoption.Remarks, "; "), "enough allocatable") {
			return errors.New("it does not")
		}

		return nil
	})

	w.CreateAll(autoscaler("moves", "", "moves", updateMode(autoscalingv1alpha1.UpdateModeAuto)))
	w.replaced("moves", before, 2875, 2)
	w.AwaitPods("moves", "have moved to the roomy node", onNode("roomy"))
	w.samePods(podUIDs(stays), w.AwaitPods("stays", "are where they were", onNode("tight")))
}

func onNode(name string) func([]corev1.Pod) error {
	return func(pods []corev1.Pod) error {
		for i := range pods {
			if pods[i].Spec.NodeName != name {
				return fmt.Errorf("pod %s is on %q", pods[i].Name, pods[i].Spec.NodeName)
			}
		}

		return harness.CheckReady(pods, 2)
	}
}

// testRecreate checks that all pods are replaced within the disruption budget, but never the last one.
func testRecreate(w *fixture) {
	one := intstr.FromInt32(1)
	w.CreateAll(&policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MaxUnavailable: &one, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
		},
	})

	w.writeHistory("web", 0.2, 100*mib)
	before := w.deployWithUIDs("web", 3)
	w.CreateAll(autoscaler("web", "", "web", updateMode(autoscalingv1alpha1.UpdateModeRecreate)))

	after := podUIDs(w.replaced("web", before, 230, 3))
	for uid := range after {
		if before[uid] {
			w.T.Error("a pod was resized in place in mode Recreate, want it replaced")
		}
	}

	w.await("web", "rests", condition("Applied", metav1.ConditionTrue, "Resting", ""))
	w.samePods(after, w.AwaitPods("web", "are left alone then", requestsCPU(230, 3)))

	w.writeHistory("alone", 0.2, 100*mib)
	only := w.deployWithUIDs("alone", 1)
	w.CreateAll(autoscaler("alone", "", "alone", updateMode(autoscalingv1alpha1.UpdateModeRecreate)))
	w.recommendation("alone", "says that it is alone", func(rec *analysisv1alpha1.Recommendation) error {
		if rec.Status.Adoption == nil || !strings.Contains(strings.Join(rec.Status.Adoption.Remarks, "; "), "no pod is evicted with fewer than 2 running") {
			return errors.New("it does not")
		}

		return nil
	})

	w.samePods(only, w.AwaitPods("alone", "are untouched", requestsCPU(1000, 1)))
}

// testTargetDeleted checks that a missing target is reported, and that a new one is sized.
func testTargetDeleted(w *fixture) {
	w.writeHistory("web", 0.2, 100*mib)
	d := w.Deploy("web", 1)
	w.CreateAll(autoscaler("web", "", "web", updateMode(autoscalingv1alpha1.UpdateModeInPlace)))
	w.AwaitPods("web", "are resized", requestsCPU(230, 1))
	w.Remove(d)
	w.await("web", "has lost its target", condition("Ready", metav1.ConditionFalse, "TargetNotFound", "does not exist"))
	w.noRecommendation("web")

	w.Eventually("pods of web are gone", func(ctx context.Context) error {
		var all corev1.PodList
		if err := admin.List(ctx, &all, client.InNamespace(w.Name)); err != nil {
			return err
		}

		if len(all.Items) > 0 {
			return fmt.Errorf("%d are there", len(all.Items))
		}

		return nil
	})

	w.Deploy("web", 1)
	w.AwaitPods("web", "are resized again", requestsCPU(230, 1))
	e := w.await("web", "is ready again", condition("Ready", metav1.ConditionTrue, "", ""))
	w.Remove(e)
	w.AwaitPods("web", "have what they had", requestsCPU(1000, 1))

	w.Eventually("the autoscaler is gone", func(ctx context.Context) error {
		err := admin.Get(ctx, client.ObjectKeyFromObject(e), e)
		if apierrors.IsNotFound(err) {
			return nil
		}

		return errors.Join(err, errors.New("it is there"))
	})
}
