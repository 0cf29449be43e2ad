// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package evpa_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	"crane.io/crane/config"
	"crane.io/crane/internal/kube/manifest"
	"crane.io/crane/internal/testbed/controlplane"
	"crane.io/crane/internal/testbed/redirect"
	"crane.io/crane/test/integration/harness"
)

// waitTimeout is how long a test waits for what takes some seconds on an idle machine.
const waitTimeout = 4 * time.Minute

func eventually(t *testing.T, what string, check func(ctx context.Context) error) {
	t.Helper()
	harness.Eventually(t.Context(), t, waitTimeout, what, check)
}

// startCraned runs craned, with the rights that config/rbac gives it and with history from a directory, until the test ends, and lets
// the API server ask it about new pods.
func startCraned(t *testing.T, history string) {
	t.Helper()
	kubeconfig, err := control.KubeconfigFor(t.Context(), "craned", controlplane.ServiceAccount("crane-system", "craned"))
	if err != nil {
		t.Fatal(err)
	}
	address := harness.FreeAddress(t)
	host, port, _ := strings.Cut(address, ":")
	harness.Start(t, waitTimeout, binary,
		"--kubeconfig="+kubeconfig, "--datasource=csv", "--csv-dir="+history, "--controllers=effectivevpa,adoption,oom",
		"--metrics-bind-address=0", "--health-probe-bind-address="+harness.FreeAddress(t), "--server-bind-port=0",
		"--leader-elect=false", // A lease would be lost on a machine that is slow enough, and with it the test.
		"--webhook-host="+host, "--webhook-port="+port,
		"--evpa-interval=1s", "--evpa-history-interval=2s",
		"--adoption-watch=3s", "--adoption-look-interval=300ms", "--adoption-settle=2m", "--adoption-ready-grace=2m",
		"--adoption-pods-at-once=0.5", "--adoption-step=0.9", "--adoption-max-per-namespace=10", "--adoption-breaker-least=100",
	)
	installWebhooks(t, address)
	eventually(t, "webhooks answer", func(ctx context.Context) error {
		bad := autoscaler("probe", "default", "none")
		bad.Spec.ResourceEstimators = []autoscalingv1alpha1.ResourceEstimator{{Priority: 1}}
		err := admin.Create(ctx, bad, client.DryRunAll)
		if err == nil || !strings.Contains(err.Error(), "resourceEstimators[0].type") {
			return fmt.Errorf("a bad estimator gives: %w", err)
		}
		return nil
	})
}

// installWebhooks lets the API server call webhooks at an address for the length of the test.
func installWebhooks(t *testing.T, address string) {
	t.Helper()
	all, err := manifest.ReadDir(config.Manifests, "webhook")
	if err != nil {
		t.Fatal(err)
	}
	applier, err := manifest.NewApplier(control.Config(), "evpa-test")
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range all {
		if !redirect.IsWebhookConfiguration(o) {
			continue
		}
		local, err := redirect.WebhookConfiguration(o, address)
		if err != nil {
			t.Fatal(err)
		}
		if err := applier.Apply(t.Context(), local); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := admin.Delete(context.WithoutCancel(t.Context()), local); client.IgnoreNotFound(err) != nil {
				t.Error(err)
			}
		})
	}
}

// fixture is a namespace of a test's own.
type fixture struct {
	t         *testing.T
	history   string
	namespace string
}

func newFixture(t *testing.T, history string) *fixture {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "evpa-"}}
	if err := admin.Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := admin.Delete(context.WithoutCancel(t.Context()), ns); client.IgnoreNotFound(err) != nil {
			t.Error(err)
		}
	})
	return &fixture{t: t, history: history, namespace: ns.Name}
}

// writeHistory writes ten days of constant use of the container app of a Deployment, in cores and bytes.
func (w *fixture) writeHistory(name string, cores, bytes float64) {
	w.t.Helper()
	const step, days = 10 * time.Minute, 10
	end := time.Now().Truncate(step)
	for resource, v := range map[string]float64{"cpu": cores, "memory": bytes} {
		text := &strings.Builder{}
		text.WriteString("ts,value\n")
		for at := end.Add(-days * 24 * time.Hour); at.Before(end); at = at.Add(step) {
			fmt.Fprintf(text, "%d,%v\n", at.Unix(), v)
		}
		path := filepath.Join(w.history, strings.Join([]string{w.namespace, "Deployment", name, "app", resource}, "_")+".csv")
		// craned must not read half of it.
		if err := os.WriteFile(path+".new", []byte(text.String()), 0o600); err != nil {
			w.t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *fixture) create(objects ...client.Object) {
	w.t.Helper()
	for _, o := range objects {
		o.SetNamespace(w.namespace)
		if err := admin.Create(w.t.Context(), o, client.FieldOwner("owner")); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *fixture) remove(o client.Object) {
	w.t.Helper()
	if err := admin.Delete(w.t.Context(), o); client.IgnoreNotFound(err) != nil {
		w.t.Fatal(err)
	}
}

// resourceList is a resource list; an empty text leaves one out.
func resourceList(cpu, memory string) corev1.ResourceList {
	out := corev1.ResourceList{}
	if cpu != "" {
		out[corev1.ResourceCPU] = resource.MustParse(cpu)
	}
	if memory != "" {
		out[corev1.ResourceMemory] = resource.MustParse(memory)
	}
	return out
}

// deploy makes a Deployment whose pods ask for a core and 512 MiB, and waits until they are ready.
func (w *fixture) deploy(name string, replicas int32, edit ...func(*appsv1.Deployment)) *appsv1.Deployment {
	w.t.Helper()
	labels := map[string]string{"app": name}
	none := int64(0)
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					NodeSelector: map[string]string{"pool": "wide"}, TerminationGracePeriodSeconds: &none,
					Containers: []corev1.Container{{
						Name: "app", Image: "example.com/app:1", Resources: corev1.ResourceRequirements{Requests: resourceList("1", "512Mi")},
					}},
				},
			},
		},
	}
	for _, f := range edit {
		f(d)
	}
	w.create(d)
	w.pods(name, "ready", func(pods []corev1.Pod) error { return ready(pods, int(*d.Spec.Replicas)) })
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

// pods polls the pods of a workload until they are as wanted, and returns them.
func (w *fixture) pods(name, what string, check func([]corev1.Pod) error) []corev1.Pod {
	w.t.Helper()
	var out []corev1.Pod
	eventually(w.t, "pods of "+name+" "+what, func(ctx context.Context) error {
		var all corev1.PodList
		if err := admin.List(ctx, &all, client.InNamespace(w.namespace), client.MatchingLabels{"app": name}); err != nil {
			return err
		}
		out = nil
		for _, p := range all.Items {
			if p.DeletionTimestamp == nil && p.Status.Phase != corev1.PodFailed && p.Status.Phase != corev1.PodSucceeded {
				out = append(out, p)
			}
		}
		return check(out)
	})
	return out
}

// requestsCPU wants every pod to ask for so much CPU, to within 3 %: a histogram is not exact.
func requestsCPU(milli int64, replicas int) func([]corev1.Pod) error {
	return func(pods []corev1.Pod) error {
		for i := range pods {
			if err := checkCPU(&pods[i], milli); err != nil {
				return err
			}
		}
		return ready(pods, replicas)
	}
}

func checkCPU(pod *corev1.Pod, milli int64) error {
	if got := pod.Spec.Containers[0].Resources.Requests.Cpu().MilliValue(); got < milli*97/100 || got > milli*103/100 {
		return fmt.Errorf("pod %s asks for %dm, want about %dm", pod.Name, got, milli)
	}
	return nil
}

// replaced polls the pods of a workload until they ask for so much, and returns them. The API server passes over a webhook that does
// not answer within seconds, and no pod is evicted twice: one that is new and was not changed is taken away here, for the next.
func (w *fixture) replaced(name string, before map[types.UID]bool, milli int64, replicas int) []corev1.Pod {
	w.t.Helper()
	return w.pods(name, "are replaced", func(pods []corev1.Pod) error {
		for i := range pods {
			if !before[pods[i].UID] && checkCPU(&pods[i], milli) != nil {
				w.remove(&pods[i])
			}
		}
		return requestsCPU(milli, replicas)(pods)
	})
}

// autoscaler is one of a Deployment with gocrane's percentile, which is easily foretold: p99 and 15 %.
func autoscaler(name, namespace, target string, edit ...func(*autoscalingv1alpha1.EffectiveVerticalPodAutoscaler)) *autoscalingv1alpha1.EffectiveVerticalPodAutoscaler {
	e := &autoscalingv1alpha1.EffectiveVerticalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: autoscalingv1alpha1.EffectiveVerticalPodAutoscalerSpec{
			TargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: target},
			ResourceEstimators: []autoscalingv1alpha1.ResourceEstimator{{
				Type: "Percentile", Config: map[string]string{"cpu-request-percentile": "0.99", "mem-request-percentile": "0.99"},
			}},
		},
	}
	for _, f := range edit {
		f(e)
	}
	return e
}

// updateMode sets the update mode; requests are changed at once, so that a test need not wait for windows.
func updateMode(m autoscalingv1alpha1.UpdateMode) func(*autoscalingv1alpha1.EffectiveVerticalPodAutoscaler) {
	return func(e *autoscalingv1alpha1.EffectiveVerticalPodAutoscaler) {
		none, all := int32(0), int32(100)
		e.Spec.UpdatePolicy = &autoscalingv1alpha1.PodUpdatePolicy{UpdateMode: &m}
		at := autoscalingv1alpha1.ResourceMetricThresholds{"cpu": {Utilization: &all}, "memory": {Utilization: &all}}
		e.Spec.ResourcePolicy = &autoscalingv1alpha1.PodResourcePolicy{ContainerPolicies: []autoscalingv1alpha1.ContainerResourcePolicy{{
			ContainerName:   "*",
			ScaleUpPolicy:   &autoscalingv1alpha1.ContainerScalingPolicy{MetricThresholds: at, StabilizationWindowSeconds: &none},
			ScaleDownPolicy: &autoscalingv1alpha1.ContainerScalingPolicy{MetricThresholds: at, StabilizationWindowSeconds: &none},
		}}}
	}
}

// await polls an autoscaler until it is as wanted, and returns it.
func (w *fixture) await(name, what string, check func(*autoscalingv1alpha1.EffectiveVerticalPodAutoscaler) error) *autoscalingv1alpha1.EffectiveVerticalPodAutoscaler {
	w.t.Helper()
	e := &autoscalingv1alpha1.EffectiveVerticalPodAutoscaler{}
	eventually(w.t, "autoscaler "+name+" "+what, func(ctx context.Context) error {
		if err := admin.Get(ctx, client.ObjectKey{Namespace: w.namespace, Name: name}, e); err != nil {
			return err
		}
		if err := check(e); err != nil {
			return fmt.Errorf("%w: %+v", err, e.Status)
		}
		return nil
	})
	return e
}

// condition wants one to have a status and a reason, and its message to hold a text.
func condition(kind string, status metav1.ConditionStatus, reason, text string) func(*autoscalingv1alpha1.EffectiveVerticalPodAutoscaler) error {
	return func(e *autoscalingv1alpha1.EffectiveVerticalPodAutoscaler) error {
		c := meta.FindStatusCondition(e.Status.Conditions, kind)
		if c == nil || c.Status != status || reason != "" && c.Reason != reason || !strings.Contains(c.Message, text) {
			return fmt.Errorf("condition %s is not %s, %s, %q", kind, status, reason, text)
		}
		return nil
	}
}

// decision returns that about one resource of the container app.
func decision(e *autoscalingv1alpha1.EffectiveVerticalPodAutoscaler, name corev1.ResourceName) autoscalingv1alpha1.VerticalDecision {
	for _, d := range e.Status.Decisions {
		if d.ContainerName == "app" && d.Resource == name {
			return d
		}
	}
	return autoscalingv1alpha1.VerticalDecision{}
}

// change edits the spec of an autoscaler.
func (w *fixture) change(name string, edit func(*autoscalingv1alpha1.EffectiveVerticalPodAutoscaler)) {
	w.t.Helper()
	eventually(w.t, "autoscaler "+name+" is changed", func(ctx context.Context) error {
		e := &autoscalingv1alpha1.EffectiveVerticalPodAutoscaler{}
		if err := admin.Get(ctx, client.ObjectKey{Namespace: w.namespace, Name: name}, e); err != nil {
			return err
		}
		edit(e)
		return admin.Update(ctx, e)
	})
}

// recommendation polls the Recommendation of an autoscaler.
func (w *fixture) recommendation(name, what string, check func(*analysisv1alpha1.Recommendation) error) {
	w.t.Helper()
	eventually(w.t, "recommendation of "+name+" "+what, func(ctx context.Context) error {
		rec := &analysisv1alpha1.Recommendation{}
		if err := admin.Get(ctx, client.ObjectKey{Namespace: w.namespace, Name: "evpa-" + name}, rec); err != nil {
			return err
		}
		if err := check(rec); err != nil {
			return fmt.Errorf("%w: %+v", err, rec)
		}
		return nil
	})
}

// noRecommendation waits until there is none.
func (w *fixture) noRecommendation(name string) {
	w.t.Helper()
	eventually(w.t, "no recommendation of "+name, func(ctx context.Context) error {
		err := admin.Get(ctx, client.ObjectKey{Namespace: w.namespace, Name: "evpa-" + name}, &analysisv1alpha1.Recommendation{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(err, errors.New("there is one"))
	})
}
