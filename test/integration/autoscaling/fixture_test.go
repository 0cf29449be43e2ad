// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscaling_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	"crane.io/crane/internal/testbed/controlplane"
	"crane.io/crane/test/integration/harness"
)

// waitTimeout is how long a test waits for what takes seconds on an idle machine.
const waitTimeout = 2 * time.Minute

func eventually(t *testing.T, what string, check func(ctx context.Context) error) {
	t.Helper()
	harness.Eventually(t.Context(), t, waitTimeout, what, check)
}

// newAdmin is a client that reads from the API server.
func newAdmin() (client.Client, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), predictionv1alpha1.AddToScheme(scheme), autoscalingv1alpha1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	return client.New(control.Config(), client.Options{Scheme: scheme})
}

// runPods is the kubelet of all pods: those that are there run and are ready, and have for long.
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
			was := pod.DeepCopy()
			pod.Status.Phase, pod.Status.StartTime = corev1.PodRunning, &started
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: started}}
			_ = c.Status().Patch(ctx, pod, client.MergeFrom(was)) // Gone again, or the server is away: the next round sees.
		}
	}
}

// fixture is a namespace with a craned that looks after it.
type fixture struct {
	client.Client
	t  *testing.T
	ns string
}

// newFixture makes a namespace. Only the first of a test starts craned.
func newFixture(t *testing.T, flags ...string) *fixture {
	t.Helper()
	c, err := newAdmin()
	if err != nil {
		t.Fatal(err)
	}
	w := &fixture{Client: c, t: t}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "shop-"}}
	if err := c.Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	w.ns = ns.Name
	startCraned(t, flags...)
	t.Cleanup(func() { // What one test leaves must not keep the controllers of the next busy.
		ctx := context.WithoutCancel(t.Context())
		_ = c.DeleteAllOf(ctx, &autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler{}, client.InNamespace(w.ns))
		_ = c.DeleteAllOf(ctx, &appsv1.Deployment{}, client.InNamespace(w.ns))
		_ = c.Delete(ctx, ns)
	})
	return w
}

func startCraned(t *testing.T, flags ...string) *harness.Process {
	t.Helper()
	kubeconfig, err := control.KubeconfigFor(t.Context(), "craned", controlplane.ServiceAccount("crane-system", "craned"))
	if err != nil {
		t.Fatal(err)
	}
	return harness.Start(t, waitTimeout, binary, append([]string{
		"--kubeconfig=" + kubeconfig, "--prometheus-address=http://127.0.0.1:1",
		"--metrics-bind-address=0", "--health-probe-bind-address=0", "--server-bind-port=0",
		"--leader-elect=false", // A lease would be lost on a machine that is slow enough, and with it the test.
		"--controllers=effectivehpa", "--ehpa-metrics-probe-interval=1s", "--ehpa-metrics-grace=3s",
	}, flags...)...)
}

func (w *fixture) create(objects ...client.Object) {
	w.t.Helper()
	for _, o := range objects {
		if o.GetNamespace() == "" {
			o.SetNamespace(w.ns)
		}
		if err := w.Create(w.t.Context(), o); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *fixture) key(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: w.ns, Name: name}
}

// change edits an autoscaler, whatever else writes to it.
func (w *fixture) change(name string, edit func(*autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler)) {
	w.t.Helper()
	e := &autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler{}
	if err := w.Get(w.t.Context(), w.key(name), e); err != nil {
		w.t.Fatal(err)
	}
	was := e.DeepCopy()
	edit(e)
	if err := w.Patch(w.t.Context(), e, client.MergeFrom(was)); err != nil {
		w.t.Fatal(err)
	}
}

// deployment has pods that request 250m of a cpu each; without a request where milli is 0.
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

// cpu is a metric of 60 % of what is requested.
func cpu() autoscalingv2.MetricSpec {
	percent := int32(60)
	return autoscalingv2.MetricSpec{
		Type: autoscalingv2.ResourceMetricSourceType,
		Resource: &autoscalingv2.ResourceMetricSource{
			Name: corev1.ResourceCPU, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: &percent},
		},
	}
}

// scaler scales a Deployment of its own name between 2 and 20 by cpu, with a forecast.
func scaler(name string, edit ...func(*autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler)) *autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler {
	two, window := int32(2), int32(3600)
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

// awaitScaler waits until a check of an autoscaler passes, and returns the autoscaler.
func (w *fixture) awaitScaler(name, what string, check func(*autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler) error) *autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler {
	w.t.Helper()
	e := &autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler{}
	eventually(w.t, name+": "+what, func(ctx context.Context) error {
		if err := w.Get(ctx, w.key(name), e); err != nil {
			return err
		}
		if e.Status.ObservedGeneration != e.Generation {
			return errors.New("the status is of an older spec")
		}
		return check(e)
	})
	return e
}

// awaitCondition waits for a condition, written type=status/reason.
func (w *fixture) awaitCondition(name, want string) *autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler {
	w.t.Helper()
	return w.awaitScaler(name, want, func(e *autoscalingv1alpha1.EffectiveHorizontalPodAutoscaler) error {
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
func (w *fixture) awaitHPA(name, what string, check func(*autoscalingv2.HorizontalPodAutoscaler) error) *autoscalingv2.HorizontalPodAutoscaler {
	w.t.Helper()
	h := &autoscalingv2.HorizontalPodAutoscaler{}
	eventually(w.t, "HPA "+name+": "+what, func(ctx context.Context) error {
		if err := w.Get(ctx, w.key(name), h); err != nil {
			return err
		}
		return check(h)
	})
	return h
}

// awaitGone waits until an object does not exist.
func (w *fixture) awaitGone(o client.Object, name string) {
	w.t.Helper()
	eventually(w.t, fmt.Sprintf("%T %s gone", o, name), func(ctx context.Context) error {
		err := w.Get(ctx, w.key(name), o)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(err, errors.New("it is still there"))
	})
}

// awaitReplicas waits until a Deployment wants a number of replicas.
func (w *fixture) awaitReplicas(name string, want int32) {
	w.t.Helper()
	eventually(w.t, fmt.Sprintf("%s at %d", name, want), func(ctx context.Context) error {
		if got, err := w.replicas(ctx, name); err != nil || got != want {
			return fmt.Errorf("it is at %d, %w", got, err)
		}
		return nil
	})
}

func (w *fixture) replicas(ctx context.Context, name string) (int32, error) {
	d := &appsv1.Deployment{}
	err := w.Get(ctx, w.key(name), d)
	if err != nil {
		return 0, err
	}
	return *d.Spec.Replicas, nil
}

// forecast writes a flat forecast of two hours into the prediction of an autoscaler, as its controller would.
func (w *fixture) forecast(name, skill string, cores ...float64) {
	w.t.Helper()
	tsp := &predictionv1alpha1.TimeSeriesPrediction{}
	eventually(w.t, "prediction of "+name, func(ctx context.Context) error { return w.Get(ctx, w.key("ehpa-"+name), tsp) })
	was := tsp.DeepCopy()
	now := metav1.Now()
	one := predictionv1alpha1.PredictionMetricStatus{
		ResourceIdentifier: tsp.Spec.PredictionMetrics[0].ResourceIdentifier, Ready: true, Skill: skill, Reason: "auto: daily",
		UpdateTime: &now, LastSampleTime: &now,
	}
	if plant := tsp.Spec.PredictionMetrics[0].Scaling; plant != nil { // all of it, in pods that are as full as the HPA wants them
		one.Scaling = &predictionv1alpha1.ScalingChoice{Use: true, Quantile: "0.95", Fill: string(plant.Target), LeadSeconds: 3600, Why: "it paid"}
	}
	for _, v := range cores {
		var s predictionv1alpha1.MetricTimeSeries
		for i := range 120 {
			s.Samples = append(s.Samples, predictionv1alpha1.Sample{
				Value: strconv.FormatFloat(v, 'f', 5, 64), Timestamp: now.Add(time.Duration(i) * time.Minute).Unix(),
			})
		}
		one.Prediction = append(one.Prediction, s)
	}
	tsp.Status.PredictionMetrics = []predictionv1alpha1.PredictionMetricStatus{one}
	if err := w.Status().Patch(w.t.Context(), tsp, client.MergeFrom(was)); err != nil {
		w.t.Fatal(err)
	}
}
