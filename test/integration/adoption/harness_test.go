// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/testbed/controlplane"
	"crane.io/crane/pkg/adoption"
	"crane.io/crane/test/integration/harness"
)

const (
	// bound is how long a test waits for what takes some seconds on an idle machine.
	bound = 2 * time.Minute
	// watch is how long craned watches a step.
	watch = 3 * time.Second
)

func eventually(t *testing.T, what string, check func(ctx context.Context) error) {
	t.Helper()
	harness.Eventually(t.Context(), t, bound, what, check)
}

// craned is one that runs.
type craned struct {
	*harness.Process
	metrics string
}

// quick are the settings of a craned that need not be waited for.
func quick() []string {
	return []string{
		"--adoption-watch=" + watch.String(), "--adoption-look-interval=300ms", "--adoption-settle=4s", "--adoption-ready-grace=20s",
		"--adoption-pods-at-once=0.5", "--adoption-step=0.3", "--adoption-max-per-namespace=10", "--adoption-cool-down=1h",
		"--adoption-breaker-least=100",
	}
}

// startCraned runs craned, with the rights that config/rbac gives it, until the test ends.
func startCraned(t *testing.T, flags ...string) *craned {
	t.Helper()
	kubeconfig, err := control.KubeconfigFor(t.Context(), "craned", controlplane.ServiceAccount("crane-system", "craned"))
	if err != nil {
		t.Fatal(err)
	}
	c := &craned{metrics: harness.FreeAddress(t)}
	c.Process = harness.Start(t, bound, binary, append(append([]string{
		"--kubeconfig=" + kubeconfig, "--prometheus-address=http://127.0.0.1:1", "--controllers=adoption,oom",
		"--metrics-bind-address=" + c.metrics, "--health-probe-bind-address=" + harness.FreeAddress(t), "--server-bind-port=0",
		"--leader-elect=false", // A lease would be lost on a machine that is slow enough, and with it the test.
	}, quick()...), flags...)...)
	return c
}

// namespaceFor makes a namespace of the test's own, with the service account that pods need.
func namespaceFor(t *testing.T) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "adopt-"}}
	if err := admin.Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := admin.Delete(context.WithoutCancel(t.Context()), ns); client.IgnoreNotFound(err) != nil {
			t.Error(err)
		}
	})
	return ns.Name
}

// requests is a resource list; an empty text leaves one out.
func requests(cpu, memory string) corev1.ResourceList {
	list := corev1.ResourceList{}
	if cpu != "" {
		list[corev1.ResourceCPU] = resource.MustParse(cpu)
	}
	if memory != "" {
		list[corev1.ResourceMemory] = resource.MustParse(memory)
	}
	return list
}

// deploy makes a Deployment whose pods ask for a core and 512 MiB, and waits until they are ready.
func deploy(t *testing.T, ns, name string, replicas int32, edit ...func(*appsv1.Deployment)) *appsv1.Deployment {
	t.Helper()
	labels := map[string]string{"app": name}
	none := int64(0)
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					NodeSelector: map[string]string{"pool": "wide"}, TerminationGracePeriodSeconds: &none,
					Containers: []corev1.Container{{
						Name: "app", Image: "example.com/app:1", Resources: corev1.ResourceRequirements{Requests: requests("1", "512Mi")},
					}},
				},
			},
		},
	}
	for _, f := range edit {
		f(d)
	}
	if err := admin.Create(t.Context(), d, client.FieldOwner("owner")); err != nil {
		t.Fatal(err)
	}
	podsUntil(t, ns, name, "ready", func(pods []corev1.Pod) error { return ready(pods, int(replicas)) })
	return d
}

func ready(pods []corev1.Pod, want int) error {
	n := 0
	for i := range pods {
		for _, c := range pods[i].Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
				n++
			}
		}
	}
	if n != want || len(pods) != want {
		return fmt.Errorf("%d of %d pods are ready, want %d", n, len(pods), want)
	}
	return nil
}

// podsUntil polls the pods of a workload until they are as wanted, and returns them.
func podsUntil(t *testing.T, ns, name, what string, check func([]corev1.Pod) error) []corev1.Pod {
	t.Helper()
	var out []corev1.Pod
	eventually(t, "pods of "+name+" "+what, func(ctx context.Context) error {
		pods, err := podsOf(ctx, ns, name)
		if err != nil {
			return err
		}
		out = pods
		return check(pods)
	})
	return out
}

func podsOf(ctx context.Context, ns, name string) ([]corev1.Pod, error) {
	var list corev1.PodList
	if err := admin.List(ctx, &list, client.InNamespace(ns), client.MatchingLabels{"app": name}); err != nil {
		return nil, err
	}
	var out []corev1.Pod
	for _, p := range list.Items {
		if p.DeletionTimestamp == nil {
			out = append(out, p)
		}
	}
	return out, nil
}

// sized wants every pod to ask for so much, and its node to have put that in force.
func sized(cpu, memory string) func([]corev1.Pod) error {
	return func(pods []corev1.Pod) error {
		for i := range pods {
			p := &pods[i]
			got := p.Spec.Containers[0].Resources.Requests
			if want := requests(cpu, memory); got.Cpu().Cmp(*want.Cpu()) != 0 || got.Memory().Cmp(*want.Memory()) != 0 {
				return fmt.Errorf("pod %s asks for %s and %s", p.Name, got.Cpu(), got.Memory())
			}
			s := p.Status.ContainerStatuses
			if len(s) == 0 || s[0].Resources == nil || s[0].Resources.Requests.Cpu().Cmp(*got.Cpu()) != 0 {
				return fmt.Errorf("pod %s: its node has not given it %s", p.Name, got.Cpu())
			}
		}
		return nil
	}
}

// recommend makes a Recommendation of a user's own for a Deployment, with a value.
func recommend(t *testing.T, ns, target string, adoptionType analysisv1alpha1.AdoptionType, cpu, memory string) *analysisv1alpha1.Recommendation {
	t.Helper()
	return recommendNamed(t, corev1.ObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Namespace: ns, Name: target}, target, adoptionType, cpu, memory)
}

// recommendNamed is recommend for any target, with a name.
func recommendNamed(
	t *testing.T, target corev1.ObjectReference, name string, adoptionType analysisv1alpha1.AdoptionType, cpu, memory string,
) *analysisv1alpha1.Recommendation {
	t.Helper()
	rec := &analysisv1alpha1.Recommendation{
		ObjectMeta: metav1.ObjectMeta{Namespace: target.Namespace, Name: name},
		Spec:       analysisv1alpha1.RecommendationSpec{TargetRef: target, Type: analysisv1alpha1.AnalysisTypeResource, AdoptionType: adoptionType},
	}
	if err := admin.Create(t.Context(), rec); err != nil {
		t.Fatal(err)
	}
	value(t, rec, cpu, memory)
	return rec
}

// value sets what is recommended.
func value(t *testing.T, rec *analysisv1alpha1.Recommendation, cpu, memory string) {
	t.Helper()
	set(t, rec, fmt.Sprintf("resourceRequest:\n  containers:\n  - containerName: app\n    target:\n      cpu: %s\n      memory: %s\n", cpu, memory))
}

func set(t *testing.T, rec *analysisv1alpha1.Recommendation, value string) {
	t.Helper()
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"recommendedValue": value}})
	if err != nil {
		t.Fatal(err)
	}
	if err := admin.Status().Patch(t.Context(), rec, client.RawPatch(types.MergePatchType, patch)); err != nil {
		t.Fatal(err)
	}
}

// recommendationUntil polls a Recommendation until it is as wanted.
func recommendationUntil(t *testing.T, ns, name, what string, check func(*analysisv1alpha1.Recommendation) error) {
	t.Helper()
	eventually(t, "recommendation "+name+" "+what, func(ctx context.Context) error {
		rec := &analysisv1alpha1.Recommendation{}
		if err := admin.Get(ctx, client.ObjectKey{Namespace: ns, Name: name}, rec); err != nil {
			return err
		}
		return check(rec)
	})
}

// phase waits until adoption has come to a phase.
func phase(t *testing.T, ns, name string, want adoption.Phase) {
	t.Helper()
	recommendationUntil(t, ns, name, "comes to "+string(want), func(rec *analysisv1alpha1.Recommendation) error {
		if rec.Status.Adoption == nil || rec.Status.Adoption.Phase != string(want) {
			return fmt.Errorf("adoption %+v", rec.Status.Adoption)
		}
		return nil
	})
}

// message waits until the status says something.
func message(t *testing.T, ns, name, want string) {
	t.Helper()
	recommendationUntil(t, ns, name, "says "+want, func(rec *analysisv1alpha1.Recommendation) error {
		a := rec.Status.Adoption
		if a == nil || !strings.Contains(a.Message+"\n"+strings.Join(a.Remarks, "\n"), want) {
			return fmt.Errorf("adoption %+v", a)
		}
		return nil
	})
}

// notAdopted waits for the condition Adopted with a reason.
func notAdopted(t *testing.T, ns, name, reason string) {
	t.Helper()
	recommendationUntil(t, ns, name, reason, func(rec *analysisv1alpha1.Recommendation) error {
		c := meta.FindStatusCondition(rec.Status.Conditions, analysisv1alpha1.ConditionAdopted)
		if c == nil || c.Status != metav1.ConditionFalse || c.Reason != reason {
			return fmt.Errorf("condition %+v", c)
		}
		return nil
	})
}

// stateOf reads what is written down on a Deployment.
func stateOf(ctx context.Context, ns, name string) (adoption.State, error) {
	d := &appsv1.Deployment{}
	if err := admin.Get(ctx, client.ObjectKey{Namespace: ns, Name: name}, d); err != nil {
		return adoption.State{}, err
	}
	return adoption.ParseState(d.Annotations[analysisv1alpha1.AnnotationAdoption])
}

// state is stateOf for what has to be there.
func state(t *testing.T, ns, name string) adoption.State {
	t.Helper()
	s, err := stateOf(t.Context(), ns, name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// events counts those on a Deployment with a reason.
func events(ctx context.Context, ns, name, reason string) (int, error) {
	var list eventsv1.EventList
	if err := admin.List(ctx, &list, client.InNamespace(ns)); err != nil {
		return 0, err
	}
	n := 0
	for i := range list.Items {
		if e := &list.Items[i]; e.Regarding.Kind == "Deployment" && e.Regarding.Name == name && e.Reason == reason {
			n++
		}
	}
	return n, nil
}

// told waits for an event on a Deployment.
func told(t *testing.T, ns, name, reason string) {
	t.Helper()
	eventually(t, "event "+reason+" on "+name, func(ctx context.Context) error {
		n, err := events(ctx, ns, name, reason)
		if err == nil && n == 0 {
			err = errors.New("there is none")
		}
		return err
	})
}

// patch changes an object as its owner.
func patch(t *testing.T, o client.Object, text string) {
	t.Helper()
	if err := admin.Patch(t.Context(), o, client.RawPatch(types.StrategicMergePatchType, []byte(text)), client.FieldOwner("owner")); err != nil {
		t.Fatal(err)
	}
}

func containsAll(text string, parts ...string) bool {
	for _, p := range parts {
		if !strings.Contains(text, p) {
			return false
		}
	}
	return true
}
