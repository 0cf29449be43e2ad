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
func testInitial(f *fixture) {
	f.writeHistory("web", 0.2, 100*mib)
	f.Deploy("web", 2)
	f.CreateAll(autoscaler("web", "", "web", updateMode(autoscalingv1alpha1.UpdateModeInitial)))
	f.recommendation("web", "reaches new pods only", func(rec *analysisv1alpha1.Recommendation) error {
		if rec.Spec.Adoption == nil || rec.Spec.Adoption.Reach != analysisv1alpha1.AdoptionReachNewPods || rec.Status.Adoption == nil {
			return errors.New("it does not")
		}

		return nil
	})

	// The requests of new pods are lowered in steps, too.
	f.await("web", "rests", condition("Applied", metav1.ConditionTrue, "Resting", ""))
	before := podUIDs(f.AwaitPods("web", "are untouched", requestsCPU(1000, 2)))

	var all corev1.PodList
	if err := admin.List(f.T.Context(), &all, client.InNamespace(f.Name)); err != nil {
		f.T.Fatal(err)
	}

	for i := range all.Items {
		f.Remove(&all.Items[i])
	}

	after := f.replaced("web", before, 230, 2)
	for uid := range podUIDs(after) {
		if before[uid] {
			f.T.Error("a pod was resized in place, want it replaced")
		}
	}
}

// testInPlace checks that running pods are resized without eviction, and restored in mode Off.
func testInPlace(f *fixture) {
	f.writeHistory("web", 0.2, 100*mib)
	before := f.deployWithUIDs("web", 2)
	f.CreateAll(autoscaler("web", "", "web", updateMode(autoscalingv1alpha1.UpdateModeInPlace)))
	f.samePods(before, f.AwaitPods("web", "are resized", requestsCPU(230, 2)))

	e := f.await("web", "rests", condition("Applied", metav1.ConditionTrue, "Resting", ""))
	if d := decision(e, corev1.ResourceCPU); d.LoweredAt == nil || d.Request == nil || d.Request.MilliValue() > 236 {
		f.T.Errorf("decision on CPU: %+v, want a lowered request of 236m at most", d)
	}

	// Off restores requests like a deletion.
	f.change("web", func(e *autoscalingv1alpha1.EffectiveVerticalPodAutoscaler) {
		off := autoscalingv1alpha1.UpdateModeOff
		e.Spec.UpdatePolicy.UpdateMode = &off
	})
	f.noRecommendation("web")
	f.samePods(before, f.AwaitPods("web", "have what they had", requestsCPU(1000, 2)))
}

// deployWithUIDs creates a Deployment and returns the UIDs of its pods.
func (f *fixture) deployWithUIDs(name string, replicas int32, edit ...func(*appsv1.Deployment)) map[types.UID]bool {
	f.T.Helper()
	f.Deploy(name, replicas, edit...)
	return podUIDs(f.AwaitPods(name, "are ready", func(pods []corev1.Pod) error { return harness.CheckReady(pods, int(replicas)) }))
}

func (f *fixture) samePods(before map[types.UID]bool, after []corev1.Pod) {
	f.T.Helper()

	for uid := range podUIDs(after) {
		if !before[uid] {
			f.T.Error("a pod was replaced, want it resized in place")
		}
	}
}

// testAuto checks that pods that cannot be resized in place, such as BestEffort pods, are evicted and get requests, and that others
// are resized.
func testAuto(f *fixture) {
	f.writeHistory("bare", 0.2, 100*mib)
	before := f.deployWithUIDs("bare", 2, func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.Containers[0].Resources = corev1.ResourceRequirements{}
	})
	f.CreateAll(autoscaler("bare", "", "bare", updateMode(autoscalingv1alpha1.UpdateModeAuto)))

	for uid := range podUIDs(f.replaced("bare", before, 230, 2)) {
		if before[uid] {
			f.T.Error("a BestEffort pod was given requests in place, want it replaced")
		}
	}

	f.writeHistory("web", 0.2, 100*mib)
	first := f.deployWithUIDs("web", 2)
	f.CreateAll(autoscaler("web", "", "web", updateMode(autoscalingv1alpha1.UpdateModeAuto)))
	f.samePods(first, f.AwaitPods("web", "are resized", requestsCPU(230, 2)))
}

// testRecreateDefaulted checks that pods whose request is that of a limit, or the default of a LimitRange, are replaced once, by pods with
// the decided request.
func testRecreateDefaulted(f *fixture) {
	f.CreateAll(&corev1.LimitRange{
		ObjectMeta: metav1.ObjectMeta{Name: "defaults"},
		Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
			Type: corev1.LimitTypeContainer, DefaultRequest: harness.ResourceList("1", "512Mi"),
		}}},
	})

	before := map[string]map[types.UID]bool{}
	for name, limits := range map[string]corev1.ResourceList{"limited": harness.ResourceList("1", ""), "plain": nil} {
		f.writeHistory(name, 0.2, 100*mib)
		before[name] = f.deployWithUIDs(name, 2, func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.Containers[0].Resources = corev1.ResourceRequirements{Limits: limits}
		})
		f.CreateAll(autoscaler(name, "", name, updateMode(autoscalingv1alpha1.UpdateModeRecreate)))
	}

	for name, old := range before {
		after := podUIDs(f.replaced(name, old, 230, 2))
		f.await(name, "rests", condition("Applied", metav1.ConditionTrue, "Resting", ""))
		f.samePods(after, f.AwaitPods(name, "stay", requestsCPU(230, 2)))
	}
}

// testInfeasible checks that a size that exceeds the node moves pods in mode Auto and leaves them in mode InPlace.
func testInfeasible(f *fixture) {
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
		f.writeHistory(name, 2.5, 100*mib) // 2.9 cores, and the node has 2.
		f.Deploy(name, 2, onTight)
	}

	stays := f.AwaitPods("stays", "are on the tight node", onNode("tight"))
	before := podUIDs(f.AwaitPods("moves", "are on the tight node", onNode("tight")))
	f.CreateAll(autoscaler("stays", "", "stays", updateMode(autoscalingv1alpha1.UpdateModeInPlace)))
	f.recommendation("stays", "says why", func(rec *analysisv1alpha1.Recommendation) error {
		if rec.Status.Adoption == nil || !strings.Contains(strings.Join(rec.Status.Adoption.Remarks, "; "), "enough allocatable") {
			return errors.New("it does not")
		}

		return nil
	})

	f.CreateAll(autoscaler("moves", "", "moves", updateMode(autoscalingv1alpha1.UpdateModeAuto)))
	f.replaced("moves", before, 2875, 2)
	f.AwaitPods("moves", "have moved to the roomy node", onNode("roomy"))
	f.samePods(podUIDs(stays), f.AwaitPods("stays", "are where they were", onNode("tight")))
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
func testRecreate(f *fixture) {
	one := intstr.FromInt32(1)
	f.CreateAll(&policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MaxUnavailable: &one, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
		},
	})

	f.writeHistory("web", 0.2, 100*mib)
	before := f.deployWithUIDs("web", 3)
	f.CreateAll(autoscaler("web", "", "web", updateMode(autoscalingv1alpha1.UpdateModeRecreate)))

	after := podUIDs(f.replaced("web", before, 230, 3))
	for uid := range after {
		if before[uid] {
			f.T.Error("a pod was resized in place in mode Recreate, want it replaced")
		}
	}

	f.await("web", "rests", condition("Applied", metav1.ConditionTrue, "Resting", ""))
	f.samePods(after, f.AwaitPods("web", "are left alone then", requestsCPU(230, 3)))

	f.writeHistory("alone", 0.2, 100*mib)
	only := f.deployWithUIDs("alone", 1)
	f.CreateAll(autoscaler("alone", "", "alone", updateMode(autoscalingv1alpha1.UpdateModeRecreate)))
	f.recommendation("alone", "says that it is alone", func(rec *analysisv1alpha1.Recommendation) error {
		if rec.Status.Adoption == nil || !strings.Contains(strings.Join(rec.Status.Adoption.Remarks, "; "), "no pod is evicted with fewer than 2 running") {
			return errors.New("it does not")
		}

		return nil
	})

	f.samePods(only, f.AwaitPods("alone", "are untouched", requestsCPU(1000, 1)))
}

// testTargetDeleted checks that a missing target is reported, and that a new one is sized.
func testTargetDeleted(f *fixture) {
	f.writeHistory("web", 0.2, 100*mib)
	d := f.Deploy("web", 1)
	f.CreateAll(autoscaler("web", "", "web", updateMode(autoscalingv1alpha1.UpdateModeInPlace)))
	f.AwaitPods("web", "are resized", requestsCPU(230, 1))
	f.Remove(d)
	f.await("web", "has lost its target", condition("Ready", metav1.ConditionFalse, "TargetNotFound", "does not exist"))
	f.noRecommendation("web")

	f.Eventually("pods of web are gone", func(ctx context.Context) error {
		var all corev1.PodList
		if err := admin.List(ctx, &all, client.InNamespace(f.Name)); err != nil {
			return err
		}

		if len(all.Items) > 0 {
			return fmt.Errorf("%d are there", len(all.Items))
		}

		return nil
	})

	f.Deploy("web", 1)
	f.AwaitPods("web", "are resized again", requestsCPU(230, 1))
	e := f.await("web", "is ready again", condition("Ready", metav1.ConditionTrue, "", ""))
	f.Remove(e)
	f.AwaitPods("web", "have what they had", requestsCPU(1000, 1))

	f.Eventually("the autoscaler is gone", func(ctx context.Context) error {
		err := admin.Get(ctx, client.ObjectKeyFromObject(e), e)
		if apierrors.IsNotFound(err) {
			return nil
		}

		return errors.Join(err, errors.New("it is there"))
	})
}
