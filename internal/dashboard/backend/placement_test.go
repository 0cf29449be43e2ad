// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package backend

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"crane.io/crane/internal/dashboard"
	"crane.io/crane/internal/dashboard/contract"
	"crane.io/crane/internal/kube/clusteraccess"
	"crane.io/crane/pkg/nodeload"
)

// TestPlacement checks the attempts to place a pod, and the failure of a pod that the scheduler does not know.
func TestPlacement(t *testing.T) {
	v := newHistoryView(t, newFakeHistory(t))
	v.Scheduler = newSchedulerServer(t)
	out, err := v.Placement(t.Context(), "shop", "web")
	if err != nil || len(out.Attempts) != 1 {
		t.Fatalf("Placement(shop, web) = %+v, %v, want 1 attempt", out, err)
	}

	a := out.Attempts[0]
	if out.Pod != "shop/web" || a.Node != "cool" || a.CPUMilli != 500 || a.NodeCount != 3 || a.OtherNodes != 1 || a.Nodes[0].Verdict != "Scored" || *a.Nodes[0].Score != 100 || a.Nodes[1].Reason == "" {
		t.Errorf("Placement(shop, web) = %+v, want 500m on node cool, 3 nodes with scores and reasons, 1 not evaluated", out)
	}
	if _, err := v.Placement(t.Context(), "shop", "other"); dashboard.FailureOf(err).Status != http.StatusNotFound {
		t.Errorf("Placement of an unknown pod = %v, want status %d", err, http.StatusNotFound)
	}

	v.Scheduler = "http://127.0.0.1:1"
	if _, err := v.Placement(t.Context(), "shop", "web"); dashboard.FailureOf(err).Body.Reason != contract.ReasonAPIServerUnavailable {
		t.Errorf("Placement without a scheduler = %v, want the reason %s", err, contract.ReasonAPIServerUnavailable)
	}
}

// TestPlacementNamesTheMissingRight checks that the refusal of a forwarded port, which is a text alone, is one of the person's rights.
func TestPlacementNamesTheMissingRight(t *testing.T) {
	refused := errors.New(`error upgrading connection: pods "crane-scheduler" is forbidden: User "ann" cannot create resource "pods/portforward" in API group "" in the namespace "crane-system"`)
	got := dashboard.FailureOf(placementFailure(refused))
	if got.Body.Reason != contract.ReasonForbidden || !strings.Contains(got.Body.Right, "create pods/portforward") {
		t.Errorf("placementFailure = %+v, want forbidden with the right to create pods/portforward", got.Body)
	}
}

// TestForwardedPortHasTheToken checks that a forwarded port is opened with the token of the person and nothing else.
func TestForwardedPortHasTheToken(t *testing.T) {
	own := &rest.Config{Host: "https://api", BearerToken: "server", Username: "server", WrapTransport: dashboard.PersonalTransport}
	got := withToken(clusteraccess.Fixed{Config: own, Personal: true}, "ann").Config
	if got.BearerToken != "ann" || got.Username != "" || got.WrapTransport != nil || got.Host != own.Host || own.BearerToken != "server" {
		t.Errorf("withToken(ann) = %+v, want the token of ann and no other credentials", got)
	}
}

// newSchedulerServer starts a server with the explanation of one pod.
func newSchedulerServer(t *testing.T) string {
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
		default:
			w.WriteHeader(http.StatusNotFound)
			_ = json.NewEncoder(w).Encode(map[string]string{"error": "unknown"})
		}
	}))

	t.Cleanup(server.Close)
	return server.URL
}
