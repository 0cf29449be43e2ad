// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package ehpa

import (
	"strings"
	"testing"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func runningPod(name, cpu string, edit ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}

	if cpu != "" {
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
	}

	for _, f := range edit {
		f(p)
	}

	return p
}

func forecastTarget(hpa *autoscalingv2.HorizontalPodAutoscaler) string {
	for _, m := range hpa.Spec.Metrics {
		if m.External != nil {
			return m.External.Target.AverageValue.String()
		}
	}

	return "no forecast"
}

// TestForecastTargetFollowsPods checks that the target of a forecast for one pod is the utilization of what pods request, which in-place
// resizes change without a change of the template.
func TestForecastTargetFollowsPods(t *testing.T) {
	failed := func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }
	other := func(p *corev1.Pod) { p.Labels = map[string]string{"app": "other"} }
	podLevel := func(p *corev1.Pod) {
		p.Spec.Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}}
	}
	for name, c := range map[string]struct {
		pods []client.Object
		want string
	}{
		"no pods: the template":   {nil, "75m"},
		"adopted in place":        {[]client.Object{runningPod("a", "1"), runningPod("b", "1")}, "300m"},
		"adopted in part":         {[]client.Object{runningPod("a", "1"), runningPod("b", "500m")}, "225m"},
		"lowered":                 {[]client.Object{runningPod("a", "100m")}, "30m"},
		"failed and foreign pods": {[]client.Object{runningPod("a", "1"), runningPod("b", "9", failed), runningPod("c", "9", other)}, "300m"},
		"request of the pod":      {[]client.Object{runningPod("a", "1", podLevel)}, "600m"},
		"a pod without a request": {[]client.Object{runningPod("a", "1"), runningPod("b", "")}, "no forecast"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newFixture(t, append(c.pods, deployment("web", 4), web(func(e *scaler) {
				e.Spec.Metrics = []autoscalingv2.MetricSpec{utilization(corev1.ResourceCPU, 30)}
			}))...)
			b.reconcile(t, "web")
			b.writeForecast(t, "ehpa-web", "0.5", 3)

			e, _ := b.reconcile(t, "web")
			if got := forecastTarget(b.hpa(t, "ehpa-web")); got != c.want {
				t.Errorf("target of a pod %s, want %s; %+v", got, c.want, e.Status.Conditions)
			}
			if ready := meta.FindStatusCondition(e.Status.Conditions, "PredictionReady"); c.want == "no forecast" &&
				!strings.Contains(ready.Message, "container main requests no cpu") {
				t.Errorf("message %q, want one about container main without a CPU request", ready.Message)
			}
		})
	}
}

// TestRequestOfNextPod checks that a target without pods counts with what its next pod requests: because of a limit, or of a LimitRange.
func TestRequestOfNextPod(t *testing.T) {
	list := func(cpu string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
	}
	defaults := &corev1.LimitRange{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "defaults"},
		Spec:       corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{Type: corev1.LimitTypeContainer, DefaultRequest: list("1")}}},
	}

	for name, test := range map[string]struct {
		resources corev1.ResourceRequirements
		want      string
	}{
		"limit":      {corev1.ResourceRequirements{Limits: list("2")}, "600m"},
		"LimitRange": {corev1.ResourceRequirements{}, "300m"},
	} {
		t.Run(name, func(t *testing.T) {
			d := deployment("web", 0)
			d.Spec.Template.Spec.Containers[0].Resources = test.resources
			b := newFixture(t, d, defaults, web(func(e *scaler) {
				e.Spec.Metrics = []autoscalingv2.MetricSpec{utilization(corev1.ResourceCPU, 30)}
			}))
			b.reconcile(t, "web")
			b.writeForecast(t, "ehpa-web", "0.5", 3)

			e, _ := b.reconcile(t, "web")
			if got := forecastTarget(b.hpa(t, "ehpa-web")); got != test.want {
				t.Errorf("target of a pod at 30 %% of its request: %s, want %s; %+v", got, test.want, e.Status.Conditions)
			}
		})
	}
}

// TestPodRequestsAreReread checks that the requests of pods are read once a minute, and at once after a change of the autoscaler.
func TestPodRequestsAreReread(t *testing.T) {
	b := newFixture(t, deployment("web", 4), runningPod("a", "500m"), web())
	resize := func(cpu string) {
		t.Helper()

		if err := b.Client.Update(t.Context(), runningPod("a", cpu)); err != nil {
			t.Fatal(err)
		}
	}

	b.reconcile(t, "web")
	b.writeForecast(t, "ehpa-web", "0.5", 3)
	b.reconcile(t, "web")

	want := func(when, want string) {
		t.Helper()

		b.reconcile(t, "web")
		if got := forecastTarget(b.hpa(t, "ehpa-web")); got != want {
			t.Errorf("%s: target of a pod %s, want %s", when, got, want)
		}
	}

	want("at first", "300m")
	resize("1")
	want("within a minute", "300m")
	b.clock.Step(podRequestsMaxAge)
	want("after a minute", "600m")
	resize("2")
	e, _ := b.reconcile(t, "web")

	e.Generation++
	e.Spec.Metrics = []autoscalingv2.MetricSpec{utilization(corev1.ResourceCPU, 30)}
	if err := b.Client.Update(t.Context(), e); err != nil {
		t.Fatal(err)
	}

	want("after a change of the autoscaler", "600m")
	if n := len(b.Requests.readings); n != 1 {
		t.Errorf("%d readings are kept, want 1", n)
	}
	if err := b.Client.Delete(t.Context(), e); err != nil {
		t.Fatal(err)
	}

	if _, err := b.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(e)}); err != nil || len(b.Requests.readings) != 0 {
		t.Errorf("Reconcile returned error %v and keeps %d readings after a deletion, want none", err, len(b.Requests.readings))
	}
}
