// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package craned_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/testbed/controlplane"
	"crane.io/crane/test/integration/harness"
)

// TestEverySecondWriteRefused checks that each workload has one Recommendation and its annotation while every second write
// fails with 429 or a conflict, and that craned writes nothing after that.
func TestEverySecondWriteRefused(t *testing.T) {
	c := newClient(t)
	prom := servePrometheus(t)
	api := harness.ServeUnfriendly(t, control)
	create(t, c, deployment("shop", "web"), statefulSet("shop", "db", "postgres"), deployment("bank", "web"), rule("refused", "24h", "shop", "bank"))
	craned := startCraned(t, prom.URL(), "--kubeconfig="+api.Kubeconfig(t, "craned", controlplane.ServiceAccount("crane-system", "craned")))
	awaitRule(t, c, "refused", "RoundCompleted")
	awaitAnnotated(t, c, "shop", "web")
	awaitAnnotated(t, c, "bank", "web")

	recs, err := recommendations(t.Context(), c, "refused")
	if err != nil || len(recs) != 3 {
		t.Fatalf("%d recommendations, want 3: %v", len(recs), err)
	}

	api.Check(t)
	before := versions(t, c, "refused")
	eventually(t, "craned is idle", func(ctx context.Context) error {
		page, err := craned.Metrics(ctx)
		if err == nil && (!containsLine(page, `workqueue_depth{controller="recommendation",name="recommendation",priority="0"} 0`) &&
			!containsLine(page, `workqueue_depth{controller="recommendation",name="recommendation"`) ||
			!containsLine(page, `controller_runtime_active_workers{controller="recommendation"} 0`)) {
			err = errors.New("a worker is busy")
		}

		return err
	})

	// Pending retries are written before craned stops.
	if err := craned.Terminate(t); err != nil {
		t.Errorf("craned ended with %v", err)
	}

	after := versions(t, c, "refused")
	for key := range before {
		if strings.HasPrefix(key, "deployment/") && before[key] != after[key] || after[key] == "" {
			t.Errorf("%s changed from %q to %q, want each Deployment unchanged and each object there", key, before[key], after[key])
		}
	}

	if len(before) != len(after) {
		t.Errorf("%d objects after the second run, want %d as before", len(after), len(before))
	}
}

// TestSlowPrometheus checks that a run waits for a query of half a minute, writes nothing before its response, and completes,
// and that craned is live in the meantime.
func TestSlowPrometheus(t *testing.T) {
	c := newClient(t)
	const wait = 30 * time.Second
	var fast atomic.Bool // Later queries are not delayed, because the test would take minutes.
	asked := make(chan struct{}, 100)

	slow := servePrometheusBehind(t, func(r *http.Request) {
		if fast.Load() || r.URL.Path != "/api/v1/query_range" { // Readiness probes use other paths.
			return
		}

		select {
		case asked <- struct{}{}:
		default:
		}

		timer := time.NewTimer(wait)
		defer timer.Stop()

		select {
		case <-r.Context().Done():
		case <-timer.C:
		}
	})

	create(t, c, deployment("shop", "web"), rule("slow", "24h", "shop"))
	began := time.Now()
	craned := startCraned(t, slow, "--controllers=recommendation")

	select {
	case <-asked:
	case <-time.After(waitTimeout):
		t.Fatal("Prometheus got no query, want one")
	}

	fast.Store(true)
	if _, err := harness.Get(t.Context(), craned.HealthURL+"/healthz"); err != nil {
		t.Errorf("liveness: %v", err)
	}
	if recs, err := recommendations(t.Context(), c, "slow"); err != nil || len(recs) > 0 {
		t.Errorf("recommendations before the response: %v, %v, want none", recs, err)
	}

	awaitRule(t, c, "slow", "RoundCompleted")
	if took := time.Since(began); took < wait {
		t.Errorf("the run took %s, want at least %s, the time of its first query", took, wait)
	}

	recs, err := recommendations(t.Context(), c, "slow")
	if err != nil || harness.ConditionText(recs["shop/web"].Status.Conditions, "Ready") != "True/RecommendationReady" {
		t.Errorf("after a slow run: %v, %v, want web Ready", recs, err)
	}
}

// TestClockSetBack checks that a rule whose last run is in the future, because the clock was set back, runs at once and then
// after its interval.
func TestClockSetBack(t *testing.T) {
	c := newClient(t)
	prom := servePrometheus(t)
	create(t, c, deployment("shop", "web"), rule("clock", "24h", "shop"))
	first := startCraned(t, prom.URL())
	done := awaitRule(t, c, "clock", "RoundCompleted")

	if err := first.Terminate(t); err != nil {
		t.Errorf("craned ended with %v", err)
	}

	eventually(t, "the last run is in the future", func(ctx context.Context) error {
		r := &analysisv1alpha1.RecommendationRule{}
		if err := c.Get(ctx, client.ObjectKey{Name: "clock"}, r); err != nil {
			return err
		}

		future := metav1.NewTime(time.Now().Add(240 * time.Hour))
		r.Status.LastUpdateTime = &future
		return c.Status().Update(ctx, r)
	})

	second := startCraned(t, prom.URL())
	again := &analysisv1alpha1.RecommendationRule{}
	eventually(t, "the rule has run", func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKey{Name: "clock"}, again); err != nil {
			return err
		}

		if at := again.Status.LastUpdateTime; at == nil || at.After(time.Now().Add(time.Minute)) {
			return fmt.Errorf("the last run is at %v", at)
		}

		return nil
	})

	if err := second.Terminate(t); err != nil {
		t.Errorf("craned ended with %v", err)
	}
	if err := c.Get(t.Context(), client.ObjectKey{Name: "clock"}, again); err != nil || again.Status.RunNumber != done.Status.RunNumber+1 {
		t.Errorf("run %d after run %d, want one more; %v", again.Status.RunNumber, done.Status.RunNumber, err)
	}
}
