// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscaling_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	"crane.io/crane/test/integration/harness"
)

// waitTimeout bounds each wait. On an idle machine a wait takes seconds.
const waitTimeout = 2 * time.Minute

func newAdmin() (client.Client, error) {
	return harness.NewClient(control.Config(), predictionv1alpha1.AddToScheme, autoscalingv1alpha1.AddToScheme)
}

// runPods acts as the kubelet of all pods: pending pods become ready, with a start an hour ago.
func runPods(ctx context.Context, c client.Client) {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()

	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}

		var pods corev1.PodList
		if err := c.List(ctx, &pods); err != nil {
			continue
		}

		for i := range pods.Items {
			pod := &pods.Items[i]
			if pod.Status.Phase != corev1.PodPending || pod.DeletionTimestamp != nil {
				continue
			}

			started := metav1.NewTime(time.Now().Add(-time.Hour))
			before := pod.DeepCopy()
			pod.Status.Phase = corev1.PodRunning
			pod.Status.StartTime = &started
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: started}}
			_ = c.Status().Patch(ctx, pod, client.MergeFrom(before)) // A deleted pod or a stopped server; the next tick retries.
		}
	}
}

// fixture is a namespace that craned reconciles.
type fixture struct {
	*harness.Namespace
	craned *harness.Craned
}

// newFixture creates a namespace and starts craned.
func newFixture(t *testing.T, flags ...string) *fixture {
	t.Helper()

	c, err := newAdmin()
	if err != nil {
		t.Fatal(err)
	}

	f := &fixture{Namespace: harness.NewNamespace(t, c, "shop-", waitTimeout)}
	f.craned = startCraned(t, flags...)
	t.Cleanup(func() { // Remaining objects would keep the controllers of the next test busy.
		ctx := context.WithoutCancel(t.Context())
		_ = c.DeleteAllOf(ctx, &autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler{}, client.InNamespace(f.Name))
		_ = c.DeleteAllOf(ctx, &appsv1.Deployment{}, client.InNamespace(f.Name))
	})

	return f
}

func startCraned(t *testing.T, flags ...string) *harness.Craned {
	t.Helper()

	return harness.StartCraned(t, waitTimeout, control, binary, harness.NoPrometheus, append([]string{
		"--controllers=effectivehpa", "--ehpa-metrics-probe-interval=1s", "--ehpa-metrics-grace=3s",
	}, flags...)...)
}

// change edits an autoscaler.
func (f *fixture) change(name string, edit func(*autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler)) {
	f.T.Helper()
	harness.Change(f.Namespace, &autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler{}, name, edit)
}

// deployment returns a Deployment whose pods request milli thousandths of a core each, nothing for 0.
func deployment(name string, replicas int32, milli int64) *appsv1.Deployment {
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": name}},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "main"}}},
			},
		},
	}

	if milli > 0 {
		d.Spec.Template.Spec.Containers[0].Resources.Requests = corev1.ResourceList{
			corev1.ResourceCPU: *resource.NewMilliQuantity(milli, resource.DecimalSI),
		}
	}

	return d
}

// cpu returns a metric with a target of 60 % of the CPU request.
func cpu() autoscalingv2.MetricSpec {
	percent := int32(60)
	return autoscalingv2.MetricSpec{
		Type: autoscalingv2.ResourceMetricSourceType,
		Resource: &autoscalingv2.ResourceMetricSource{
			Name: corev1.ResourceCPU, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: &percent},
		},
	}
}

// scaler returns an autoscaler of the Deployment with its name, from 2 to 20 replicas by CPU, with a forecast.
func scaler(name string, edit ...func(*autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler)) *autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler {
	two := int32(2)
	window := int32(3600)
	e := &autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: autoscalingv1alpha1.EffectiveHorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: name},
			MinReplicas:    &two, MaxReplicas: 20,
			Metrics: []autoscalingv2.MetricSpec{cpu()},
			Prediction: &autoscalingv1alpha1.Prediction{
				PredictionWindowSeconds: &window, PredictionAlgorithm: &autoscalingv1alpha1.PredictionAlgorithm{AlgorithmType: "auto"},
			},
		},
	}

	for _, f := range edit {
		f(e)
	}

	return e
}

// awaitScaler waits until a check of an up-to-date autoscaler passes, and returns the autoscaler.
func (f *fixture) awaitScaler(name, what string, check func(*autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler) error) *autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler {
	f.T.Helper()

	return harness.Await(f.Namespace, &autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler{}, name, what,
		func(e *autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler) error {
			if e.Status.ObservedGeneration != e.Generation {
				return errors.New("the status is of an older spec")
			}

			return check(e)
		})
}

// awaitCondition waits for a condition, written type=status/reason.
func (f *fixture) awaitCondition(name, want string) *autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler {
	f.T.Helper()

	return f.awaitScaler(name, want, func(e *autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler) error {
		var all []string
		for _, c := range e.Status.Conditions {
			text := c.Type + "=" + string(c.Status) + "/" + c.Reason
			if text == want {
				return nil
			}

			all = append(all, text+" "+c.Message)
		}

		return fmt.Errorf("conditions %q", all)
	})
}

func conditionMessage(e *autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler, kind string) string {
	if c := meta.FindStatusCondition(e.Status.Conditions, kind); c != nil {
		return c.Message
	}

	return ""
}

func proposal(e *autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler, name string) autoscalingv1alpha1.ReplicaProposal {
	for _, p := range e.Status.Proposals {
		if p.Name == name {
			return p
		}
	}

	return autoscalingv1alpha1.ReplicaProposal{}
}

// awaitHPA waits until a check of an HPA passes.
func (f *fixture) awaitHPA(name, what string, check func(*autoscalingv2.HorizontalPodAutoscaler) error) *autoscalingv2.HorizontalPodAutoscaler {
	f.T.Helper()
	return harness.Await(f.Namespace, &autoscalingv2.HorizontalPodAutoscaler{}, name, what, check)
}

// awaitReplicas waits until the spec of a Deployment has a number of replicas.
func (f *fixture) awaitReplicas(name string, want int32) {
	f.T.Helper()

	f.Eventually(fmt.Sprintf("%s at %d", name, want), func(ctx context.Context) error {
		if got, err := f.replicas(ctx, name); err != nil || got != want {
			return fmt.Errorf("it is at %d, %w", got, err)
		}

		return nil
	})
}

func (f *fixture) replicas(ctx context.Context, name string) (int32, error) {
	d := &appsv1.Deployment{}
	err := f.Get(ctx, f.Key(name), d)
	if err != nil {
		return 0, err
	}

	return *d.Spec.Replicas, nil
}

// forecast writes a flat forecast of two hours into the prediction of an autoscaler, like its controller.
func (f *fixture) forecast(name, skill string, cores ...float64) {
	f.T.Helper()
	f.forecastWithChoice(name, skill, predictionv1alpha1.ScalingChoice{Use: true, Quantile: "0.95", LeadSeconds: 3600, Why: "it paid"}, cores...)
}

// forecastWithChoice writes a forecast that is used by choice, in pods filled to the target of the HPA.
func (f *fixture) forecastWithChoice(name, skill string, choice predictionv1alpha1.ScalingChoice, cores ...float64) {
	f.T.Helper()

	tsp := harness.Await(f.Namespace, &predictionv1alpha1.TimeSeriesPrediction{}, "ehpa-"+name, "exists",
		func(*predictionv1alpha1.TimeSeriesPrediction) error { return nil })
	before := tsp.DeepCopy()
	spec := tsp.Spec.PredictionMetrics[0]

	m := harness.FlatForecast(spec.ResourceIdentifier, skill, time.Now(), cores...)
	m.Reason = "auto: daily"
	if plant := spec.Scaling; plant != nil {
		m.Scaling = &choice
		if choice.Use {
			m.Scaling.Fill = string(plant.Target)
		}
	}

	tsp.Status.PredictionMetrics = []predictionv1alpha1.PredictionMetricStatus{m}
	if err := f.Status().Patch(f.T.Context(), tsp, client.MergeFrom(before)); err != nil {
		f.T.Fatal(err)
	}
}
