// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package usagemetrics

import (
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"crane.io/crane/internal/component/seriesguard"
)

// TestCollect_Hostile checks that hostile names and values of a node and its pods do not cost the other series.
func TestCollect_Hostile(t *testing.T) {
	b := newFixture(t, 0)
	b.observe(t, 0)
	b.observe(t, 1)
	transferring(&b.latest)

	long := strings.Repeat("x", 1<<20)
	b.collector = New(Config{Latest: &b.latest, Clock: b.clock, Pods: func() []*corev1.Pod {
		return []*corev1.Pod{
			{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: guaranteed}},
			{ObjectMeta: metav1.ObjectMeta{Namespace: "evil\n\xff", Name: long, UID: burstable}},
		}
	}})

	s := *b.latest.Load()
	s.Disks = slices.Concat(s.Disks, s.Disks)
	s.Interfaces = slices.Concat(s.Interfaces, s.Interfaces)
	for i := range s.Interfaces[:len(s.Interfaces)/2] {
		s.Interfaces[i].Name = "eth\xff\n{} 1"
	}

	s.Pods = slices.Concat(s.Pods, s.Pods)
	for i := range s.Pods {
		if s.Pods[i].UID == burstable {
			s.Pods[i].Cycles.Value.PerInstruction = math.NaN()
			s.Pods[i].Cycles.OK = true
		}
	}
	b.latest.Publish(&s)

	registry := prometheus.NewRegistry()
	if err := seriesguard.New(registry, logr.Discard()).Register(b.collector); err != nil {
		t.Fatal(err)
	}

	// What is left out is counted for the next answer.
	handler := seriesguard.Handler(registry, logr.Discard(), promhttp.HandlerOpts{})
	handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
	page := answer.Body.String()
	if answer.Code != http.StatusOK || len(page) > 1<<20 {
		t.Errorf("GET /metrics = %d with %d bytes, want 200 with less than 1 MiB", answer.Code, len(page))
	}

	for _, want := range []string{
		"crane_agent_node_cpu_usage_cores 2\n", `crane_agent_pod_cpu_usage_cores{namespace="shop",pod="web"`, "crane_metrics_series_left_out_total{",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("GET /metrics has no %q, want it beside hostile series", want)
		}
	}
}
