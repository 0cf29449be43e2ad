// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package ehpa

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"path"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/controller/podautoscaler"
	hpaclient "k8s.io/kubernetes/pkg/controller/podautoscaler/metrics"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"crane.io/crane/internal/autoscaling/hpametrics"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/pkg/scaling"
)

// differentialCases returns the number of random cases of a comparison with the HPA controller: CRANE_HPA_CASES, or a default that takes
// seconds.
func differentialCases(t *testing.T, standard int) int {
	t.Helper()

	text := os.Getenv("CRANE_HPA_CASES")
	if text == "" {
		return standard
	}

	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("CRANE_HPA_CASES=%s: %v", text, err)
	}

	return n
}

// hpaWorld is what the metrics APIs and the API server report about a target. It serves both the HPA controller and Crane.
type hpaWorld struct {
	pods []*corev1.Pod
	// usage has the samples of metrics.k8s.io, custom those of custom.metrics.k8s.io by pod, and values those of an external metric or an object.
	usage  []metricsv1beta1.PodMetrics
	custom map[string]int64
	values []int64

	mu sync.Mutex
	// named has the values of external metrics by name, instead of values.
	named map[string][]int64
}

// setNamed replaces the values of external metrics, also while a controller reads them.
func (w *hpaWorld) setNamed(values map[string][]int64) {
	w.mu.Lock()
	defer w.mu.Unlock()

	w.named = values
}

func (w *hpaWorld) external(name string) []int64 {
	w.mu.Lock()
	defer w.mu.Unlock()

	if w.named != nil {
		return w.named[name]
	}

	return w.values
}

var errNoValues = errors.New("no metrics returned")

// GetResourceMetric implements the client of the HPA controller.
func (w *hpaWorld) GetResourceMetric(_ context.Context, name corev1.ResourceName, _ string, _ labels.Selector, container string) (hpaclient.PodMetricsInfo, time.Time, error) {
	if len(w.usage) == 0 {
		return nil, time.Time{}, errNoValues
	}

	out := hpaclient.PodMetricsInfo{}
	for _, m := range w.usage {
		total := int64(0)
		found := 0
		complete := true
		for _, c := range m.Containers {
			if container != "" && c.Name != container {
				continue
			}

			q, ok := c.Usage[name]
			complete = complete && ok
			total += q.MilliValue()
			found++
		}

		if found > 0 && complete {
			out[m.Name] = hpaclient.PodMetric{Timestamp: m.Timestamp.Time, Window: m.Window.Duration, Value: total}
		}
	}

	return out, time.Time{}, nil
}

// GetRawMetric implements the client of the HPA controller.
func (w *hpaWorld) GetRawMetric(string, string, labels.Selector, labels.Selector) (hpaclient.PodMetricsInfo, time.Time, error) {
	if len(w.custom) == 0 {
		return nil, time.Time{}, errNoValues
	}

	out := hpaclient.PodMetricsInfo{}
	for name, v := range w.custom {
		out[name] = hpaclient.PodMetric{Value: v, Window: time.Minute}
	}

	return out, time.Time{}, nil
}

// GetObjectMetric implements the client of the HPA controller.
func (w *hpaWorld) GetObjectMetric(string, string, *autoscalingv2.CrossVersionObjectReference, labels.Selector) (int64, time.Time, error) {
	if len(w.values) == 0 {
		return 0, time.Time{}, errNoValues
	}

	return w.values[0], time.Time{}, nil
}

// GetExternalMetric implements the client of the HPA controller.
func (w *hpaWorld) GetExternalMetric(name, _ string, _ labels.Selector) ([]int64, time.Time, error) {
	values := w.external(name)
	if len(values) == 0 {
		return nil, time.Time{}, errNoValues
	}

	return values, time.Time{}, nil
}

// RoundTrip serves the same values to the client of Crane.
func (w *hpaWorld) RoundTrip(r *http.Request) (*http.Response, error) {
	var items []any
	switch {
	case strings.HasPrefix(r.URL.Path, "/apis/metrics.k8s.io/"):
		for i := range w.usage {
			items = append(items, w.usage[i])
		}
	case strings.Contains(r.URL.Path, "/pods/"):
		for name, v := range w.custom {
			items = append(items, map[string]any{"describedObject": map[string]any{"name": name}, "value": resource.NewMilliQuantity(v, resource.DecimalSI)})
		}

	case strings.HasPrefix(r.URL.Path, "/apis/custom."):
		for _, v := range w.values[:min(1, len(w.values))] {
			items = append(items, map[string]any{"value": resource.NewMilliQuantity(v, resource.DecimalSI)})
		}
	default:
		for _, v := range w.external(path.Base(r.URL.Path)) {
			items = append(items, map[string]any{"value": resource.NewMilliQuantity(v, resource.DecimalSI)})
		}
	}

	body, err := json.Marshal(map[string]any{"items": items})
	if err != nil {
		return nil, err
	}

	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body)), Request: r,
	}, nil
}

// Get implements client.Reader.
func (w *hpaWorld) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return errors.New("the client of metrics lists pods and gets none")
}

// List implements client.Reader.
func (w *hpaWorld) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	pods, ok := list.(*corev1.PodList)
	if !ok {
		return fmt.Errorf("listing %T", list)
	}

	for _, p := range w.pods {
		pods.Items = append(pods.Items, *p)
	}

	return nil
}

// calculator compares the replicas of a metric.
type calculator struct {
	world  *hpaWorld
	reader *hpametrics.Client
}

func newCalculator(t *testing.T) *calculator {
	t.Helper()

	c := &calculator{world: &hpaWorld{}}
	restClient, err := rest.UnversionedRESTClientFor(&rest.Config{
		Host: "http://metrics.example", Transport: c.world, QPS: -1, ContentConfig: rest.ContentConfig{NegotiatedSerializer: scheme.Codecs.WithoutConversion()},
	})
	if err != nil {
		t.Fatal(err)
	}

	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(schema.GroupVersionKind{Version: "v1", Kind: "Service"}, meta.RESTScopeNamespace)
	c.reader = &hpametrics.Client{REST: restClient, Pods: c.world, Mapper: mapper}

	return c
}

// upstream returns what the HPA controller computes.
func (c *calculator) upstream(m *autoscalingv2.MetricSpec, spec, status int32) (int32, error) {
	index := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	for _, p := range c.world.pods {
		_ = index.Add(p)
	}

	calc := podautoscaler.NewReplicaCalculator(c.world, corelisters.NewPodLister(index), 5*time.Minute, 30*time.Second)
	// Its fields are not exported, so that both compare without a tolerance here; TestHPAController has tolerances.
	tolerances := podautoscaler.Tolerances{}
	pods := labels.SelectorFromSet(labels.Set{"app": "web"})

	var replicas int32
	var err error
	switch target, _ := metricTarget(m); {
	case m.Resource != nil && target.AverageUtilization != nil:
		replicas, _, _, _, err = calc.GetResourceReplicas(context.Background(), spec, *target.AverageUtilization, m.Resource.Name, tolerances, "shop", pods, "")
	case m.ContainerResource != nil && target.AverageUtilization != nil:
		replicas, _, _, _, err = calc.GetResourceReplicas(context.Background(), spec, *target.AverageUtilization, m.ContainerResource.Name, tolerances, "shop", pods, m.ContainerResource.Container)
	case m.Resource != nil:
		replicas, _, _, err = calc.GetRawResourceReplicas(context.Background(), spec, target.AverageValue.MilliValue(), m.Resource.Name, tolerances, "shop", pods, "")
	case m.ContainerResource != nil:
		replicas, _, _, err = calc.GetRawResourceReplicas(context.Background(), spec, target.AverageValue.MilliValue(), m.ContainerResource.Name, tolerances, "shop", pods, m.ContainerResource.Container)
	case m.Pods != nil:
		replicas, _, _, err = calc.GetMetricReplicas(spec, target.AverageValue.MilliValue(), "m", tolerances, "shop", pods, labels.Everything())
	case m.Object != nil && target.Value != nil:
		replicas, _, _, err = calc.GetObjectMetricReplicas(spec, target.Value.MilliValue(), "m", tolerances, "shop", &m.Object.DescribedObject, pods, labels.Everything())
	case m.Object != nil:
		replicas, _, _, err = calc.GetObjectPerPodMetricReplicas(status, target.AverageValue.MilliValue(), "m", tolerances, "shop", &m.Object.DescribedObject, labels.Everything())
	case target.Value != nil:
		replicas, _, _, err = calc.GetExternalMetricReplicas(spec, target.Value.MilliValue(), "m", tolerances, "shop", m.External.Metric.Selector, pods)
	default:
		replicas, _, _, err = calc.GetExternalPerPodMetricReplicas(status, target.AverageValue.MilliValue(), "m", tolerances, "shop", m.External.Metric.Selector)
	}

	return replicas, err
}

// ours returns what Crane computes.
func (c *calculator) ours(t *testing.T, m *autoscalingv2.MetricSpec, spec, status int32) (int32, error) {
	scale := workload.Scale{Replicas: spec, CurrentReplicas: status, Selector: "app=web"}

	v, err := c.reader.Read(t.Context(), "shop", scale.Selector, m, time.Now())
	if err != nil {
		return 0, err
	}

	replicas, _, _, err := replicasFor(m, v, scale, scaling.Tolerance{})
	return replicas, err
}

// randomPods fills the world with pods in every state that the HPA distinguishes, and with their samples.
func (w *hpaWorld) randomPods(r *rand.Rand, now time.Time) {
	*w = hpaWorld{custom: map[string]int64{}}
	scale := []int64{1, 1000, 1 << 20}[r.IntN(3)]
	for i := range 1 + r.IntN(8) {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprintf("web-%d", i), Labels: map[string]string{"app": "web"}}}
		p.Status.Phase = []corev1.PodPhase{"Running", "Running", "Running", "Running", "Pending", "Failed", "Succeeded", "Unknown"}[r.IntN(8)]
		if r.IntN(12) == 0 {
			p.DeletionTimestamp = &metav1.Time{Time: now}
		}

		if r.IntN(8) > 0 {
			p.Status.StartTime = &metav1.Time{Time: now.Add(-time.Duration(r.IntN(600)) * time.Second)}
		}

		if r.IntN(8) > 0 {
			changed := now.Add(-time.Duration(r.IntN(600)) * time.Second)
			status := []corev1.ConditionStatus{"True", "True", "True", "False", "Unknown"}[r.IntN(5)]
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: status, LastTransitionTime: metav1.NewTime(changed)}}
		}

		sample := metricsv1beta1.PodMetrics{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: p.Name}, Timestamp: metav1.NewTime(now.Add(-time.Duration(r.IntN(60)) * time.Second)),
			Window: metav1.Duration{Duration: time.Duration(r.IntN(60)) * time.Second},
		}
		for _, name := range []string{"main", "proxy"}[:1+r.IntN(2)] {
			request := scale * int64(r.IntN(1000))
			container := corev1.Container{Name: name, Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{}}}
			usage := metricsv1beta1.ContainerMetrics{Name: name, Usage: corev1.ResourceList{}}
			for _, resourceName := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
				if r.IntN(40) > 0 {
					container.Resources.Requests[resourceName] = *resource.NewMilliQuantity(request, resource.DecimalSI)
				}
				if r.IntN(40) > 0 {
					usage.Usage[resourceName] = *resource.NewMilliQuantity(int64(float64(request)*1.6*r.Float64()), resource.DecimalSI)
				}
			}

			always := corev1.ContainerRestartPolicyAlways
			if name == "proxy" && r.IntN(2) == 0 {
				container.RestartPolicy = &always
				p.Spec.InitContainers = append(p.Spec.InitContainers, container)
			} else {
				p.Spec.Containers = append(p.Spec.Containers, container)
			}

			sample.Containers = append(sample.Containers, usage)
		}

		w.pods = append(w.pods, p)
		if r.IntN(5) > 0 {
			w.usage = append(w.usage, sample)
		}
		if r.IntN(5) > 0 {
			w.custom[p.Name] = scale * int64(r.IntN(1000))
		}
	}

	// A metrics API may still have a sample of a pod that is gone.
	if r.IntN(10) == 0 {
		w.custom["gone"] = scale * int64(r.IntN(1000))
		w.usage = append(w.usage, metricsv1beta1.PodMetrics{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "gone"}, Timestamp: metav1.NewTime(now),
			Containers: []metricsv1beta1.ContainerMetrics{{Name: "main", Usage: corev1.ResourceList{
				corev1.ResourceCPU: *resource.NewMilliQuantity(scale*100, resource.DecimalSI), corev1.ResourceMemory: *resource.NewMilliQuantity(scale*100, resource.DecimalSI),
			}}},
		})
	}
	if r.IntN(15) == 0 {
		w.pods = nil
	}

	for range r.IntN(3) {
		w.values = append(w.values, scale*int64(r.IntN(4000)-200))
	}
}

// randomMetric returns a metric of any type with any target.
func randomMetric(r *rand.Rand) *autoscalingv2.MetricSpec {
	target := autoscalingv2.MetricTarget{}
	quantity := resource.NewMilliQuantity([]int64{1, 1000, 1 << 20}[r.IntN(3)]*int64(1+r.IntN(1000)), resource.DecimalSI)
	percent := int32(1 + r.IntN(250))
	name := []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}[r.IntN(2)]
	id := autoscalingv2.MetricIdentifier{Name: "m", Selector: []*metav1.LabelSelector{nil, {}, {MatchLabels: map[string]string{"a": "b"}}}[r.IntN(3)]}
	if id.Selector == nil {
		id.Selector = &metav1.LabelSelector{} // The HPA controller takes nil for a selector of nothing, which the API server replaces.
	}

	kind := r.IntN(5)
	switch {
	case kind < 2 && r.IntN(2) == 0:
		target.AverageUtilization = &percent
	case kind < 3 || r.IntN(2) == 0:
		target.AverageValue = quantity
	default:
		target.Value = quantity
	}

	switch kind {
	case 0:
		return &autoscalingv2.MetricSpec{Type: "Resource", Resource: &autoscalingv2.ResourceMetricSource{Name: name, Target: target}}
	case 1:
		return &autoscalingv2.MetricSpec{Type: "ContainerResource", ContainerResource: &autoscalingv2.ContainerResourceMetricSource{Name: name, Container: "main", Target: target}}
	case 2:
		return &autoscalingv2.MetricSpec{Type: "Pods", Pods: &autoscalingv2.PodsMetricSource{Metric: id, Target: target}}
	case 3:
		object := autoscalingv2.CrossVersionObjectReference{APIVersion: "v1", Kind: "Service", Name: "web"}
		return &autoscalingv2.MetricSpec{Type: "Object", Object: &autoscalingv2.ObjectMetricSource{DescribedObject: object, Metric: id, Target: target}}
	default:
		return &autoscalingv2.MetricSpec{Type: "External", External: &autoscalingv2.ExternalMetricSource{Metric: id, Target: target}}
	}
}

// TestHPACalculator compares what a metric asks for with the HPA controller's own calculator, on random pods and metrics. One difference has an
// explanation: more than 2,147,483,647 replicas do not fit into the controller's number, which is then whatever the processor has for them, on
// some the least one. Crane has the largest. Each other difference is a failure.
func TestHPACalculator(t *testing.T) {
	const seed = 40

	c := newCalculator(t)
	r := rand.New(rand.NewPCG(seed, seed))
	now := time.Now().Truncate(time.Second)
	scaled := 0
	overflows := 0
	for i := range differentialCases(t, 50_000) {
		if i%1000 == 0 {
			now = time.Now().Truncate(time.Second) // Both measure ages of pods from the present.
		}

		c.world.randomPods(r, now)
		m := randomMetric(r)
		spec := int32(r.IntN(10))
		status := max(0, spec+int32(r.IntN(3)-1))

		want, wantErr := c.upstream(m, spec, status)
		got, err := c.ours(t, m, spec, status)
		if err == nil && wantErr == nil && got == math.MaxInt32 && want != got {
			overflows++
			continue
		}

		if (err != nil) != (wantErr != nil) || err == nil && got != want {
			text, _ := json.Marshal(m)
			pods, _ := json.Marshal(c.world.pods)
			usage, _ := json.Marshal(c.world.usage)
			t.Fatalf("case %d of seed %d: %s at %d replicas, status %d:\ngot %d, %v\nwant %d, %v\npods %s\nusage %s\ncustom %v, values %v",
				i, seed, text, spec, status, got, err, want, wantErr, pods, usage, c.world.custom, c.world.values)
		}

		if wantErr == nil {
			scaled++
		}
	}

	t.Logf("%d of the cases had a value, %d a number of replicas that overflows", scaled, overflows)
}
