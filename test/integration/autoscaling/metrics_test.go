// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscaling_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	externalv1beta1 "k8s.io/metrics/pkg/apis/external_metrics/v1beta1"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	"crane.io/crane/internal/autoscaling/scalingmetric"
)

// fakeMetricsAPI serves metrics.k8s.io and external.metrics.k8s.io behind the aggregation layer of the API server. The test sets the
// usage of pods; forecasts are read from TimeSeriesPredictions like in an adapter.
type fakeMetricsAPI struct {
	client client.Client

	mu sync.Mutex
	// podUsage is the usage of each pod of a namespace in millicores, sharedLoad the total of its pods.
	podUsage, sharedLoad map[string]int64
	// queue is an external metric by namespace; absent values are not served.
	queue map[string]int64
	// forecastsServed reports whether forecasts are served.
	forecastsServed bool
}

const (
	resourceAPI = "/apis/metrics.k8s.io/v1beta1"
	externalAPI = "/apis/external.metrics.k8s.io/v1beta1"
)

// setPodUsage sets the usage of each pod of a namespace in millicores; a negative number removes the metric.
func (m *fakeMetricsAPI) setPodUsage(namespace string, milli int64) {
	m.mu.Lock()
	defer m.mu.Unlock()

	m.podUsage[namespace] = milli
	delete(m.sharedLoad, namespace)
}

// setSharedLoad divides a load in millicores among the running pods of a namespace.
func (m *fakeMetricsAPI) setSharedLoad(namespace string, milli int64) {
	m.mu.Lock()
	defer m.mu.Unlock()

	m.sharedLoad[namespace] = milli
	m.podUsage[namespace] = 0
}

// setQueue sets the external metric "queue" of a namespace; a negative number removes it.
func (m *fakeMetricsAPI) setQueue(namespace string, n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()

	m.queue[namespace] = n
}

func (m *fakeMetricsAPI) serveForecasts(on bool) {
	m.mu.Lock()
	defer m.mu.Unlock()

	m.forecastsServed = on
}

func (m *fakeMetricsAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var out any
	switch r.URL.Path {
	case resourceAPI:
		out = list("metrics.k8s.io/v1beta1", metav1.APIResource{Name: "pods", Namespaced: true, Kind: "PodMetrics", Verbs: metav1.Verbs{"get", "list"}})

	case externalAPI:
		all := []metav1.APIResource{{Name: "queue", Namespaced: true, Kind: "ExternalMetricValueList", Verbs: metav1.Verbs{"get"}}}
		m.mu.Lock()

		if m.forecastsServed {
			all = append(all, metav1.APIResource{Name: autoscalingv1alpha1.MetricPrediction, Namespaced: true, Kind: "ExternalMetricValueList", Verbs: metav1.Verbs{"get"}})
		}

		m.mu.Unlock()
		out = list("external.metrics.k8s.io/v1beta1", all...)

	default:
		mux := http.NewServeMux()
		mux.HandleFunc("GET "+resourceAPI+"/namespaces/{namespace}/pods", m.pods)
		mux.HandleFunc("GET "+externalAPI+"/namespaces/{namespace}/{metric}", m.external)
		mux.ServeHTTP(w, r)

		return
	}

	reply(w, out)
}

func list(gv string, resources ...metav1.APIResource) metav1.APIResourceList {
	return metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: gv, APIResources: resources}
}

func reply(w http.ResponseWriter, body any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(body)
}

func (m *fakeMetricsAPI) pods(w http.ResponseWriter, r *http.Request) {
	namespace := r.PathValue("namespace")
	m.mu.Lock()
	milli, known := m.podUsage[namespace]
	load, shared := m.sharedLoad[namespace]
	m.mu.Unlock()
	out := metricsv1beta1.PodMetricsList{TypeMeta: metav1.TypeMeta{Kind: "PodMetricsList", APIVersion: "metrics.k8s.io/v1beta1"}}

	selector, err := labels.Parse(r.URL.Query().Get("labelSelector"))
	if err != nil || !known || milli < 0 {
		reply(w, out)
		return
	}

	var pods corev1.PodList
	if err := m.client.List(r.Context(), &pods, client.InNamespace(namespace), client.MatchingLabelsSelector{Selector: selector}); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}

	running := slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool { return p.Status.Phase != corev1.PodRunning || p.DeletionTimestamp != nil })
	if shared && len(running) > 0 {
		milli = load / int64(len(running))
	}

	for i := range running {
		out.Items = append(out.Items, metricsv1beta1.PodMetrics{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: running[i].Name},
			Timestamp:  metav1.Now(), Window: metav1.Duration{Duration: time.Second},
			Containers: []metricsv1beta1.ContainerMetrics{{
				Name: "main", Usage: corev1.ResourceList{corev1.ResourceCPU: *resource.NewMilliQuantity(milli, resource.DecimalSI)},
			}},
		})
	}

	reply(w, out)
}

func (m *fakeMetricsAPI) external(w http.ResponseWriter, r *http.Request) {
	namespace := r.PathValue("namespace")
	metric := r.PathValue("metric")
	out := externalv1beta1.ExternalMetricValueList{TypeMeta: metav1.TypeMeta{Kind: "ExternalMetricValueList", APIVersion: "external.metrics.k8s.io/v1beta1"}}
	add := func(q resource.Quantity) {
		out.Items = append(out.Items, externalv1beta1.ExternalMetricValue{MetricName: metric, Timestamp: metav1.Now(), Value: q})
	}
	m.mu.Lock()
	queue, known := m.queue[namespace]
	served := m.forecastsServed
	m.mu.Unlock()

	switch {
	case metric == "queue" && known && queue >= 0:
		add(*resource.NewQuantity(queue, resource.DecimalSI))
	case metric == autoscalingv1alpha1.MetricPrediction && served:
		v, err := m.forecast(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusNotFound)
			return
		}

		add(scalingmetric.NewQuantity(v))

	default:
		http.NotFound(w, r)
		return
	}

	reply(w, out)
}

func (m *fakeMetricsAPI) forecast(r *http.Request) (float64, error) {
	selector, err := labels.Parse(r.URL.Query().Get("labelSelector"))
	if err != nil {
		return 0, err
	}

	key, err := scalingmetric.ParseKey(selector)
	if err != nil {
		return 0, err
	}

	var all predictionv1alpha1.TimeSeriesPredictionList
	if err := m.client.List(r.Context(), &all, client.InNamespace(key.TargetNamespace)); err != nil {
		return 0, err
	}

	i := slices.IndexFunc(all.Items, func(tsp predictionv1alpha1.TimeSeriesPrediction) bool { return key.SelectsPrediction(&tsp) })
	if i < 0 {
		return 0, scalingmetric.ErrNotReady
	}

	f, err := scalingmetric.ActionableForecast(&all.Items[i], key.Identifier, time.Now())
	return f.Value, err
}

// serveMetrics serves the two API groups from this process and registers them.
func serveMetrics(ctx context.Context, c client.Client) (*fakeMetricsAPI, error) {
	m := &fakeMetricsAPI{client: c, podUsage: map[string]int64{}, sharedLoad: map[string]int64{}, queue: map[string]int64{}, forecastsServed: true}
	const host = "metrics.crane-system.svc"
	certPEM, keyPEM, err := control.IssueServing(host, "127.0.0.1")
	if err != nil {
		return nil, err
	}

	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, err
	}

	server := httptest.NewUnstartedServer(m)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	context.AfterFunc(ctx, server.Close)
	port := int32(server.Listener.Addr().(*net.TCPAddr).Port)

	if err := c.Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "crane-system", Name: "metrics"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
	}); err != nil {
		return nil, err
	}

	registry, err := aggregator.NewForConfig(control.Config())
	if err != nil {
		return nil, err
	}

	for _, group := range []string{"metrics.k8s.io", "external.metrics.k8s.io"} {
		_, err := registry.ApiregistrationV1().APIServices().Create(ctx, &apiregistrationv1.APIService{
			ObjectMeta: metav1.ObjectMeta{Name: "v1beta1." + group},
			Spec: apiregistrationv1.APIServiceSpec{
				Group: group, Version: "v1beta1", GroupPriorityMinimum: 100, VersionPriority: 10, CABundle: control.CAPEM(),
				Service: &apiregistrationv1.ServiceReference{Namespace: "crane-system", Name: "metrics", Port: &port},
			},
		}, metav1.CreateOptions{})
		if err != nil {
			return nil, err
		}
	}

	return m, nil
}
