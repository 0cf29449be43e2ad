// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/pkg/adoption"
	"crane.io/crane/test/integration/harness"
)

const auto = analysisv1alpha1.AdoptionTypeAuto

// TestAdoption adopts the workloads of many parallel tests with one craned.
func TestAdoption(t *testing.T) {
	startCraned(t)
	for name, test := range map[string]func(*testing.T){
		"decrease in steps":         testDecrease,
		"increase in one step":      testIncrease,
		"rollback":                  testRollback,
		"owner changes the request": testOwnerChange,
		"opted out":                 testOptedOut,
		"disruption budget":         testDisruptionBudget,
		"node too small":            testNodeTooSmall,
		"target deleted":            testTargetDeleted,
		"namespace deleted":         testNamespaceDeleted,
		"unreadable state":          testUnreadableState,
		"replicas":                  testReplicas,
		"replicas of a StatefulSet": testReplicasOfStatefulSet,
		"template":                  testTemplate,
		"QoS classes":               testQOSClasses,
		"recommendation deleted":    testRecommendationDeleted,
		"stateful set":              testStatefulSet,
		"other kinds":               testOtherKinds,
		"second apply by GitOps":    testSecondApply,
		"unmanaged autoscaler":      testUnmanagedAutoscaler,
		"managed autoscaler":        testManagedAutoscaler,
		"autoscaler rejects":        testAutoscalerRejects,
		"adopt command":             testAdoptCommand,
	} {
		t.Run(name, func(t *testing.T) { t.Parallel(); test(t) })
	}
}

// testDecrease checks that requests are lowered in place in two steps, without restarts, without a change of the template,
// with an event for each step and with craned's field manager, and that they are restored when adoption is turned off.
func testDecrease(t *testing.T) {
	f := newFixture(t)
	f.Deploy("web", 4)
	before := f.Pods("web")
	rec := f.recommend("web", auto, "600m", "512Mi")
	after := f.AwaitPods("web", "have the recommended requests", checkRequests("600m", "512Mi"))
	f.awaitPhase("web", adoption.Resting)

	existing := map[types.UID]bool{}
	for _, p := range before {
		existing[p.UID] = true
	}

	for _, p := range after {
		if !existing[p.UID] || p.Status.ContainerStatuses[0].RestartCount != 0 {
			t.Errorf("pod %s was replaced or restarted, want neither", p.Name)
		}
		if p.Generation != 3 { // One change of the spec for each of the two steps.
			t.Errorf("pod %s has generation %d, want 3: one resize for each step", p.Name, p.Generation)
		}

		if !slices.ContainsFunc(p.ManagedFields, func(f metav1.ManagedFieldsEntry) bool {
			return f.Manager == "craned-adoption-resource" && f.Subresource == "resize" && f.Operation == metav1.ManagedFieldsOperationApply
		}) {
			t.Errorf("pod %s has the managers %v, want craned-adoption-resource", p.Name, p.ManagedFields)
		}
	}

	d, err := f.deployment(t.Context(), "web")
	if err != nil {
		t.Fatal(err)
	}

	if cpu := d.Spec.Template.Spec.Containers[0].Resources.Requests.Cpu().String(); cpu != "1" {
		t.Errorf("the template requests %s of CPU, want 1", cpu)
	}

	s := f.state("web")
	if s.Steps != 2 || s.Owner != "owner" || s.Original.String() != "app: cpu 1, memory 512Mi" {
		t.Errorf("state %+v, want two steps and the original requests", s)
	}

	f.Eventually("an event for each step", func(ctx context.Context) error {
		n, err := f.countEvents(ctx, "web", "AdoptionStep")
		if err == nil && n != 2 {
			err = fmt.Errorf("%d events, want 2", n)
		}

		return err
	})

	setAdoptionType(t, rec, analysisv1alpha1.AdoptionTypeStatusAndAnnotation)
	f.AwaitPods("web", "have the original requests", checkRequests("1", "512Mi"))
	f.awaitStateRemoved()
}

// testIncrease checks that requests are raised in one step.
func testIncrease(t *testing.T) {
	f := newFixture(t)
	f.Deploy("web", 3)
	f.recommend("web", auto, "2", "1Gi")
	checkGeneration(t, f.AwaitPods("web", "have the raised requests", checkRequests("2", "1Gi")), 2)
	f.awaitEvent("web", "AdoptionRaised")
}

// testRollback checks that a memory limit is restored when its container is OOM-killed after the limit was lowered.
func testRollback(t *testing.T) {
	f := newFixture(t)
	f.Deploy("web", 2, func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.Containers[0].Resources.Limits = harness.ResourceList("", "512Mi")
		d.Spec.Template.Spec.Containers[0].Resources.Requests = harness.ResourceList("1", "512Mi")
	})
	rec := f.recommend("web", analysisv1alpha1.AdoptionTypeStatus, "1", "128Mi")
	info := `{"spec":{"template":{"spec":{"containers":[{"name":"app","resources":{"requests":{"cpu":"1","memory":"128Mi"},"limits":{"memory":"128Mi"}}}]}}}}`
	setStatus(t, rec, "recommendedInfo", info)
	setAdoptionType(t, rec, auto)

	f.AwaitPods("web", "have the lowered requests", func(pods []corev1.Pod) error {
		for i := range pods {
			if m := pods[i].Spec.Containers[0].Resources.Limits.Memory(); m.Value() >= 512<<20 {
				return fmt.Errorf("pod %s has a limit of %s", pods[i].Name, m)
			}
		}

		return nil
	})

	load.set(f.Name, 400<<20)
	f.AwaitPods("web", "have the original limit", func(pods []corev1.Pod) error {
		for i := range pods {
			if m := pods[i].Spec.Containers[0].Resources.Limits.Memory(); m.Value() < 500<<20 {
				return fmt.Errorf("pod %s has a limit of %s", pods[i].Name, m)
			}
		}

		return nil
	})

	f.awaitPhase("web", adoption.Held)
	f.awaitEvent("web", "AdoptionRolledBack")

	// An OOM kill after the watch of the first step reverts the second step, and the next kill reverts all steps.
	s := f.state("web")
	if !s.Current.Equal(s.Previous) || !s.Current.Equal(s.Original) || s.Rollbacks != min(s.Steps, 2) {
		t.Errorf("state %+v, want the original requests after %d rollbacks", s, min(s.Steps, 2))
	}
}

// testOwnerChange checks that adoption stops when the owner changes an adopted request, whose value stays.
func testOwnerChange(t *testing.T) {
	f := newFixture(t)
	d := f.Deploy("web", 2)
	f.recommend("web", auto, "700m", "512Mi")
	f.AwaitPods("web", "have the lowered requests", checkRequests("700m", "512Mi"))
	f.awaitPhase("web", adoption.Resting)
	patchAsOwner(t, d, `{"spec":{"template":{"spec":{"containers":[{"name":"app","resources":{"requests":{"cpu":"1500m"}}}]}}}}`)
	f.awaitNotAdopted("web", "Stopped")
	f.awaitEvent("web", "AdoptionStopped")
	f.AwaitPods("web", "have the owner's requests", checkRequests("1500m", "512Mi"))
}

// testOptedOut checks that a Deployment with the opt-out label is not changed until the label is removed.
func testOptedOut(t *testing.T) {
	f := newFixture(t)
	d := f.Deploy("web", 1, func(d *appsv1.Deployment) { d.Labels = map[string]string{"analysis.crane.io/adoption": "disabled"} })
	f.recommend("web", auto, "2", "512Mi")
	f.awaitMessage("web", "opted out")
	f.AwaitPods("web", "are unchanged", checkRequests("1", "512Mi"))
	patchAsOwner(t, d, `{"metadata":{"labels":{"analysis.crane.io/adoption":null}}}`)
	f.AwaitPods("web", "have the raised requests", checkRequests("2", "512Mi"))
}

// testDisruptionBudget checks that a resize that restarts containers waits for the PodDisruptionBudget.
func testDisruptionBudget(t *testing.T) {
	f := newFixture(t)
	most := intstr.FromInt32(0)
	pdb := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.Name, Name: "web"},
		Spec:       policyv1.PodDisruptionBudgetSpec{MaxUnavailable: &most, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
	}

	if err := admin.Create(t.Context(), pdb); err != nil {
		t.Fatal(err)
	}

	f.Deploy("web", 2, func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.Containers[0].ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: corev1.ResourceMemory, RestartPolicy: corev1.RestartContainer}}
	})
	f.recommend("web", auto, "1", "1Gi")
	f.awaitMessage("web", "disruption budget")
	f.AwaitPods("web", "are unchanged", checkRequests("1", "512Mi"))
	patchAsOwner(t, pdb, `{"spec":{"maxUnavailable":1}}`)
	f.AwaitPods("web", "have the raised requests", func(pods []corev1.Pod) error {
		return errors.Join(harness.CheckReady(pods, 2), checkRequests("1", "1Gi")(pods))
	})
}

// testNodeTooSmall checks that a resize is reported and sent once if the node lacks allocatable resources for it, now or
// in principle.
func testNodeTooSmall(t *testing.T) {
	f := newFixture(t)
	tight := func(d *appsv1.Deployment) { d.Spec.Template.Spec.NodeSelector = map[string]string{"pool": "tight"} }
	f.Deploy("web", 1, tight)

	// The API server rejects a request that exceeds the size of the node.
	f.recommend("web", auto, "40", "512Mi")
	f.awaitMessage("web", "didn't have enough allocatable")
	f.Deploy("db", 1, tight, func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.Containers[0].Resources.Requests = harness.ResourceList("500m", "128Mi")
	})
	f.recommend("db", auto, "1900m", "128Mi")
	f.awaitMessage("db", "resize Deferred")

	for name, generation := range map[string]int64{"web": 1, "db": 2} {
		if pods := f.Pods(name); len(pods) != 1 || pods[0].Generation != generation {
			t.Errorf("%s: pods %v, want one with generation %d", name, pods, generation)
		}
	}
}

// testTargetDeleted checks the condition after the target was deleted during a step.
func testTargetDeleted(t *testing.T) {
	f := newFixture(t)
	d := f.Deploy("web", 4)
	f.recommend("web", auto, "100m", "512Mi")
	f.awaitFirstStep("web")

	if err := admin.Delete(t.Context(), d); err != nil {
		t.Fatal(err)
	}

	f.awaitNotAdopted("web", "TargetGone")
}

// testNamespaceDeleted checks that adoption does not block the deletion of a namespace.
func testNamespaceDeleted(t *testing.T) {
	f := newFixture(t)
	f.Deploy("web", 2)
	f.recommend("web", auto, "100m", "512Mi")

	if err := admin.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: f.Name}}); err != nil {
		t.Fatal(err)
	}

	f.Eventually("the namespace is gone", func(ctx context.Context) error {
		err := admin.Get(ctx, client.ObjectKey{Name: f.Name}, &corev1.Namespace{})
		if apierrors.IsNotFound(err) {
			return nil
		}

		return fmt.Errorf("it exists: %w", err)
	})
}

// testUnreadableState checks that a Deployment with an unreadable state is not changed until the state is removed.
func testUnreadableState(t *testing.T) {
	f := newFixture(t)
	d := f.Deploy("web", 1, func(d *appsv1.Deployment) {
		d.Annotations = map[string]string{analysisv1alpha1.AnnotationAdoption: "nonsense"}
	})
	f.recommend("web", auto, "2", "512Mi")
	f.awaitNotAdopted("web", "UnreadableState")
	f.AwaitPods("web", "are unchanged", checkRequests("1", "512Mi"))
	patchAsOwner(t, d, `{"metadata":{"annotations":{"analysis.crane.io/adoption":null}}}`)
	f.AwaitPods("web", "have the raised requests", checkRequests("2", "512Mi"))
}
