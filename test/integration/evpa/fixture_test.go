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

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
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

	address := harness.FreeAddress(t)
	host, port, _ := strings.Cut(address, ":")
	harness.StartCraned(t, waitTimeout, control, binary, harness.NoPrometheus,
		"--datasource=csv", "--csv-dir="+history, "--controllers=effectivevpa,adoption,oom,recommendation", "--metrics-bind-address=0",
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
func (f *fixture) writeHistory(name string, cores, bytes float64) {
	f.T.Helper()
	f.writeHistoryOf("Deployment", name, cores, bytes)
}

func (f *fixture) writeHistoryOf(kind, name string, cores, bytes float64) {
	f.T.Helper()

	const step, days = 10 * time.Minute, 10
	end := time.Now().Truncate(step)
	for resource, v := range map[string]float64{"cpu": cores, "memory": bytes} {
		text := &strings.Builder{}
		text.WriteString("ts,value\n")

		for at := end.Add(-days * 24 * time.Hour); at.Before(end); at = at.Add(step) {
			fmt.Fprintf(text, "%d,%v\n", at.Unix(), v)
		}

		path := filepath.Join(f.history, strings.Join([]string{f.Name, kind, name, "app", resource}, "_")+".csv")
		// craned must not read a partial file.
		if err := os.WriteFile(path+".new", []byte(text.String()), 0o600); err != nil {
			f.T.Fatal(err)
		}

		if err := os.Rename(path+".new", path); err != nil {
			f.T.Fatal(err)
		}
	}
}

// requestsCPU checks that all pods are ready and request milli thousandths of a core, to within 3 %, because a histogram is not exact.
func requestsCPU(milli int64, replicas int) func([]corev1.Pod) error {
	return func(pods []corev1.Pod) error {
		for i := range pods {
			if err := checkCPU(&pods[i], milli); err != nil {
				return err
			}
		}

		return harness.CheckReady(pods, replicas)
	}
}

func checkCPU(pod *corev1.Pod, milli int64) error {
	if got := pod.Spec.Containers[0].Resources.Requests.Cpu().MilliValue(); got < milli*97/100 || got > milli*103/100 {
		return fmt.Errorf("pod %s requests %dm, want about %dm", pod.Name, got, milli)
	}

	return nil
}

// replaced waits until all pods of a workload request milli thousandths of a core, and returns them. The API server skips a webhook that
// does not answer within seconds, and no pod is evicted twice: replaced deletes a new pod that the webhook did not change.
func (f *fixture) replaced(name string, before map[types.UID]bool, milli int64, replicas int) []corev1.Pod {
	f.T.Helper()

	return f.AwaitPods(name, "are replaced", func(pods []corev1.Pod) error {
		for i := range pods {
			if !before[pods[i].UID] && checkCPU(&pods[i], milli) != nil {
				f.Remove(&pods[i])
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
		none := int32(0)
		all := int32(100)
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
func (f *fixture) await(name, what string, check func(*autoscalingv1alpha1.EffectiveVerticalPodAutoscaler) error) *autoscalingv1alpha1.EffectiveVerticalPodAutoscaler {
	f.T.Helper()
	return harness.Await(f.Namespace, &autoscalingv1alpha1.EffectiveVerticalPodAutoscaler{}, name, what, check)
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
func (f *fixture) change(name string, edit func(*autoscalingv1alpha1.EffectiveVerticalPodAutoscaler)) {
	f.T.Helper()
	harness.Change(f.Namespace, &autoscalingv1alpha1.EffectiveVerticalPodAutoscaler{}, name, edit)
}

// recommendation waits until a check of the Recommendation of an autoscaler passes.
func (f *fixture) recommendation(name, what string, check func(*analysisv1alpha1.Recommendation) error) {
	f.T.Helper()
	harness.Await(f.Namespace, &analysisv1alpha1.Recommendation{}, "evpa-"+name, what, check)
}

// noRecommendation waits until an autoscaler has no Recommendation.
func (f *fixture) noRecommendation(name string) {
	f.T.Helper()
	f.AwaitGone(&analysisv1alpha1.Recommendation{}, "evpa-"+name)
}
