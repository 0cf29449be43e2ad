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

// TestEverySecondWriteRefused: with 429 and conflicts on every second write each workload has its recommendation, once, and
// its annotation, and when all is done nothing more is written.
func TestEverySecondWriteRefused(t *testing.T) {
	c := newClient(t)
	prom := servePrometheus(t)
	api := harness.ServeUnfriendly(t, control)
	create(t, c, deployment("shop", "web"), statefulSet("shop", "db", "postgres"), deployment("bank", "web"), rule("refused", "24h", "shop", "bank"))
	craned := startCraned(t, prom.URL(), "--kubeconfig="+api.Kubeconfig(t, "craned", controlplane.ServiceAccount("crane-system", "craned")))
	complete(t, c, "refused", "RoundCompleted")
	waitAnnotated(t, c, "shop", "web")
	waitAnnotated(t, c, "bank", "web")
	recs, err := recommendations(t.Context(), c, "refused")
	if err != nil || len(recs) != 3 {
		t.Fatalf("%d recommendations, want 3, one for each: %v", len(recs), err)
	}
	api.Check(t)
	before := versions(t, c, "refused")
	eventually(t, "it is idle", func(ctx context.Context) error {
		page, err := harness.Get(ctx, "http://"+craned.metrics+"/metrics")
		if err == nil && (!containsLine(page, `workqueue_depth{controller="recommendation",name="recommendation",priority="0"} 0`) &&
			!containsLine(page, `workqueue_depth{controller="recommendation",name="recommendation"`) ||
			!containsLine(page, `controller_runtime_active_workers{controller="recommendation"} 0`)) {
			err = errors.New("it works")
		}
		return err
	})
	// What it might yet write because of a retry would come with the first one after it.
	if err := craned.Terminate(t); err != nil {
		t.Errorf("craned ended with %v", err)
	}
	after := versions(t, c, "refused")
	for key := range before {
		if strings.HasPrefix(key, "deployment/") && before[key] != after[key] || after[key] == "" {
			t.Errorf("%s was %q and is %q", key, before[key], after[key])
		}
	}
	if len(before) != len(after) {
		t.Errorf("%d objects, then %d", len(before), len(after))
	}
}

// TestSlowPrometheus: a source that needs half a minute for a query does not end a round: the round waits, writes nothing
// before it knows, and completes; craned is alive all the while.
func TestSlowPrometheus(t *testing.T) {
	c := newClient(t)
	const wait = 30 * time.Second
	var swift atomic.Bool // The queries after the first ones, or the test would take minutes.
	asked := make(chan struct{}, 100)
	slow := servePrometheusBehind(t, func(r *http.Request) {
		if swift.Load() || r.URL.Path != "/api/v1/query_range" { // Readiness asks questions of its own.
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
	case <-time.After(bound):
		t.Fatal("no query")
	}
	swift.Store(true)
	if _, err := harness.Get(t.Context(), "http://"+craned.probes+"/healthz"); err != nil {
		t.Errorf("liveness: %v", err)
	}
	if recs, err := recommendations(t.Context(), c, "slow"); err != nil || len(recs) > 0 {
		t.Errorf("recommendations before there is an answer: %v, %v", recs, err)
	}
	complete(t, c, "slow", "RoundCompleted")
	if took := time.Since(began); took < wait {
		t.Errorf("the round was over after %s, before its first query was answered", took)
	}
	recs, err := recommendations(t.Context(), c, "slow")
	if err != nil || condition(recs["shop/web"], "Ready") != "True/RecommendationReady" {
		t.Errorf("after a slow round: %v, %v", recs, err)
	}
}

// TestClockSetBack: a rule whose last round lies in the future, as it does when the clock was set back, has a round at once
// and not again until its interval is over.
func TestClockSetBack(t *testing.T) {
	c := newClient(t)
	prom := servePrometheus(t)
	create(t, c, deployment("shop", "web"), rule("clock", "24h", "shop"))
	first := startCraned(t, prom.URL())
	done := complete(t, c, "clock", "RoundCompleted")
	if err := first.Terminate(t); err != nil {
		t.Errorf("craned ended with %v", err)
	}
	eventually(t, "the last round lies in the future", func(ctx context.Context) error {
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
	eventually(t, "a round in the present", func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKey{Name: "clock"}, again); err != nil {
			return err
		}
		if at := again.Status.LastUpdateTime; at == nil || at.After(time.Now().Add(time.Minute)) {
			return fmt.Errorf("the last round is at %v", at)
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
