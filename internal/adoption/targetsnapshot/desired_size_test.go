// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package targetsnapshot

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/pkg/adoption"
)

func recommended(value, info string) *analysisv1alpha1.Recommendation {
	rec := &analysisv1alpha1.Recommendation{}
	rec.Status.RecommendedValue = value
	rec.Status.RecommendedInfo = info

	return rec
}

const value = "resourceRequest:\n  containers:\n  - containerName: app\n    target: {cpu: 250m, memory: 256Mi}\n"

func TestDesiredSize(t *testing.T) {
	info := func(resources string) string {
		return `{"spec":{"template":{"spec":{"containers":[{"name":"app","resources":` + resources + `},{"name":"other","resources":{"limits":{"cpu":"9"}}}]}}}}`
	}
	for name, c := range map[string]struct {
		value, info, want string
		fails             bool
	}{
		"requests":        {value, "", "app: cpu 250m, memory 256Mi", false},
		"with a limit":    {value, info(`{"limits":{"memory":"512Mi"}}`), "app: cpu 250m, memory 256Mi, memory limit 512Mi", false},
		"a limit removed": {value, info(`{"limits":{"cpu":null}}`), "app: cpu 250m, memory 256Mi", false},
		"replicas":        {"replicasRecommendation:\n  replicas: 3\n", "", "3 replicas", false},
		"nothing":         {"", "", "", false},
		"another type":    {"maxReplicas: 5\n", "", "", false},
		"no YAML":         {"resourceRequest: [", "", "", true},
		"no JSON":         {value, "{", "", true},
		"bad amount":      {strings.Replace(value, "250m", "much", 1), "", "", true},
		"negative":        {strings.Replace(value, "250m", "-1", 1), "", "", true},
		"bad limit":       {value, info(`{"limits":{"memory":"lots"}}`), "", true},
		"few replicas":    {"replicasRecommendation:\n  replicas: -3\n", "", "", true},
	} {
		got, err := DesiredSize(recommended(c.value, c.info))
		if got.String() != c.want || (err != nil) != c.fails {
			t.Errorf("%s: %q, %v, want %q", name, got, err, c.want)
		}
	}
}

func FuzzDesiredSize(f *testing.F) {
	f.Add(value, `{"spec":{"template":{"spec":{"containers":[{"name":"app","resources":{"limits":{"memory":"512Mi"}}}]}}}}`)
	f.Add("replicasRecommendation:\n  replicas: 3\n", "")
	f.Fuzz(func(t *testing.T, value, info string) {
		size, err := DesiredSize(recommended(value, info))
		if err != nil && !size.Empty() {
			t.Fatalf("DesiredSize returned size %s beside error %v, want no size", size, err)
		}
		if strings.Contains(size.String(), " -") {
			t.Fatalf("DesiredSize = %s, want no negative amount", size)
		}
	})
}

func running(change func(*corev1.Pod)) *corev1.Pod {
	always := corev1.ContainerRestartPolicyAlways
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1", UID: "uid", ResourceVersion: "7", Generation: 2},
		Spec: corev1.PodSpec{
			InitContainers: []corev1.Container{{Name: "prepare"}, {Name: "proxy", RestartPolicy: &always}},
			Containers: []corev1.Container{{Name: "app", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceCPU: apiresource.MustParse("1"), "example.com/card": apiresource.MustParse("1"),
			}}}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
	}

	change(p)
	return p
}

func TestConvertPod(t *testing.T) {
	condition := func(kind corev1.PodConditionType, reason string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, Reason: reason})
		}
	}

	for name, c := range map[string]struct {
		change func(*corev1.Pod)
		fixed  string
		resize adoption.ResizeStatus
	}{
		"as it should":  {func(*corev1.Pod) {}, "", adoption.ResizeDone},
		"deferred":      {condition(corev1.PodResizePending, "Deferred"), "", adoption.ResizeDeferred},
		"infeasible":    {condition(corev1.PodResizePending, "Infeasible"), "", adoption.ResizeInfeasible},
		"in progress":   {condition(corev1.PodResizeInProgress, ""), "", adoption.ResizeInProgress},
		"error":         {condition(corev1.PodResizeInProgress, "Error"), "", adoption.ResizeFailed},
		"not seen yet":  {func(p *corev1.Pod) { p.Status.ObservedGeneration = 1 }, "", adoption.ResizeInProgress},
		"seen":          {func(p *corev1.Pod) { p.Status.ObservedGeneration = 2 }, "", adoption.ResizeDone},
		"pending":       {func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }, "does not run", adoption.ResizeDone},
		"ended":         {func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, "ended", adoption.ResizeDone},
		"static":        {func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"} }, "static", adoption.ResizeDone},
		"Windows":       {func(p *corev1.Pod) { p.Spec.OS = &corev1.PodOS{Name: corev1.Windows} }, "Windows", adoption.ResizeDone},
		"pod resources": {func(p *corev1.Pod) { p.Spec.Resources = &corev1.ResourceRequirements{} }, "of its own", adoption.ResizeDone},
	} {
		got := ConvertPod(running(c.change))
		if (c.fixed == "") != (got.NotResizable == "") || !strings.Contains(got.NotResizable, c.fixed) || got.ResizeStatus != c.resize || len(got.Containers) != 3 {
			t.Errorf("%s: ConvertPod = %+v, want 3 containers, not resizable because of %q, and resize status %v", name, got, c.fixed, c.resize)
		}
		if !got.Containers[0].Frozen || got.Containers[1].Frozen || got.Containers[2].Frozen {
			t.Errorf("%s: ConvertPod = %+v, want the first container frozen alone, since it runs to its end", name, got.Containers)
		}
	}

	killed := ConvertPod(running(func(p *corev1.Pod) {
		at := metav1.NewTime(time.Unix(1000, 0))
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", LastTerminationState: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{Reason: "OOMKilled", FinishedAt: at},
		}}}
	})).Containers[2]
	if !killed.KilledAt.Equal(time.Unix(1000, 0)) || !killed.EndedAt.Equal(killed.KilledAt) {
		t.Errorf("container %+v, want one that ended and was killed at second 1000", killed)
	}
}

// TestResizePatch: the body names the UID and the version of the pod, and only adopted resources.
func TestResizeOf(t *testing.T) {
	size, err := DesiredSize(recommended(value, ""))
	if err != nil {
		t.Fatal(err)
	}

	raw, err := json.Marshal(ResizePatch(running(func(*corev1.Pod) {}), size))
	if err != nil {
		t.Fatal(err)
	}

	const want = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web-1","namespace":"shop","resourceVersion":"7","uid":"uid"},` +
		`"spec":{"containers":[{"name":"app","resources":{"requests":{"cpu":"250m","memory":"256Mi"}}}]}}`
	if string(raw) != want {
		t.Errorf("%s, want %s", raw, want)
	}
}
