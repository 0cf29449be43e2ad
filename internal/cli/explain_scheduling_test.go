// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"crane.io/crane/pkg/nodeload"
)

// newFixtureScheduler starts a server with the explanation of one pod.
func newFixtureScheduler(t *testing.T) string {
	t.Helper()

	best := int64(100)
	e := nodeload.Explanation{
		Pod: "shop/web", Profile: "default-scheduler", Time: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), Outcome: "placed on cool", Node: "cool",
		CPU: 500, Memory: 1 << 30, Basis: "history", Strategy: nodeload.Spread, Fresh: 3, NotAsked: 1, LeftOut: []string{"cpu_usage_max_avg_1d"},
		Nodes: []nodeload.NodeExplanation{
			{Name: "cool", Verdict: nodeload.Scored, Score: &best, Load: 0.2, Incoming: 0.05},
			{Name: "hot", Verdict: nodeload.Closed, Metric: "cpu_usage_avg_5m", Load: 0.7, Incoming: 0.05, Limit: 0.65},
			{Name: "hotter", Verdict: nodeload.Closed, Metric: "cpu_usage_avg_5m", Load: 0.9, Incoming: 0.05, Limit: 0.65},
		},
	}

	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Query().Get("pod") {
		case "shop/web":
			_ = json.NewEncoder(w).Encode(map[string]any{"explanations": []nodeload.Explanation{e}})
		case "shop/html":
			_, _ = w.Write([]byte("<html>"))
		default:
			w.WriteHeader(http.StatusNotFound)
			_ = json.NewEncoder(w).Encode(map[string]string{"error": "unknown"})
		}
	}))

	t.Cleanup(server.Close)
	return server.URL
}

func TestExplainScheduling(t *testing.T) {
	address := newFixtureScheduler(t)
	code, out, errOut := runCrane(t, "explain", "scheduling", "web", "-n", "shop", "--scheduler", address, "--rows", "1")
	want := `Pod shop/web: placed on cool at 2026-03-01 12:00:00Z by profile default-scheduler, strategy Spread
Expected usage: 500m CPU and 1024.0 MiB memory, from its workload's Recommendation
Nodes: 3 with fresh load, 0 with stale load, 0 without load; 1 not evaluated
Ignored metrics, reported by too few nodes: cpu_usage_max_avg_1d

NODE  VERDICT  SCORE  REASON
cool  Scored     100  load 20.0% + on its way 0.0% + this pod 5.0%
hot   Closed       -  cpu_usage_avg_5m: load 70.0% + on its way 0.0% + this pod 5.0% is above the limit of 65.0%
... and 1 more that are Closed (--rows 0 shows all)

`

	if code != exitOK || out != want {
		t.Errorf("exit %d, %s\n%s\nwant\n%s", code, errOut, out, want)
	}
	if _, out, _ = runCrane(t, "explain", "scheduling", "shop/web", "--scheduler", address, "--node", "hotter"); strings.Contains(out, "\ncool ") || !strings.Contains(out, "\nhotter ") {
		t.Errorf("explain scheduling --node hotter printed other nodes, want that node alone:\n%s", out)
	}

	_, out, _ = runCrane(t, "explain", "scheduling", "shop/web", "--scheduler", address, "-o", "json")
	var got struct{ Explanations []nodeload.Explanation }
	if err := json.Unmarshal([]byte(out), &got); err != nil || len(got.Explanations) != 1 || len(got.Explanations[0].Nodes) != 3 {
		t.Errorf("explain scheduling -o json = %v, want 1 explanation of 3 nodes:\n%s", err, out)
	}
}

func TestExplainSchedulingErrors(t *testing.T) {
	address := newFixtureScheduler(t)
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"shop/other", "--scheduler", address}, exitNoResult, "pod shop/other: the scheduler has no record of a recent attempt"},
		{[]string{"shop/html", "--scheduler", address}, exitFailure, "not a response of crane-scheduler"},
		{[]string{"web", "--scheduler", "http://127.0.0.1:1"}, exitFailure, "querying the scheduler"},
		{[]string{}, exitUsage, "accepts 1 arg"},
		{[]string{"a/b/c"}, exitUsage, "want NAME or NAMESPACE/NAME"},
		{[]string{"web", "-o", "xml"}, exitUsage, "want table or json"},
		{[]string{"web", "--rows", "-1"}, exitUsage, "--rows"},
		{[]string{"web", "--scheduler-port", "0"}, exitUsage, "--scheduler-port"},
	} {
		code, _, errOut := runCrane(t, append([]string{"explain", "scheduling"}, c.args...)...)
		if code != c.code || !strings.Contains(errOut, c.want) {
			t.Errorf("%v: exit %d, %q; want %d with %q", c.args, code, errOut, c.code, c.want)
		}
	}
}
