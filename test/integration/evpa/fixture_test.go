// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package evpa_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	"crane.io/crane/internal/testbed/controlplane"
	"crane.io/crane/test/integration/harness"
)

// waitTimeout bounds each wait. On an idle machine a wait takes seconds.
const waitTimeout = 4 * time.Minute

func eventually(t *testing.T, what string, check func(ctx context.Context) error) {
	t.Helper()
	harness.Eventually(t.Context(), t, waitTimeout, what, check)
}

// startCraned runs craned with the rights of config/rbac and with history from a directory until the test ends, and installs its webhooks.
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
	harness.InstallWebhooks(t, control.Config(), admin, address)
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

// fixture is a namespace of one test.
type fixture struct {
	*harness.Namespace
	// history is the directory of the history files.
	history string
}

func newFixture(t *testing.T, history string) *fixture {
	t.Helper()
	return &fixture{harness.NewNamespace(t, admin, "evpa-", waitTimeout), history}
}

// writeHistory writes ten days of constant usage of the container app of a Deployment, in cores and bytes.
func (w *fixture) writeHistory(name string, cores, bytes float64) {
	w.T.Helper()
	const step, days = 10 * time.Minute, 10
	end := time.Now().Truncate(step)
	for resource, v := range map[string]float64{"cpu": cores, "memory": bytes} {
		text := &strings.Builder{}
		text.WriteString("ts,value\n")
		for at := end.Add(-days * 24 * time.Hour); at.Before(end); at = at.Add(step) {
			fmt.Fprintf(text, "%d,%v\n", at.Unix(), v)
		}
		path := filepath.Join(w.history, strings.Join([]string{w.Name, "Deployment", name, "app", resource}, "_")+".csv")
		// craned must not read a partial file.
		if err := os.WriteFile(path+".new", []byte(text.String()), 0o600); err != nil {
			w.T.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			w.T.Fatal(err)
		}
	}
}

// resourceList returns a resource list without the resources whose text is empty.
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

// deploy creates a Deployment whose pods request a core and 512 MiB, and waits until they are ready.
func (w *fixture) deploy(name string, replicas int32, edit ...func(*appsv1.Deployment)) *appsv1.Deployment {
	w.T.Helper()
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
	w.CreateAll(d)
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

// pods waits until a check of the running pods of a workload passes, and returns them.
func (w *fixture) pods(name, what string, check func([]corev1.Pod) error) []corev1.Pod {
	w.T.Helper()
	var out []corev1.Pod
	w.Eventually("pods of "+name+" "+what, func(ctx context.Context) error {
		var all corev1.PodList
		if err := admin.List(ctx, &all, client.InNamespace(w.Name), client.MatchingLabels{"app": name}); err != nil {
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

// requestsCPU checks that all pods are ready and request milli thousandths of a core, to within 3 %, because a histogram is not exact.
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

// replaced waits until all pods of a workload request milli thousandths of a core, and returns them. The API server skips a webhook that
// does not answer within seconds, and no pod is evicted twice: replaced deletes a new pod that the webhook did not change.
func (w *fixture) replaced(name string, before map[types.UID]bool, milli int64, replicas int) []corev1.Pod {
	w.T.Helper()
	return w.pods(name, "are replaced", func(pods []corev1.Pod) error {
		for i := range pods {
			if !before[pods[i].UID] && checkCPU(&pods[i], milli) != nil {
				w.Remove(&pods[i])
			}
		}
		return requestsCPU(milli, replicas)(pods)
	})
}

// autoscaler returns an autoscaler of a Deployment with gocrane's percentile estimator: p99 plus 15 %.
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

// updateMode sets the update mode, and windows and thresholds that allow changes at once.
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

// await waits until a check of an autoscaler passes, and returns it.
func (w *fixture) await(name, what string, check func(*autoscalingv1alpha1.EffectiveVerticalPodAutoscaler) error) *autoscalingv1alpha1.EffectiveVerticalPodAutoscaler {
	w.T.Helper()
	return harness.Await(w.Namespace, &autoscalingv1alpha1.EffectiveVerticalPodAutoscaler{}, name, what, check)
}

// condition checks the status and reason of a condition, and a text in its message.
func condition(kind string, status metav1.ConditionStatus, reason, text string) func(*autoscalingv1alpha1.EffectiveVerticalPodAutoscaler) error {
	return func(e *autoscalingv1alpha1.EffectiveVerticalPodAutoscaler) error {
		c := meta.FindStatusCondition(e.Status.Conditions, kind)
		if c == nil || c.Status != status || reason != "" && c.Reason != reason || !strings.Contains(c.Message, text) {
			return fmt.Errorf("condition %s is not %s, %s, %q", kind, status, reason, text)
		}
		return nil
	}
}

// decision returns the decision about one resource of the container app.
func decision(e *autoscalingv1alpha1.EffectiveVerticalPodAutoscaler, name corev1.ResourceName) autoscalingv1alpha1.VerticalDecision {
	for _, d := range e.Status.Decisions {
		if d.ContainerName == "app" && d.Resource == name {
			return d
		}
	}
	return autoscalingv1alpha1.VerticalDecision{}
}

// change edits an autoscaler.
func (w *fixture) change(name string, edit func(*autoscalingv1alpha1.EffectiveVerticalPodAutoscaler)) {
	w.T.Helper()
	harness.Change(w.Namespace, &autoscalingv1alpha1.EffectiveVerticalPodAutoscaler{}, name, edit)
}

// recommendation waits until a check of the Recommendation of an autoscaler passes.
func (w *fixture) recommendation(name, what string, check func(*analysisv1alpha1.Recommendation) error) {
	w.T.Helper()
	harness.Await(w.Namespace, &analysisv1alpha1.Recommendation{}, "evpa-"+name, what, check)
}

// noRecommendation waits until an autoscaler has no Recommendation.
func (w *fixture) noRecommendation(name string) {
	w.T.Helper()
	w.AwaitGone(&analysisv1alpha1.Recommendation{}, "evpa-"+name)
}
