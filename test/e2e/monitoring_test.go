// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"crane.io/crane/test/monitoring/dashboards"
	"crane.io/crane/test/nightly"
)

// TestDashboardsHaveData starts an autoscaler that scales ahead and an agent under pressure, and checks that each panel of each
// dashboard returns data from the playground's Prometheus.
func TestDashboardsHaveData(t *testing.T) {
	nightly.Only(t)
	scenario := filepath.Join(t.TempDir(), "scenario.yaml")
	if err := os.WriteFile(scenario, monitoringScenario(t), 0o600); err != nil {
		t.Fatal(err)
	}

	s := start(t, "--nodes", "3", "--workloads", "16", "--days", "8", "--alert-speed", "5", "--demo", scenario, "--keep")
	missing := map[string]string{}
	for _, d := range dashboards.All() {
		for _, row := range d.Rows {
			for _, p := range row.Panels {
				for i, q := range p.Queries {
					missing[fmt.Sprintf("%s / %s [%d]", d.UID, p.Title, i)] = dashboards.Expand(q.Expr)
				}
			}
		}
	}

	all := len(missing)
	eventually(t, "data of every panel", func() error {
		for panel, expr := range missing {
			if len(query(t, s.prometheus, expr)) > 0 {
				delete(missing, panel)
			}
		}

		if len(missing) > 0 {
			return fmt.Errorf("%d of %d queries without data: %s", len(missing), all, strings.Join(slices.Sorted(maps.Keys(missing)), "; "))
		}

		return nil
	})

	t.Logf("%d queries returned data", all)
	s.interrupt(t)
}

// scheduledPod is placed by crane-scheduler, whose metrics begin with the first pod.
const scheduledPod = `apiVersion: v1
kind: Pod
metadata: {name: placed, namespace: shop}
spec:
  schedulerName: crane-scheduler
  containers:
  - {name: app, image: "pause:3.10", resources: {requests: {cpu: 50m, memory: 32Mi}}}
`

// limitedPod runs on the node of the agent with a CPU limit, which is in force whether or not the agent throttles.
const limitedPod = `apiVersion: v1
kind: Pod
metadata: {name: limited, namespace: shop}
spec:
  nodeSelector: {crane.io/nodepool: agent}
  tolerations: [{key: crane.io/nodepool, value: agent, effect: NoSchedule}]
  containers:
  - {name: app, image: "pause:3.10", resources: {requests: {cpu: 50m, memory: 32Mi}, limits: {cpu: 100m, memory: 64Mi}}}
`

// monitoringScenario returns the objects and settings of the demos peak and pressure as one scenario.
func monitoringScenario(t *testing.T) []byte {
	t.Helper()

	merged := map[string]any{"craned": map[string]any{"cost-interval": "10s"}, "description": "peak and pressure"}
	var steps []any
	for _, name := range []string{"peak", "pressure"} {
		content, err := os.ReadFile("../../internal/testbed/playground/demo/demos/" + name + ".yaml")
		if err != nil {
			t.Fatal(err)
		}

		var one map[string]any
		if err := yaml.Unmarshal(content, &one); err != nil {
			t.Fatal(err)
		}

		for _, step := range one["steps"].([]any) {
			if manifest, ok := step.(map[string]any)["apply"].(string); ok {
				// The pressure lasts until the agent has throttled.
				manifest = strings.ReplaceAll(manifest, "sim.crane.io/duration: 45s", "sim.crane.io/duration: 10m")
				steps = append(steps, map[string]any{"at": "0s", "apply": manifest})
			}
		}

		if flags, ok := one["craned"].(map[string]any); ok {
			maps.Copy(merged["craned"].(map[string]any), flags)
		}

		for _, key := range []string{"controllerManager", "metricRules", "load", "agentNodes", "agent"} {
			if v, ok := one[key]; ok {
				merged[key] = v
			}
		}
	}

	merged["steps"] = append(steps, map[string]any{"at": "0s", "apply": scheduledPod + "---\n" + limitedPod})
	out, err := yaml.Marshal(merged)
	if err != nil {
		t.Fatal(err)
	}

	return out
}

// alertSpeed divides the time that alerts wait: of 15 minutes 15 seconds are left, of an hour one minute. Windows of rates keep their
// length.
const alertSpeed = "60"

// TestAlertsAreQuiet checks that no alert fires within a scaled hour of normal operation, and that the demo faults fires those that it
// should, each once.
func TestAlertsAreQuiet(t *testing.T) {
	nightly.Only(t)
	t.Run("normal", func(t *testing.T) {
		s := start(t, "--nodes", "3", "--workloads", "16", "--days", "8", "--alert-speed", alertSpeed)
		if fired := watchAlerts(t, s, time.Minute); len(fired) > 0 {
			t.Errorf("alerts fired: %v, want none", fired)
		}

		s.interrupt(t)
	})

	t.Run("faults", func(t *testing.T) {
		s := startIn(t, t.TempDir(), "--nodes", "3", "--workloads", "16", "--days", "8", "--alert-speed", alertSpeed, "--demo", "faults", "--keep")
		// The steps have ended; their alerts are in the history.
		fired := watchAlerts(t, s, 30*time.Second)
		want := map[string]int{"CraneLeaderMissing": 1}
		if !maps.Equal(fired, want) {
			t.Errorf("alerts fired: %v, want %v", fired, want)
		}

		checkFaults(t, s.output())
		s.interrupt(t)
	})
}

// watchAlerts waits and returns how often each alert began to fire since the start of the playground.
func watchAlerts(t *testing.T, s *session, wait time.Duration) map[string]int {
	t.Helper()

	<-time.After(wait)
	if len(query(t, s.prometheus, `crane_leader`)) == 0 {
		t.Fatal("Prometheus has no series crane_leader, want craned scraped")
	}

	fired := map[string]int{}
	for _, series := range query(t, s.prometheus, `ALERTS{alertstate="firing"}[30m]`) {
		last := 0.0
		for _, sample := range series.Values {
			// Evaluations are a second apart; a longer gap is a new alert.
			at, _ := sample[0].(float64)
			if at-last > 5 {
				fired[series.Metric["alertname"]]++
			}

			last = at
		}
	}

	return fired
}

// alertSeries is a series of an answer of Prometheus.
type alertSeries struct {
	Metric map[string]string `json:"metric"`
	Values [][2]any          `json:"values"`
}

// query returns the series of an instant query.
func query(t *testing.T, address, expr string) []alertSeries {
	t.Helper()

	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()

	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address+"/api/v1/query?query="+url.QueryEscape(expr), nil)
	if err != nil {
		t.Fatal(err)
	}

	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()

	var answer struct {
		Status, Error string
		Data          struct {
			Result []alertSeries `json:"result"`
		} `json:"data"`
	}

	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		t.Fatalf("decoding the answer to %s: %v", expr, err)
	}

	if answer.Status != "success" {
		t.Fatalf("query %s: %s, want success", expr, answer.Error)
	}

	return answer.Data.Result
}
