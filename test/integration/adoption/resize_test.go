// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption_test

import (
	"context"
	"errors"
	"fmt"
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
)

const auto = analysisv1alpha1.AdoptionTypeAuto

// TestAdoption is what one craned does with the workloads of many tests at once.
func TestAdoption(t *testing.T) {
	startCraned(t)
	for name, test := range map[string]func(*testing.T){
		"down in place":       testDown,
		"up at once":          testUp,
		"roll-back":           testRollBack,
		"drift":               testDrift,
		"opted out":           testOptedOut,
		"disruption budget":   testDisruptionBudget,
		"no room":             testNoRoom,
		"target deleted":      testTargetDeleted,
		"namespace ends":      testNamespaceEnds,
		"unreadable state":    testUnreadableState,
		"replicas":            testReplicas,
		"template":            testTemplate,
		"kinds and classes":   testClasses,
		"recommendation goes": testRecommendationGoes,
		"stateful set":        testStatefulSet,
		"autoscaler":          testAutoscaler,
		"own autoscaler":      testOwnAutoscaler,
		"autoscaler refused":  testAutoscalerRefused,
		"dry run and then":    testAdoptCommand,
	} {
		t.Run(name, func(t *testing.T) { t.Parallel(); test(t) })
	}
}

// testDown: in steps, in place, with nothing restarted, the template untouched, each step told, ours by name; and back when
// adoption is no longer wanted.
func testDown(t *testing.T) {
	ns := namespaceFor(t)
	deploy(t, ns, "web", 4)
	before, err := podsOf(t.Context(), ns, "web")
	if err != nil {
		t.Fatal(err)
	}
	rec := recommend(t, ns, "web", auto, "600m", "512Mi")
	after := podsUntil(t, ns, "web", "at their goal", sized("600m", "512Mi"))
	phase(t, ns, "web", adoption.Resting)
	names := map[string]bool{}
	for _, p := range before {
		names[string(p.UID)] = true
	}
	for _, p := range after {
		if !names[string(p.UID)] || p.Status.ContainerStatuses[0].RestartCount != 0 {
			t.Errorf("pod %s was replaced or restarted", p.Name)
		}
		if p.Generation != 3 { // One change of the spec for each of the two steps.
			t.Errorf("pod %s has generation %d, want 3: it was resized more than once a step", p.Name, p.Generation)
		}
		ours := false
		for _, f := range p.ManagedFields {
			ours = ours || f.Manager == "craned-adoption-resource" && f.Subresource == "resize" && f.Operation == metav1.ManagedFieldsOperationApply
		}
		if !ours {
			t.Errorf("pod %s: no field is ours: %v", p.Name, p.ManagedFields)
		}
	}
	d := &appsv1.Deployment{}
	if err := admin.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "web"}, d); err != nil {
		t.Fatal(err)
	}
	if cpu := d.Spec.Template.Spec.Containers[0].Resources.Requests.Cpu().String(); cpu != "1" {
		t.Errorf("the template asks for %s", cpu)
	}
	s := state(t, ns, "web")
	if s.Steps != 2 || s.Owner != "owner" || s.Original.String() != "app: cpu 1, memory 512Mi" {
		t.Errorf("state %+v", s)
	}
	eventually(t, "an event for each step", func(ctx context.Context) error {
		n, err := events(ctx, ns, "web", "AdoptionStep")
		if err == nil && n != 2 {
			err = fmt.Errorf("there are %d", n)
		}
		return err
	})
	if err := admin.Patch(t.Context(), rec, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"adoptionType":"StatusAndAnnotation"}}`))); err != nil {
		t.Fatal(err)
	}
	podsUntil(t, ns, "web", "as they were", sized("1", "512Mi"))
	forgotten(t, ns)
}

// forgotten waits until nothing is written down on the Deployment web any more.
func forgotten(t *testing.T, ns string) {
	t.Helper()
	eventually(t, "the state is forgotten", func(ctx context.Context) error {
		d := &appsv1.Deployment{}
		if err := admin.Get(ctx, client.ObjectKey{Namespace: ns, Name: "web"}, d); err != nil {
			return err
		}
		if text, there := d.Annotations[analysisv1alpha1.AnnotationAdoption]; there {
			return errors.New(text)
		}
		return nil
	})
}

// testUp: all at once.
func testUp(t *testing.T) {
	ns := namespaceFor(t)
	deploy(t, ns, "web", 3)
	recommend(t, ns, "web", auto, "2", "1Gi")
	for _, p := range podsUntil(t, ns, "web", "raised", sized("2", "1Gi")) {
		if p.Generation != 2 {
			t.Errorf("pod %s was raised in several steps", p.Name)
		}
	}
	told(t, ns, "web", "AdoptionRaised")
}

// testRollBack: a container that is killed after its memory was lowered gets it back, and the kill is on record.
func testRollBack(t *testing.T) {
	ns := namespaceFor(t)
	deploy(t, ns, "web", 2, func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.Containers[0].Resources.Limits = requests("", "512Mi")
		d.Spec.Template.Spec.Containers[0].Resources.Requests = requests("1", "512Mi")
	})
	rec := recommend(t, ns, "web", analysisv1alpha1.AdoptionTypeStatus, "1", "128Mi")
	info := `{"status":{"recommendedInfo":"{\"spec\":{\"template\":{\"spec\":{\"containers\":[{\"name\":\"app\",\"resources\":{\"requests\":{\"cpu\":\"1\",\"memory\":\"128Mi\"},\"limits\":{\"memory\":\"128Mi\"}}}]}}}}"}}`
	if err := admin.Status().Patch(t.Context(), rec, client.RawPatch(types.MergePatchType, []byte(info))); err != nil {
		t.Fatal(err)
	}
	if err := admin.Patch(t.Context(), rec, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"adoptionType":"Auto"}}`))); err != nil {
		t.Fatal(err)
	}
	podsUntil(t, ns, "web", "lowered", func(pods []corev1.Pod) error {
		for i := range pods {
			if m := pods[i].Spec.Containers[0].Resources.Limits.Memory(); m.Value() >= 512<<20 {
				return fmt.Errorf("pod %s has a limit of %s", pods[i].Name, m)
			}
		}
		return nil
	})
	load.turn(ns, 400<<20)
	podsUntil(t, ns, "web", "back at what they had", func(pods []corev1.Pod) error {
		for i := range pods {
			if m := pods[i].Spec.Containers[0].Resources.Limits.Memory(); m.Value() < 500<<20 {
				return fmt.Errorf("pod %s has a limit of %s", pods[i].Name, m)
			}
		}
		return nil
	})
	phase(t, ns, "web", adoption.Held)
	told(t, ns, "web", "AdoptionRolledBack")
	// A kill that comes after the watch is over takes the next step back, and the one after that all of them.
	s := state(t, ns, "web")
	if !s.Current.Equal(s.Previous) || !s.Current.Equal(s.Original) || s.Rollbacks != min(s.Steps, 2) {
		t.Errorf("state %+v", s)
	}
}

// testDrift: an owner who changes what was adopted has the last word.
func testDrift(t *testing.T) {
	ns := namespaceFor(t)
	d := deploy(t, ns, "web", 2)
	recommend(t, ns, "web", auto, "700m", "512Mi")
	podsUntil(t, ns, "web", "lowered", sized("700m", "512Mi"))
	phase(t, ns, "web", adoption.Resting)
	patch(t, d, `{"spec":{"template":{"spec":{"containers":[{"name":"app","resources":{"requests":{"cpu":"1500m"}}}]}}}}`)
	notAdopted(t, ns, "web", "Stopped")
	told(t, ns, "web", "AdoptionStopped")
	podsUntil(t, ns, "web", "as the owner says", sized("1500m", "512Mi"))
}

// testOptedOut: with the label, nothing is touched; without it, adoption goes on.
func testOptedOut(t *testing.T) {
	ns := namespaceFor(t)
	d := deploy(t, ns, "web", 1, func(d *appsv1.Deployment) { d.Labels = map[string]string{"analysis.crane.io/adoption": "disabled"} })
	recommend(t, ns, "web", auto, "2", "512Mi")
	message(t, ns, "web", "opted out")
	podsUntil(t, ns, "web", "untouched", sized("1", "512Mi"))
	patch(t, d, `{"metadata":{"labels":{"analysis.crane.io/adoption":null}}}`)
	podsUntil(t, ns, "web", "raised", sized("2", "512Mi"))
}

// testDisruptionBudget: a resize that restarts containers waits for the budget.
func testDisruptionBudget(t *testing.T) {
	ns := namespaceFor(t)
	most := intstr.FromInt32(0)
	pdb := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web"},
		Spec:       policyv1.PodDisruptionBudgetSpec{MaxUnavailable: &most, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
	}
	if err := admin.Create(t.Context(), pdb); err != nil {
		t.Fatal(err)
	}
	deploy(t, ns, "web", 2, func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.Containers[0].ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: corev1.ResourceMemory, RestartPolicy: corev1.RestartContainer}}
	})
	recommend(t, ns, "web", auto, "1", "1Gi")
	message(t, ns, "web", "disruption budget")
	podsUntil(t, ns, "web", "untouched", sized("1", "512Mi"))
	patch(t, pdb, `{"spec":{"maxUnavailable":1}}`)
	podsUntil(t, ns, "web", "raised", func(pods []corev1.Pod) error {
		if err := ready(pods, 2); err != nil {
			return err
		}
		return sized("1", "1Gi")(pods)
	})
}

// testNoRoom: a node that has no room now, or never will, is reported, and asked once.
func testNoRoom(t *testing.T) {
	ns := namespaceFor(t)
	tight := func(d *appsv1.Deployment) { d.Spec.Template.Spec.NodeSelector = map[string]string{"pool": "tight"} }
	deploy(t, ns, "web", 1, tight)
	// The API server itself refuses what no node of that size could ever give.
	recommend(t, ns, "web", auto, "40", "512Mi")
	message(t, ns, "web", "didn't have enough allocatable")
	deploy(t, ns, "db", 1, tight, func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.Containers[0].Resources.Requests = requests("500m", "128Mi")
	})
	recommend(t, ns, "db", auto, "1900m", "128Mi")
	message(t, ns, "db", "resize Deferred")
	for name, generation := range map[string]int64{"web": 1, "db": 2} {
		if pods, err := podsOf(t.Context(), ns, name); err != nil || len(pods) != 1 || pods[0].Generation != generation {
			t.Errorf("%s: %v, %v: want generation %d", name, pods, err, generation)
		}
	}
}

// testTargetDeleted: a target that goes in the middle of a step leaves a condition and no trouble.
func testTargetDeleted(t *testing.T) {
	ns := namespaceFor(t)
	d := deploy(t, ns, "web", 4)
	recommend(t, ns, "web", auto, "100m", "512Mi")
	eventually(t, "a step is under way", func(ctx context.Context) error {
		s, err := stateOf(ctx, ns, "web")
		if err == nil && s.Phase == adoption.Untouched {
			err = errors.New("nothing is written down")
		}
		return err
	})
	if err := admin.Delete(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	notAdopted(t, ns, "web", "TargetGone")
}

// testNamespaceEnds: nothing is done in a namespace that is on its way out, and it gets out.
func testNamespaceEnds(t *testing.T) {
	ns := namespaceFor(t)
	deploy(t, ns, "web", 2)
	recommend(t, ns, "web", auto, "100m", "512Mi")
	if err := admin.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the namespace is gone", func(ctx context.Context) error {
		err := admin.Get(ctx, client.ObjectKey{Name: ns}, &corev1.Namespace{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it is there: %w", err)
	})
}

// testUnreadableState: where nobody knows what was done before, nothing is done.
func testUnreadableState(t *testing.T) {
	ns := namespaceFor(t)
	d := deploy(t, ns, "web", 1, func(d *appsv1.Deployment) {
		d.Annotations = map[string]string{analysisv1alpha1.AnnotationAdoption: "nonsense"}
	})
	recommend(t, ns, "web", auto, "2", "512Mi")
	notAdopted(t, ns, "web", "UnreadableState")
	podsUntil(t, ns, "web", "untouched", sized("1", "512Mi"))
	patch(t, d, `{"metadata":{"annotations":{"analysis.crane.io/adoption":null}}}`)
	podsUntil(t, ns, "web", "raised", sized("2", "512Mi"))
}
