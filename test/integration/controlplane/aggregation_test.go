// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	externalv1beta1 "k8s.io/metrics/pkg/apis/external_metrics/v1beta1"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"
)

// extension is an extension API server on loopback. It serves over TLS with a certificate of the cluster CA to clients
// with the front proxy's certificate, and records their users.
type extension struct {
	port  int32
	users chan string
}

// serveExtension registers group/version of the API, served by a new extension through an ExternalName Service in
// namespace. Objects are served as JSON by path.
func serveExtension(t *testing.T, namespace, group, version string, objects map[string]any) extension {
	t.Helper()

	name := version + "." + group
	service := strings.ReplaceAll(group, ".", "-")
	e := newExtension(t, service+"."+namespace+".svc", objects)

	client := clientFor(t, shared.Config())
	_, err := client.CoreV1().Services(namespace).Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: service},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}

	registry, err := aggregator.NewForConfig(shared.Config())
	if err != nil {
		t.Fatal(err)
	}

	services := registry.ApiregistrationV1().APIServices()
	_, err = services.Create(t.Context(), &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: apiregistrationv1.APIServiceSpec{
			Group: group, Version: version, GroupPriorityMinimum: 100, VersionPriority: 10,
			CABundle: shared.CAPEM(),
			Service:  &apiregistrationv1.ServiceReference{Namespace: namespace, Name: service, Port: &e.port},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := services.Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})

	eventually(t, name+" available", func(ctx context.Context) error {
		s, err := services.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}

		for _, c := range s.Status.Conditions {
			if c.Type == apiregistrationv1.Available && c.Status == apiregistrationv1.ConditionTrue {
				return nil
			}
		}

		return fmt.Errorf("conditions %v", s.Status.Conditions)
	})

	return e
}

func newExtension(t *testing.T, host string, objects map[string]any) extension {
	t.Helper()

	certPEM, keyPEM, err := shared.IssueServing(host, "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}

	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		t.Fatal(err)
	}

	caFile, names := shared.FrontProxy()
	caPEM, err := os.ReadFile(caFile)
	if err != nil {
		t.Fatal(err)
	}

	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(caPEM) {
		t.Fatalf("no certificate in %s, want one", caFile)
	}

	users := make(chan string, 1000)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !slices.Contains(names, r.TLS.PeerCertificates[0].Subject.CommonName) {
			http.Error(w, "not the front proxy", http.StatusUnauthorized)
			return
		}

		select {
		case users <- r.Header.Get("X-Remote-User"):
		default:
		}

		object, found := objects[r.URL.Path]
		if !found {
			http.NotFound(w, r)
			return
		}

		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(object)
	}))

	server.TLS = &tls.Config{
		Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool,
		MinVersion: tls.VersionTLS12,
	}
	server.StartTLS()
	t.Cleanup(server.Close)

	return extension{port: int32(server.Listener.Addr().(*net.TCPAddr).Port), users: users}
}

// awaitUser waits for a request of that user.
func (e extension) awaitUser(t *testing.T, user string) {
	t.Helper()

	eventually(t, "request of "+user, func(context.Context) error {
		for {
			select {
			case got := <-e.users:
				if got == user {
					return nil
				}
			default:
				return errors.New("none yet")
			}
		}
	})
}

func resourceList(groupVersion string, resources ...metav1.APIResource) metav1.APIResourceList {
	return metav1.APIResourceList{
		TypeMeta:     metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
		GroupVersion: groupVersion, APIResources: resources,
	}
}

func TestAggregatedAPIThroughExternalName(t *testing.T) {
	client := clientFor(t, shared.Config())
	namespace := newNamespace(t, client)
	e := serveExtension(t, namespace, "fruit.example", "v1", map[string]any{
		"/apis/fruit.example/v1":        resourceList("fruit.example/v1"),
		"/apis/fruit.example/v1/apples": map[string]int{"apples": 3},
	})

	// The aggregator learns from its own watch that the APIService is available.
	eventually(t, "answer of the extension", func(ctx context.Context) error {
		body, err := client.Discovery().RESTClient().Get().AbsPath("/apis/fruit.example/v1/apples").DoRaw(ctx)
		if err != nil || strings.TrimSpace(string(body)) != `{"apples":3}` {
			return fmt.Errorf("answer %q, %w", body, err)
		}

		return nil
	})

	e.awaitUser(t, "crane-admin")

	// Extension API servers that delegate authentication read the front proxy's CA from this ConfigMap.
	settings, err := client.CoreV1().ConfigMaps("kube-system").Get(t.Context(), "extension-apiserver-authentication", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}

	for _, key := range []string{"client-ca-file", "requestheader-client-ca-file", "requestheader-allowed-names"} {
		if settings.Data[key] == "" {
			t.Errorf("no %s in %v, want a value", key, settings.Data)
		}
	}
}

// TestAutoscalerReadsAggregatedMetrics checks that the controller manager's autoscaler gets resource and external
// metrics from extension API servers, with the rights of its own service account.
func TestAutoscalerReadsAggregatedMetrics(t *testing.T) {
	client := clientFor(t, shared.Config())
	namespace := newNamespace(t, client)
	readyNode(t, client, "autoscaled")

	if _, err := client.AppsV1().Deployments(namespace).Create(t.Context(), deployment("web", 1), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	eventually(t, "pod on the node", func(ctx context.Context) error { return podsOn(ctx, client, namespace, 1, true) })
	pod := runPods(t, client, namespace)[0]

	now := metav1.Now()
	window := metav1.Duration{Duration: time.Minute}
	resources := serveExtension(t, namespace, "metrics.k8s.io", "v1beta1", map[string]any{
		"/apis/metrics.k8s.io/v1beta1": resourceList("metrics.k8s.io/v1beta1",
			metav1.APIResource{Name: "pods", Namespaced: true, Kind: "PodMetrics", Verbs: metav1.Verbs{"get", "list"}}),
		"/apis/metrics.k8s.io/v1beta1/namespaces/" + namespace + "/pods": metricsv1beta1.PodMetricsList{
			TypeMeta: metav1.TypeMeta{Kind: "PodMetricsList", APIVersion: "metrics.k8s.io/v1beta1"},
			Items: []metricsv1beta1.PodMetrics{{
				ObjectMeta: metav1.ObjectMeta{Name: pod, Namespace: namespace, Labels: map[string]string{"app": "web"}},
				Timestamp:  now, Window: window,
				Containers: []metricsv1beta1.ContainerMetrics{{
					Name: "app", Usage: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("80m")},
				}},
			}},
		},
	})

	external := serveExtension(t, namespace, "external.metrics.k8s.io", "v1beta1", map[string]any{
		"/apis/external.metrics.k8s.io/v1beta1": resourceList("external.metrics.k8s.io/v1beta1",
			metav1.APIResource{Name: "queue", Namespaced: true, Kind: "ExternalMetricValueList", Verbs: metav1.Verbs{"get"}}),
		"/apis/external.metrics.k8s.io/v1beta1/namespaces/" + namespace + "/queue": externalv1beta1.ExternalMetricValueList{
			TypeMeta: metav1.TypeMeta{Kind: "ExternalMetricValueList", APIVersion: "external.metrics.k8s.io/v1beta1"},
			Items: []externalv1beta1.ExternalMetricValue{{
				MetricName: "queue", Timestamp: now, Value: resource.MustParse("40"),
			}},
		},
	})

	cpu := int32(40)
	perPod := resource.MustParse("10")
	_, err := client.AutoscalingV2().HorizontalPodAutoscalers(namespace).Create(t.Context(), &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"},
			MaxReplicas:    10,
			Metrics: []autoscalingv2.MetricSpec{{
				Type: autoscalingv2.ResourceMetricSourceType,
				Resource: &autoscalingv2.ResourceMetricSource{Name: corev1.ResourceCPU, Target: autoscalingv2.MetricTarget{
					Type: autoscalingv2.UtilizationMetricType, AverageUtilization: &cpu,
				}},
			}, {
				Type: autoscalingv2.ExternalMetricSourceType,
				External: &autoscalingv2.ExternalMetricSource{
					Metric: autoscalingv2.MetricIdentifier{Name: "queue"},
					Target: autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: &perPod},
				},
			}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}

	eventually(t, "both metrics in the autoscaler's status", func(ctx context.Context) error {
		h, err := client.AutoscalingV2().HorizontalPodAutoscalers(namespace).Get(ctx, "web", metav1.GetOptions{})
		if err != nil {
			return err
		}

		// 80m of 100m is twice the target of 40 %, which requires 2 pods; a queue of 40 at 10 per pod requires 4.
		if h.Status.DesiredReplicas != 4 || len(h.Status.CurrentMetrics) != 2 || *h.Status.CurrentMetrics[0].Resource.Current.AverageUtilization != 80 {
			return fmt.Errorf("status %+v", h.Status)
		}

		return nil
	})

	const autoscaler = "system:serviceaccount:kube-system:horizontal-pod-autoscaler"
	resources.awaitUser(t, autoscaler)
	external.awaitUser(t, autoscaler)
}
