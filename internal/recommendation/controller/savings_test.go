// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/pkg/cost"
)

// pricer prices a cluster of one node, on which web runs.
type pricer struct {
	err   error
	asked int
}

func (p *pricer) Prices(context.Context) (*cost.Tariff, workload.Placement, error) {
	p.asked++
	if p.err != nil {
		return nil, nil, p.err
	}

	book, err := cost.ParsePriceBook([]byte(`{"currency":"EUR","source":"s","date":"2026-01-01","default":{"prices":{"cpu":1,"memory":1}}}`))
	if err != nil {
		return nil, nil, err
	}

	tariff, err := cost.NewTariff(book, []cost.Node{{Name: "n", Size: cost.Amounts{CPU: 4000, Memory: 1 << 30}}})
	placed := workload.Cluster{Pods: []workload.Pod{{
		Name: "web-1", Node: "n", Owner: workload.Ref{Namespace: "shop", APIVersion: "apps/v1", Kind: "Deployment", Name: "web"},
	}}}.Placement()

	return tariff, placed, err
}

// TestSavings checks that a run reports the saving of its change, reads prices once, and keeps the last saving while there are none.
func TestSavings(t *testing.T) {
	f := newFixture(t, testRule("24h"), deployment("web"), deployment("unheard"))
	p := &pricer{}
	f.Pricer = p
	f.reconcile()

	web := f.all()["web"]
	s := web.Status.Savings
	if s == nil || s.Currency != "EUR" || s.PricedFrom != string(cost.FromNodes) || p.asked != 1 {
		t.Fatalf("savings %+v after %d reads of prices, want EUR of the nodes after 1", s, p.asked)
	}

	// The container requests 2 cores and no memory.
	monthly, err := strconv.ParseFloat(s.Monthly, 64)
	if cores := s.CPU.AsApproximateFloat64(); err != nil || cores <= 0 || cores >= 2 || monthly < cores*730-0.01 || monthly > cores*730+0.01 {
		t.Errorf("%v cores save %s, error %v, want 730 for each core", cores, s.Monthly, err)
	}

	if !s.Memory.IsZero() || len(s.NotCounted) != 1 || s.NotCounted[0] != "memory of app: no request today" {
		t.Errorf("savings %+v, want no memory, because app has no request today", s)
	}
	if unheard := f.all()["unheard"]; unheard.Status.Savings != nil {
		t.Errorf("savings of a workload without a recommendation = %+v, want none", unheard.Status.Savings)
	}

	p.err = errors.New("forbidden")
	f.clock.SetTime(f.clock.Now().Add(24 * time.Hour))
	f.reconcile()

	web = f.all()["web"]
	if kept := web.Status.Savings; kept == nil || kept.Monthly != s.Monthly || p.asked != 2 {
		t.Errorf("savings without prices %+v after %d reads, want the last ones after 2", kept, p.asked)
	}
	if reason, message := f.ready(); reason != reasonRoundCompleted {
		t.Errorf("condition Ready without prices is %s: %s, want %s", reason, message, reasonRoundCompleted)
	}
}

// TestNoPricer checks that a recommendation has no saving without prices.
func TestNoPricer(t *testing.T) {
	f := newFixture(t, testRule("24h"), deployment("web"))
	f.reconcile()

	if web := f.all()["web"]; web.Status.RecommendedValue == "" || web.Status.Savings != nil {
		t.Errorf("status %+v, want a value without savings", web.Status)
	}
}

// TestSavingsMetric: it goes where the savings go.
func TestSavingsMetric(t *testing.T) {
	for text, want := range map[string]int{"12.34": 5, "-3.00": 5, "much": 1, "": 1} {
		m := NewMetrics(time.Now, time.Hour)
		rec := recommendationOf("a", time.Now(), time.Now())
		rec.Status.LastUpdateTime = nil
		rec.Status.Savings = &analysisv1alpha1.Savings{Monthly: text, Currency: "EUR"}
		m.observe(rec, parsedValue{})

		if n := gathered(t, m); n != want {
			t.Errorf("%q: %d series, want %d", text, n, want)
		}

		rec.Status.Savings = nil
		m.observe(rec, parsedValue{})

		if n := gathered(t, m); n != 1 {
			t.Errorf("%d series after the deletion, want 1", n)
		}
	}
}

func gathered(t *testing.T, m *Metrics) int {
	t.Helper()

	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(m); err != nil {
		t.Fatal(err)
	}

	n, err := testutil.GatherAndCount(registry)
	if err != nil {
		t.Fatal(err)
	}

	return n
}
