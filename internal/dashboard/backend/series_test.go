// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package backend

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"crane.io/crane/internal/dashboard"
	"crane.io/crane/internal/dashboard/contract"
	"crane.io/crane/pkg/cost"
)

// fakeHistory is a Prometheus that has a series for each range query, and counts them.
type fakeHistory struct {
	*httptest.Server
	ranges  atomic.Int64
	mu      sync.Mutex
	queries []string
}

func newFakeHistory(t *testing.T) *fakeHistory {
	t.Helper()

	f := &fakeHistory{}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		result := ""
		if strings.HasSuffix(r.URL.Path, "/query_range") {
			f.ranges.Add(1)
			f.mu.Lock()
			f.queries = append(f.queries, r.FormValue("query"))
			f.mu.Unlock()
			result = fmt.Sprintf(`{"metric":{"container":"app"},"values":[[%s,"1"],[%s,"2"]]}`, r.FormValue("start"), r.FormValue("end"))
		}

		fmt.Fprintf(w, `{"status":"success","data":{"resultType":"matrix","result":[%s]}}`, result)
	}))

	t.Cleanup(f.Close)
	return f
}

// newHistoryView returns a view that has a Prometheus and no cluster.
func newHistoryView(t *testing.T, history *fakeHistory) *View {
	t.Helper()

	t.Setenv("KUBECONFIG", t.TempDir()+"/absent")
	t.Setenv("HOME", t.TempDir())
	config := newFixtureConfig(t, "default")
	config.Prometheus.Address = history.URL

	return New(config)
}

// TestViewersShareSeries checks that ten persons who look at the same workload and time range cause the queries of one, and that another
// namespace or range has its own.
func TestViewersShareSeries(t *testing.T) {
	history := newFakeHistory(t)
	v := newHistoryView(t, history)
	now := time.Now().Truncate(time.Minute)
	within := dashboard.SeriesRange{From: now.Add(-time.Hour), To: now, Points: 200}
	target := contract.Target{Namespace: "shop", Kind: "Deployment", Name: "web"}

	look := func(ctx context.Context, target contract.Target, within dashboard.SeriesRange) {
		out, err := v.Series(ctx, target, within)
		if err != nil || len(out.Series) != len(seriesTemplates()) || out.Series[0].Container != "app" || out.Series[0].Kind != "usage" {
			t.Errorf("Series = %v, want %d charts, usage of app first: %+v", err, len(seriesTemplates()), out.Series)
		}
	}

	var group errgroup.Group
	for range 10 {
		group.Go(func() error { look(t.Context(), target, within); return nil })
	}

	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}

	each := int64(len(seriesTemplates()))
	if got := history.ranges.Load(); got != each {
		t.Errorf("ten viewers cause %d range queries, want %d", got, each)
	}

	look(t.Context(), contract.Target{Namespace: "pay", Kind: "Deployment", Name: "web"}, within)
	within.From = within.From.Add(-time.Hour)
	look(t.Context(), target, within)

	if got := history.ranges.Load(); got != 3*each {
		t.Errorf("another namespace and another range cause %d range queries in total, want %d", got, 3*each)
	}

	for _, query := range history.queries {
		if !strings.Contains(query, `namespace="shop"`) && !strings.Contains(query, `namespace="pay"`) {
			t.Errorf("query %s is not bound to a namespace, want shop or pay", query)
		}
	}
}

// TestPrometheusDown checks that series which were read stay while Prometheus does not answer, and that others fail with the reason.
func TestPrometheusDown(t *testing.T) {
	history := newFakeHistory(t)
	v := newHistoryView(t, history)
	now := time.Now().Truncate(time.Minute)

	within := dashboard.SeriesRange{From: now.Add(-time.Hour), To: now, Points: 200}
	target := contract.Target{Namespace: "shop", Kind: "Deployment", Name: "web"}
	if _, err := v.Series(t.Context(), target, within); err != nil {
		t.Fatal(err)
	}

	history.Close()
	if out, err := v.Series(t.Context(), target, within); err != nil || len(out.Series) != len(seriesTemplates()) {
		t.Errorf("Series that were read = %v, want %d charts", err, len(seriesTemplates()))
	}

	within.From = within.From.Add(-time.Hour)
	if _, err := v.Series(t.Context(), target, within); dashboard.FailureOf(err).Body.Reason != contract.ReasonHistoryUnavailable {
		t.Errorf("Series that were not read = %v, want the reason %s", err, contract.ReasonHistoryUnavailable)
	}
}

// TestHistoryFailureNamesNoAddress checks that a history which fails or takes too long tells a person nothing of the server's address.
func TestHistoryFailureNamesNoAddress(t *testing.T) {
	history := newFakeHistory(t)
	source, err := newClusterHistory(newHistoryView(t, history).viewAccess).server().Open()
	if err != nil {
		t.Fatal(err)
	}

	late, cancel := context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer cancel()

	_, slow := source.Instant(late, "up", time.Now())
	history.Close()
	_, down := source.Instant(t.Context(), "up", time.Now())

	for want, err := range map[contract.Reason]error{contract.ReasonTimeout: slow, contract.ReasonHistoryUnavailable: down} {
		failure := dashboard.FailureOf(historyFailure(fmt.Errorf("reading: %w", err)))
		if failure.Body.Reason != want || strings.Contains(failure.Body.Message, "127.0.0.1") {
			t.Errorf("historyFailure(%v) = %s, %q, want %s without an address", err, failure.Body.Reason, failure.Body.Message, want)
		}
	}
}

// TestCostsByLabel checks that costs are grouped by the value of a label of the workloads; those without it are one group.
func TestCostsByLabel(t *testing.T) {
	workloadOf := func(name string) cost.Workload {
		return cost.Workload{Namespace: "shop", Kind: "Deployment", Name: name}
	}
	labels := &workloadLabels{byWorkload: map[cost.Workload]map[string]string{
		workloadOf("web"): {"team": "a"}, workloadOf("api"): {"team": "a"}, workloadOf("db"): {"team": "b"}, workloadOf("job"): {"tier": "c"},
	}}

	var all []cost.WorkloadCost
	for i, name := range []string{"web", "db", "api", "job", "unknown"} {
		all = append(all, cost.WorkloadCost{Workload: workloadOf(name), Bill: cost.Bill{Pods: i + 1, Cost: cost.Shares{Max: cost.Split{CPU: 10}}}})
	}

	want := map[string][2]int{"a": {4, 20}, "b": {2, 10}, "": {9, 20}}
	got := labels.group(all, "team")
	for _, g := range got {
		if want[g.value] != [2]int{g.pods, int(g.cost.Max.Total())} {
			t.Errorf("label %q has %d pods that cost %v, want %v", g.value, g.pods, g.cost.Max, want[g.value])
		}
	}

	if len(got) != len(want) {
		t.Errorf("%d groups, want %d", len(got), len(want))
	}
}
