// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package targetsnapshot

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/pkg/adoption"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/units"
)

func cpuList(text string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: apiresource.MustParse(text)}
}

// setResources sets the resources of the template of the fixture and of its pod.
func setResources(t *testing.T, c client.Client, template, pod corev1.ResourceRequirements) {
	t.Helper()

	var d appsv1.Deployment
	var p corev1.Pod
	for name, o := range map[string]client.Object{"web": &d, "web-1-a": &p} {
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: name}, o); err != nil {
			t.Fatal(err)
		}
	}

	d.Spec.Template.Spec.Containers[0].Resources = template
	p.Spec.Containers[0].Resources = pod
	for _, o := range []client.Object{&d, &p} {
		if err := c.Update(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
}

// TestEffectiveSize checks that the first change of a workload starts from what its pods request, wherever that is from.
func TestEffectiveSize(t *testing.T) {
	defaults := &corev1.LimitRange{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "defaults"},
		Spec:       corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{Type: corev1.LimitTypeContainer, DefaultRequest: cpuList("2")}}},
	}

	for _, test := range []struct {
		name          string
		others        []client.Object
		template, pod corev1.ResourceRequirements
	}{
		{"a limit", nil, corev1.ResourceRequirements{Limits: cpuList("2")}, corev1.ResourceRequirements{Requests: cpuList("2"), Limits: cpuList("2")}},
		{"a LimitRange", []client.Object{defaults}, corev1.ResourceRequirements{}, corev1.ResourceRequirements{Requests: cpuList("2")}},
		{"a webhook", nil, corev1.ResourceRequirements{}, corev1.ResourceRequirements{Requests: cpuList("2")}},
	} {
		t.Run(test.name, func(t *testing.T) {
			p, rec := newFixture(t, test.others...)
			setResources(t, p.Live.(client.Client), test.template, test.pod)
			rec.Status.RecommendedValue = "resourceRequest:\n  containers:\n  - containerName: app\n    target: {cpu: 300m}\n"
			p.Settings.Policy.Step = 0.2

			got, err := p.Preview(t.Context(), rec, nil, time.Now())
			if err != nil {
				t.Fatal(err)
			}

			state := got.Plan.State
			if cpu := state.Current.Containers["app"].CPURequest; state.Steps != 1 || cpu == nil || *cpu != 1600 {
				t.Errorf("Preview: step %d to %s (%s), want step 1 to 1600m of 2 cores", state.Steps, state.Current, got.Plan.Summary)
			}

			if cpu := state.Original.Containers["app"].CPURequest; cpu == nil || *cpu != 2000 {
				t.Errorf("Preview: original size %s, want 2 cores, which pods get back when adoption is switched off", state.Original)
			}

			if state.Declared == nil || state.Declared.Containers["app"].CPURequest != nil {
				t.Errorf("Preview: size of the template %v, want it without a request", state.Declared)
			}
		})
	}
}

// TestEffectiveSize_ChangedRequest checks that the size of pods whose declared request another webhook changes is that of the pods, if all of
// them show it: not where one was resized, or where pods are of another template.
func TestEffectiveSize_ChangedRequest(t *testing.T) {
	resized := []metav1.ManagedFieldsEntry{{Manager: "someone", Subresource: "resize"}}
	for name, c := range map[string]struct {
		change   func(*appsv1.Deployment, *corev1.Pod)
		original units.MilliCPU
	}{
		"all pods":         {func(*appsv1.Deployment, *corev1.Pod) {}, 2000},
		"resized pod":      {func(_ *appsv1.Deployment, p *corev1.Pod) { p.ManagedFields = resized }, 1000},
		"another template": {func(d *appsv1.Deployment, _ *corev1.Pod) { d.Generation = 2 }, 1000},
	} {
		p, _ := newFixture(t)
		live := p.Live.(client.Client)
		declared := corev1.ResourceRequirements{Requests: cpuList("1")}
		setResources(t, live, declared, corev1.ResourceRequirements{Requests: cpuList("2")})

		var d appsv1.Deployment
		var pod corev1.Pod
		for name, o := range map[string]client.Object{"web": &d, "web-1-a": &pod} {
			if err := live.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: name}, o); err != nil {
				t.Fatal(err)
			}
		}

		c.change(&d, &pod)
		s := &TargetSnapshot{Object: &d, Pods: []corev1.Pod{pod}}
		s.readKindFields()
		s.setNewPodSpec(false)

		template, effective := s.template(sizeOf(300))
		got := effective.Containers["app"].CPURequest
		if got == nil || *got != c.original || *template.Containers["app"].CPURequest != 1000 {
			t.Errorf("%s: template(300m) = %s and %s, want 1 core and %dm", name, template, effective, c.original)
		}
	}
}

// TestEffectiveSizeOfAdopted checks that a size that adoption gave to pods is not taken for what they had before.
func TestEffectiveSizeOfAdopted(t *testing.T) {
	p, rec := newFixture(t)
	setResources(t, p.Live.(client.Client), corev1.ResourceRequirements{}, corev1.ResourceRequirements{Requests: cpuList("300m")})

	before := adoption.State{Phase: adoption.Resting, Original: sizeOf(0), Previous: sizeOf(0), Current: sizeOf(300)}
	before.Original.Containers["app"] = rightsize.Resources{}
	text, err := before.Encode()
	if err != nil {
		t.Fatal(err)
	}

	var d appsv1.Deployment
	if err := p.Live.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "web"}, &d); err != nil {
		t.Fatal(err)
	}

	d.Annotations = map[string]string{analysisv1alpha1.AnnotationAdoption: text}
	if err := p.Live.(client.Client).Update(t.Context(), &d); err != nil {
		t.Fatal(err)
	}

	got, err := p.Preview(t.Context(), rec, nil, time.Now())
	if err != nil {
		t.Fatal(err)
	}

	if cpu := got.Plan.State.Original.Containers["app"].CPURequest; cpu != nil {
		t.Errorf("Preview: original size %s, want none: the pods have what adoption gave them", got.Plan.State.Original)
	}
}

// TestRestoreTemplate checks that a restored template loses the amounts that adoption had added.
func TestRestoreTemplate(t *testing.T) {
	s := &TargetSnapshot{Object: &appsv1.Deployment{}, podSpec: &corev1.PodSpec{Containers: []corev1.Container{{Name: "app"}, {Name: "side"}}}}
	cpu := func(request, limit int64) rightsize.Resources {
		list := corev1.ResourceRequirements{Limits: cpuList(apiresource.NewMilliQuantity(limit, apiresource.DecimalSI).String())}
		if request > 0 {
			list.Requests = cpuList(apiresource.NewMilliQuantity(request, apiresource.DecimalSI).String())
		}

		return ConvertResources(list)
	}

	written := adoption.Size{Containers: map[string]rightsize.Resources{"app": cpu(300, 2000), "side": cpu(100, 100)}}
	declared := adoption.Size{Containers: map[string]rightsize.Resources{"app": cpu(0, 2000), "side": {}}}
	const want = `{"template":{"spec":{"containers":[{"name":"app","resources":{"limits":{"cpu":"2"},"requests":{"cpu":null}}},` +
		`{"name":"side","resources":{"limits":{"cpu":null},"requests":{"cpu":null}}}]}}}`
	for name, before := range map[string]adoption.State{
		"first attempt":          {Owner: "kubectl", Template: &written},
		"after a failed attempt": {Owner: "kubectl", Template: &declared, EarlierSizes: []adoption.Size{written}},
	} {
		request := s.TemplateRequest(analysisv1alpha1.AnalysisTypeResource, adoption.Plan{Template: &declared, RestoreTemplate: true}, before)
		got, err := json.Marshal(request.Body.Object["spec"])
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != want {
			t.Errorf("%s: TemplateRequest to restore the template:\n%s, want\n%s", name, got, want)
		}
	}
}

// TestDecisionInput_PodLevelResources checks that nothing is changed where pods have resources as a whole: new pods would not get a size whose
// containers exceed them, and the scheduler reads them alone.
func TestDecisionInput_PodLevelResources(t *testing.T) {
	for _, want := range []string{"300m", "3"} {
		p, rec := newFixture(t)
		live := p.Live.(client.Client)
		var d appsv1.Deployment
		if err := live.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "web"}, &d); err != nil {
			t.Fatal(err)
		}

		d.Spec.Template.Spec.Resources = &corev1.ResourceRequirements{Requests: cpuList("2")}
		if err := live.Update(t.Context(), &d); err != nil {
			t.Fatal(err)
		}

		rec.Status.RecommendedValue = "resourceRequest:\n  containers:\n  - containerName: app\n    target: {cpu: " + want + "}\n"
		got, err := p.Preview(t.Context(), rec, nil, time.Now())
		if err != nil || len(got.Requests) != 0 || !strings.Contains(got.Refused, "spec.resources") {
			t.Errorf("Preview with pod-level resources to %s refuses with %q and sends %v, %v, want a refusal because of spec.resources", want, got.Refused, got.Requests, err)
		}
	}
}
