// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeload_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"crane.io/crane/internal/testbed/promserver"
	"crane.io/crane/internal/testbed/simnode/metricsapi"
)

const sources = header + `spec:
  syncPolicy:
  - {name: cpu_usage_active, period: 1s, source: MetricsServer}
  - {name: mem_usage_active, period: 1s, source: MetricsServer}
  - {name: mem_usage_max_avg_1h, period: 1s, source: Forecast}
  predicate:
  - {name: cpu_usage_active, maxLimitPecent: 0.65}
  priority:
  - {name: cpu_usage_active, weight: 1}
`

// metricsServer serves metrics set by a test behind the API server's aggregation.
type metricsServer struct {
	list atomic.Pointer[metricsv1beta1.NodeMetricsList]
	gone atomic.Bool
}

func (m *metricsServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if m.gone.Load() {
		http.Error(w, "metrics-server is gone", http.StatusServiceUnavailable)
		return
	}

	var answer any = metav1.APIResourceList{
		TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: metricsapi.Group + "/" + metricsapi.Version,
		APIResources: []metav1.APIResource{{Name: "nodes", Kind: "NodeMetrics", Verbs: metav1.Verbs{"get", "list"}}},
	}

	if strings.HasSuffix(r.URL.Path, "/nodes") {
		answer = m.list.Load()
	}

	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer)
}

// usage returns the current use of a node.
func usage(node, cpu, memory string) metricsv1beta1.NodeMetrics {
	return metricsv1beta1.NodeMetrics{
		ObjectMeta: metav1.ObjectMeta{Name: node}, Timestamp: metav1.Now(), Window: metav1.Duration{Duration: 15 * time.Second},
		Usage: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)},
	}
}

func (m *metricsServer) set(items ...metricsv1beta1.NodeMetrics) {
	m.list.Store(&metricsv1beta1.NodeMetricsList{
		TypeMeta: metav1.TypeMeta{Kind: "NodeMetricsList", APIVersion: metricsapi.Group + "/" + metricsapi.Version}, Items: items,
	})
}

// serveMetrics registers a metrics-server as an APIService.
func serveMetrics(t *testing.T) *metricsServer {
	t.Helper()

	m := &metricsServer{}
	m.set()

	certificate, key, err := control.IssueServing(append(metricsapi.Hosts(), "localhost")...)
	if err != nil {
		t.Fatal(err)
	}

	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}

	server := httptest.NewUnstartedServer(m)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	t.Cleanup(server.Close)

	_, text, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}

	port, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}

	clients, err := kubernetes.NewForConfig(control.Config())
	if err != nil {
		t.Fatal(err)
	}

	if err := metricsapi.Install(t.Context(), clients, control.CAPEM(), port); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		err := clients.CoreV1().RESTClient().Delete().AbsPath("/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.metrics.k8s.io").
			Do(context.WithoutCancel(t.Context())).Error()
		if err != nil {
			t.Error(err)
		}
	})

	eventually(t, "metrics.k8s.io through the API server", func(ctx context.Context) error {
		_, err := clients.CoreV1().RESTClient().Get().AbsPath("/apis/metrics.k8s.io/v1beta1/nodes").DoRaw(ctx)
		return err
	})

	return m
}

// busyNode returns node-exporter's series of a node that has used forty of a hundred gibibytes for hours.
func busyNode(name string) []promserver.Series {
	of := func(metric string, gib float64) promserver.Series {
		return promserver.Series{Labels: labels.FromStrings("__name__", metric, "instance", name+":9100"), Fill: func(dst []float64, _ int) {
			for i := range dst {
				dst[i] = gib * (1 << 30)
			}
		}}
	}

	return []promserver.Series{of("node_memory_MemTotal_bytes", 100), of("node_memory_MemAvailable_bytes", 60)}
}

// TestSourcesBesidePrometheus: the use of nodes from metrics-server and their forecast peaks are written as shares of
// their capacity; nodes without a report or history get an event and keep their values.
func TestSourcesBesidePrometheus(t *testing.T) {
	const active, memory, peak, old = "cpu_usage_active", "mem_usage_active", "mem_usage_max_avg_1h", "0.11111,2024-01-01T00:00:00Z"
	c := newClient(t)
	makeNode(t, c, "measured", nil)
	makeNode(t, c, "unmeasured", map[string]string{active: old, peak: old})
	m := serveMetrics(t)
	m.set(usage("measured", "2500m", "30Gi"), usage("of-nobody", "1", "1Gi"))

	prom := servePrometheus(t, busyNode("measured")...)
	p := startCraned(t, prom.URL(), sources, "--controllers=nodeload")
	awaitLoad(t, c, "measured", active, "0.25000")
	awaitLoad(t, c, "measured", memory, "0.30000")
	awaitEvent(t, c, "Node", "unmeasured", "LoadUnknown", "not reported")
	awaitEvent(t, c, "Node", "unmeasured", "LoadUnknown", "no forecast")

	eventually(t, "the forecast of a node whose memory is used by 40 %", func(ctx context.Context) error {
		n, err := getNode(ctx, c, "measured")
		if err != nil {
			return err
		}

		var v float64
		if _, err := fmt.Sscanf(n.Annotations[peak], "%f,", &v); err != nil || v < 0.3 || v > 0.55 {
			return fmt.Errorf("it carries %q", n.Annotations[peak])
		}

		return nil
	})

	if n, err := getNode(t.Context(), c, "unmeasured"); err != nil || n.Annotations[active] != old || n.Annotations[peak] != old {
		t.Errorf("a node without data has annotations %v, %v, want those from before", n.Annotations, err)
	}

	// A value with an unchanged timestamp of metrics-server is not written again.
	m.gone.Store(true)
	awaitEvent(t, c, "ConfigMap", "crane-node-load-policy", "LoadNotRead", "metrics-server")
	m.set(usage("measured", "6", "30Gi"))
	m.gone.Store(false)
	awaitLoad(t, c, "measured", active, "0.60000")
	p.awaitRounds(t, 1)
}
