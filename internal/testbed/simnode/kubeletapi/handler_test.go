// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeletapi

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"crane.io/crane/internal/testbed/simnode/kubelet"
)

type fixed struct{ down bool }

var at = time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC)

func pod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "1-2"},
		Spec:       corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "app"}, {Name: "new"}}},
		Status:     corev1.PodStatus{QOSClass: corev1.PodQOSBurstable, StartTime: &metav1.Time{Time: at}},
	}
}

func (f fixed) State() kubelet.NodeState {
	return kubelet.NodeState{
		Spec:    kubelet.NodeSpec{Name: "n1", CPU: resource.MustParse("4"), Memory: resource.MustParse("8Gi"), StaticCPU: true},
		Address: "127.0.0.1", Port: 1234, Reachable: !f.down, Use: kubelet.Use{CPU: 0.5, Memory: 1 << 20, Known: true}, SampledAt: at, CPUSeconds: 42,
	}
}

func (f fixed) Pods() []*corev1.Pod { return []*corev1.Pod{pod()} }

func (f fixed) Containers() []kubelet.ContainerState {
	p := pod()
	limits := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m"), corev1.ResourceMemory: resource.MustParse("1Gi")}
	return []kubelet.ContainerState{
		{
			Pod: p, Container: "app", Node: "n1", ID: "containerd://abc", Image: `odd"\image`, StartedAt: at, OOMKills: 2,
			Resources: corev1.ResourceRequirements{Limits: limits, Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("250m")}},
			Use:       kubelet.Use{CPU: 0.5, Memory: 1 << 20, Known: true}, SampledAt: at, CPUSeconds: 42.5, Periods: 100.7, ThrottledPeriods: 3, ThrottledSeconds: 1.5,
		},
		{Pod: p, Container: "new", Node: "n1", ID: "containerd://def"},
	}
}

func ask(source Source, method, path string) *httptest.ResponseRecorder {
	rec := httptest.NewRecorder()
	routes(source).ServeHTTP(rec, httptest.NewRequest(method, path, nil))
	return rec
}

func TestMetricsParseAndSayWhatIsMeasured(t *testing.T) {
	want := map[string]map[string]float64{
		"/metrics/cadvisor": {
			"container_cpu_usage_seconds_total": 42.5, "container_cpu_cfs_periods_total": 100, "container_cpu_cfs_throttled_periods_total": 3,
			"container_memory_working_set_bytes": 1 << 20, "container_memory_rss": 1 << 20, "container_memory_cache": 0, "container_memory_total_active_file_bytes": 0, "container_oom_events_total": 2,
			"container_spec_cpu_quota": 50000, "container_spec_cpu_shares": 256, "container_spec_memory_limit_bytes": 1 << 30, "machine_cpu_cores": 4,
		},
		"/metrics/resource": {
			"container_cpu_usage_seconds_total": 42.5, "node_cpu_usage_seconds_total": 42, "node_memory_working_set_bytes": 1 << 20,
			"pod_memory_working_set_bytes": 1 << 20,
		},
		"/metrics": {"kubelet_running_pods": 1},
	}

	for path, names := range want {
		rec := ask(fixed{}, http.MethodGet, path)
		parser := expfmt.NewTextParser(model.UTF8Validation)
		families, err := parser.TextToMetricFamilies(rec.Body)
		if err != nil {
			t.Fatalf("GET %s: %v, want metrics in the text format", path, err)
		}

		for name, value := range names {
			f := families[name]
			if f == nil || len(f.GetMetric()) != 1 {
				t.Errorf("GET %s: %s has %d series, want 1 (the unsampled container has none)", path, name, len(f.GetMetric()))
				continue
			}

			m := f.GetMetric()[0]
			if got := m.GetGauge().GetValue() + m.GetCounter().GetValue(); got != value {
				t.Errorf("GET %s: %s = %v, want %v", path, name, got, value)
			}
		}
	}

	body := ask(fixed{}, http.MethodGet, "/metrics/cadvisor").Body.String()
	labels := `{container="app",id="/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2.slice/cri-containerd-abc.scope",` +
		`image="odd\"\\image",name="abc",namespace="shop",pod="web"}`
	if !strings.Contains(body, "container_memory_rss"+labels) {
		t.Errorf("GET /metrics/cadvisor = %.400s, want labels %s", body, labels)
	}
}

func TestSummary(t *testing.T) {
	var s stats.Summary
	if err := json.Unmarshal(ask(fixed{}, http.MethodGet, "/stats/summary").Body.Bytes(), &s); err != nil {
		t.Fatal(err)
	}

	if s.Node.NodeName != "n1" || *s.Node.CPU.UsageNanoCores != 5e8 || len(s.Pods) != 1 || len(s.Pods[0].Containers) != 1 ||
		*s.Pods[0].Memory.WorkingSetBytes != 1<<20 || *s.Node.Memory.AvailableBytes != 8<<30-1<<20 {
		t.Errorf("GET /stats/summary = %+v, want n1 with half a core, and one pod with one container of 1 MiB", s)
	}
}

func TestOtherPaths(t *testing.T) {
	for _, tc := range []struct {
		method, path string
		code         int
		want         string
	}{
		{"GET", "/healthz", 200, "ok"},
		{"GET", "/healthz/syncloop", 200, "ok"},
		{"GET", "/pods", 200, `"name":"web"`},
		{"GET", "/configz", 200, `"cpuManagerPolicy":"static"`},
		{"GET", "/containerLogs/shop/web/app", 200, "simulated node n1"},
		{"GET", "/containerLogs/shop/web/none", 404, "not found"},
		{"GET", "/containerLogs/shop/none/app", 404, "not found"},
		{"POST", "/exec/shop/web/app", 501, "simulated"},
		{"GET", "/portForward/shop/web", 501, "simulated"},
		{"GET", "/nothing", 404, ""},
	} {
		rec := ask(fixed{}, tc.method, tc.path)
		if rec.Code != tc.code || !strings.Contains(rec.Body.String(), tc.want) {
			t.Errorf("%s %s: status %d %s, want %d and a body with %q", tc.method, tc.path, rec.Code, rec.Body, tc.code, tc.want)
		}
	}

	if rec := ask(fixed{down: true}, "GET", "/healthz"); rec.Code != http.StatusServiceUnavailable {
		t.Errorf("GET /healthz of a failed node: status %d, want %d", rec.Code, http.StatusServiceUnavailable)
	}
}

func TestNeed(t *testing.T) {
	for path, want := range map[string][]string{
		"/metrics/cadvisor": {"metrics", "proxy"}, "/stats/summary": {"stats", "proxy"}, "/pods": {"pods", "proxy"},
		"/healthz": {"healthz", "proxy"}, "/configz": {"configz", "proxy"}, "/exec/a/b/c": {"proxy"}, "/": {"proxy"}, "/metricsx": {"proxy"},
	} {
		var got []string
		for _, r := range need(httptest.NewRequest(http.MethodGet, path, nil), "n1") {
			if r.Resource.Name != "n1" || r.Resource.Verb != "get" {
				t.Errorf("need(GET %s) = %+v, want verb get on node n1", path, r.Resource)
			}
			got = append(got, r.Resource.Subresource)
		}

		if !slices.Equal(got, want) {
			t.Errorf("need(GET %s) = %v, want %v", path, got, want)
		}
	}
}
