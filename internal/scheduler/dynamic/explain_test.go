// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package dynamic

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"crane.io/crane/pkg/nodeload"
)

// TestExplain checks the explanation of one pod for every node.
func TestExplain(t *testing.T) {
	b := newFixture(t, nodeload.Strategy{}, newNode("cool", loadAnnotations(0.2, 0.2, start())), newNode("hot", loadAnnotations(0.7, 0.2, start())),
		newNode("unknown", nil), newNode("warm", loadAnnotations(0.4, 0.2, start())))
	b.pods.history.Learn(Workload{"shop", "StatefulSet", "web"}, nodeload.Amount{CPU: 500, Memory: 2 << 30})

	pod := owned(newPod("web", "1", "1Gi"), "StatefulSet", "web")
	if got := b.placePod(pod); got != "cool" {
		t.Fatalf("placed on %q, want cool", got)
	}

	e, ok := b.Explain("shop", "web")
	if !ok {
		t.Fatal("Explain(shop, web) found no attempt, want one")
	}

	if e.Pod != "shop/web" || e.Node != "cool" || e.Outcome != "placed on cool" || e.CPU != 500 || e.Memory != 2<<30 || e.Basis != "history" ||
		e.Fresh != 3 || e.Absent != 1 || e.Abstains || e.Strategy != nodeload.Spread || e.NotAsked != 0 || len(e.Nodes) != 4 {
		t.Errorf("Explain(shop, web) = %+v, want shop/web placed on cool by its history of 500m and 2 GiB, 3 fresh and 1 absent of 4 nodes", e)
	}

	want := []struct{ name, verdict, score, reason string }{
		{"cool", "Scored", "100", "load 20.0% + on its way 0.0% + this pod 3.5%"},
		{"warm", "Scored", "", "load 30.0% + on its way 0.0% + this pod 3.5%"},
		{"unknown", "Scored", "", "load 31.7% + on its way 0.0% + this pod 3.5%; a metric is not fresh and counts as the mean"},
		{"hot", "Closed", "none", "cpu_usage_avg_5m: load 70.0% + on its way 0.0% + this pod 5.0% is above the limit of 65.0%"},
	}

	for i, w := range want {
		n := e.Nodes[i]
		score := "none"
		if n.Score != nil {
			score = fmt.Sprint(*n.Score)
		}
		if n.Name != w.name || string(n.Verdict) != w.verdict || w.score != "" && w.score != score || n.Reason() != w.reason {
			t.Errorf("node %d: %s %s %s: %q; want %+v", i, n.Name, n.Verdict, score, n.Reason(), w)
		}
	}

	// An ended pod of a workload with history is subtracted.
	b.pods.history.Learn(Workload{Namespace: "shop", Kind: "StatefulSet", Name: "old"}, nodeload.Amount{CPU: 2000})
	old := newRunningPod(owned(newPod("old", "2", "1Gi"), "StatefulSet", "old"), "warm", start().Add(-24*time.Hour))
	b.pods.deleted(old)
	b.schedule(pod)

	if e, _ := b.Explain("shop", "web"); e.Nodes[1].Name != "warm" || e.Nodes[1].OnWay >= 0 || !strings.Contains(e.Nodes[1].Reason(), "on its way -") {
		t.Errorf("after a pod has ended: %s: %s, want warm with a negative load on its way", e.Nodes[1].Name, e.Nodes[1].Reason())
	}
	if _, ok := b.Explain("shop", "other"); ok {
		t.Error("Explain(shop, other) found an attempt, want none")
	}
}

// TestRingIsBounded checks that recorded attempts stay within their memory bound and that the latest are kept.
func TestRingIsBounded(t *testing.T) {
	b := newFixture(t, nodeload.Strategy{})
	for i := range 20000 {
		b.infos = append(b.infos, &nodeInfo{node: newNode(fmt.Sprint("n-", i), nil)})
	}

	for i := range 100 {
		b.PreFilter(t.Context(), &state{}, newPod(fmt.Sprint("web-", i), "1", "1Gi"), b.infos)
	}

	if n := len(b.ring.attempts); n*20000*answerBytes > ringBytes || n < minAttempts {
		t.Errorf("%d attempts are kept, want %d or more within %d bytes", n, minAttempts, ringBytes)
	}
	if recent := b.Recent(); recent[0] != "shop/web-99" {
		t.Errorf("Recent starts with %s, want shop/web-99", recent[0])
	}
	if _, ok := b.Explain("shop", "web-0"); ok {
		t.Error("Explain(shop, web-0) found the first attempt, want it dropped")
	}

	// With fewer nodes more attempts fit.
	b.infos = b.infos[:10]
	for i := range 1000 {
		b.PreFilter(t.Context(), &state{}, newPod(fmt.Sprint("web-", i), "1", "1Gi"), b.infos)
	}

	if n := len(b.ring.attempts); n != maxAttempts {
		t.Errorf("%d attempts are kept, want %d", n, maxAttempts)
	}
	if e, ok := b.Explain("shop", "web-999"); !ok || e.NotAsked != 10 || e.Outcome != "not placed" {
		t.Errorf("Explain(shop, web-999) = %+v, %v, want 10 nodes not asked and the pod not placed", e, ok)
	}
}

func TestHandler(t *testing.T) {
	b := newFixture(t, nodeload.Strategy{}, newNode("cool", loadAnnotations(0.2, 0.2, start())))
	b.placePod(newPod("web", "1", "1Gi"))
	f := NewFactory(b.clock, Registries{})
	f.plugins = []*Plugin{b.Plugin}

	get := func(method, host, path string) (int, string) {
		r := httptest.NewRequest(method, path, nil)
		r.Host = host
		w := httptest.NewRecorder()
		f.Handler().ServeHTTP(w, r)

		return w.Code, w.Body.String()
	}

	for _, c := range []struct {
		method, host, path string
		code               int
		body               string
	}{
		{"GET", "127.0.0.1:10260", ExplainPath, 200, `{"pods":["shop/web"]}`},
		{"GET", "localhost:4000", ExplainPath + "?pod=shop/web", 200, `"node":"cool"`},
		{"GET", "[::1]:4000", ExplainPath + "?pod=shop/other", 404, `no record of a recent attempt to place this pod`},
		{"GET", "localhost", ExplainPath + "?pod=web", 400, `NAMESPACE/NAME`},
		{"GET", "evil.example:10260", ExplainPath, 403, `localhost only`},
		{"POST", "localhost", ExplainPath, 405, ``},
		{"GET", "localhost", "/", 404, ``},
	} {
		if code, body := get(c.method, c.host, c.path); code != c.code || !strings.Contains(body, c.body) {
			t.Errorf("%s %s at %s = %d %s, want %d with %q", c.method, c.path, c.host, code, body, c.code, c.body)
		}
	}

	_, body := get(http.MethodGet, "localhost", ExplainPath+"?pod=shop/web")
	var got struct{ Explanations []nodeload.Explanation }
	if err := json.Unmarshal([]byte(body), &got); err != nil || len(got.Explanations) != 1 || !got.Explanations[0].Time.Equal(start()) {
		t.Errorf("the explanation of shop/web is %s (%v), want one of %v", body, err, start())
	}
}

// TestServeOnLoopback starts the real listener; an address in use stops nothing.
func TestServeOnLoopback(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()

	f := NewFactory(newFixture(t, nodeload.Strategy{}).clock, Registries{})
	f.mu.Lock()
	defer f.mu.Unlock()

	f.explain(t.Context(), strings.TrimPrefix(server.URL, "http://"))
	f.explain(t.Context(), "127.0.0.1:0")
	f.explain(t.Context(), "127.0.0.1:0")
	f.explain(t.Context(), "none")

	if len(f.serving) != 2 {
		t.Errorf("serving on %v, want the address in use and 127.0.0.1:0", f.serving)
	}
}

// TestMetricsAreBounded checks the registered metrics, and that series are deleted with their subject.
func TestMetricsAreBounded(t *testing.T) {
	b := newFixture(t, nodeload.Strategy{}, newNode("cool", loadAnnotations(0.2, 0.2, start())), newNode("hot", loadAnnotations(0.9, 0.2, start())), newNode("odd", map[string]string{"cpu_usage_avg_5m": "x"}))
	b.placePod(newPod("web", "1", "1Gi"))
	series := func() string {
		families, err := b.registry.Gather()
		if err != nil {
			t.Fatalf("Gather: %v, want metrics", err)
		}

		var all strings.Builder
		for _, f := range families {
			for _, m := range f.GetMetric() {
				all.WriteString(f.GetName())
				for _, l := range m.GetLabel() {
					fmt.Fprintf(&all, " %s=%s", l.GetName(), l.GetValue())
				}
				fmt.Fprintf(&all, " %v\n", m.GetCounter().GetValue()+m.GetGauge().GetValue())
			}
		}

		return all.String()
	}

	got := series()
	for _, want := range []string{
		"crane_scheduler_dynamic_attempts_total estimate=request profile=test 1\n",
		"crane_scheduler_dynamic_closed_nodes_total metric=cpu_usage_avg_5m profile=test 1\n",
		"crane_scheduler_dynamic_nodes profile=test state=fresh 2\n", "crane_scheduler_dynamic_nodes profile=test state=absent 1\n",
		"crane_scheduler_dynamic_passed_unknown_nodes_total profile=test 1\n",
		"crane_scheduler_dynamic_unreadable_annotations_total fault=form profile=test 1\n",
		"crane_scheduler_dynamic_metric_fresh_nodes metric=cpu_usage_avg_5m profile=test 2\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("Gather has no %q, want it in\n%s", want, got)
		}
	}

	spec := nodeload.GocraneSpec()
	spec.Metrics = spec.Metrics[3:]
	spec.Predicates = nil
	spec.Priorities = nil
	b.policies.policy = policyOf(t, spec)
	b.clock.Step(time.Second)
	b.schedule(newPod("web", "1", "1Gi"))

	if got := series(); strings.Contains(got, "cpu_usage_avg_5m") {
		t.Errorf("Gather still has cpu_usage_avg_5m, want no series of a metric without a policy:\n%s", got)
	}
}
