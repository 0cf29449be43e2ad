// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption_test

import (
	"errors"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/pkg/adoption"
	"crane.io/crane/test/integration/harness"
)

// TestEffectiveRequests adopts workloads whose template has no CPU request and whose pods request one core.
func TestEffectiveRequests(t *testing.T) {
	startCraned(t)
	for name, test := range map[string]struct {
		resources corev1.ResourceRequirements
		defaults  bool
	}{
		"limit": {corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceMemory: harness.ResourceList("", "512Mi")[corev1.ResourceMemory]},
			Limits:   corev1.ResourceList{corev1.ResourceCPU: harness.ResourceList("1", "")[corev1.ResourceCPU]},
		}, false},
		"LimitRange": {corev1.ResourceRequirements{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testEffectiveRequests(t, test.resources, test.defaults)
		})
	}
}

// testEffectiveRequests checks that requests are lowered in steps, written into the template at the end, and that both are restored.
func testEffectiveRequests(t *testing.T, resources corev1.ResourceRequirements, defaults bool) {
	f := newFixture(t)
	if defaults {
		err := f.Create(t.Context(), &corev1.LimitRange{
			ObjectMeta: metav1.ObjectMeta{Namespace: f.Name, Name: "defaults"},
			Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
				Type: corev1.LimitTypeContainer, DefaultRequest: harness.ResourceList("1", "512Mi"),
			}}},
		})
		if err != nil {
			t.Fatal(err)
		}
	}

	f.Deploy("web", 4, func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Resources = resources })
	template, err := f.deployment(t.Context(), "web")
	if err != nil {
		t.Fatal(err)
	}

	rec := f.recommend("web", auto, "600m", "512Mi")
	pods := f.AwaitPods("web", "have the recommended requests", checkRequests("600m", "512Mi"))
	for _, p := range pods {
		if p.Generation != 3 { // One change of the spec for each of the two steps.
			t.Errorf("pod %s has generation %d, want 3: one resize for each step", p.Name, p.Generation)
		}
	}

	f.awaitPhase("web", adoption.Resting)
	if s := f.state("web"); s.Steps != 2 || *s.Original.Containers["app"].CPURequest != 1000 || s.Declared == nil || s.Declared.Containers["app"].CPURequest != nil {
		t.Errorf("state %+v, want two steps, an original request of one core and none in the template", s)
	}

	patchAsOwner(t, template.DeepCopy(), `{"metadata":{"annotations":{"`+analysisv1alpha1.AnnotationAdoptTemplate+`":"true"}}}`)
	harness.Await(f.Namespace, &appsv1.Deployment{}, "web", "has the recommended request in its template", func(d *appsv1.Deployment) error {
		if got := d.Spec.Template.Spec.Containers[0].Resources.Requests.Cpu().MilliValue(); got != 600 {
			return fmt.Errorf("a request of %dm", got)
		}

		return nil
	})

	setAdoptionType(t, rec, analysisv1alpha1.AdoptionTypeStatusAndAnnotation)
	f.AwaitPods("web", "have the original requests", checkRequests("1", "512Mi"))
	f.awaitStateRemoved()
	harness.Await(f.Namespace, &appsv1.Deployment{}, "web", "has its own template again", func(d *appsv1.Deployment) error {
		if !equality.Semantic.DeepEqual(d.Spec.Template.Spec, template.Spec.Template.Spec) {
			return errors.New(d.Spec.Template.Spec.Containers[0].Resources.String())
		}

		return nil
	})
}
