// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package predictor

import (
	"context"
	"math"
	"sync"
	"testing"
	"time"

	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/pkg/series"
)

// fakeSource serves synthetic usage and counts queries.
type fakeSource struct {
	mu         sync.Mutex
	fail       error
	delay      time.Duration // of history reads
	refreshing time.Duration // of other reads
	histories  int           // reads of more than an hour
	refreshes  int
	names      int // names over all workload reads
	samples    int // of all answers
	// use returns the usage of a name at a time; NaN is a gap.
	use func(name string, at time.Time) float64
	// expressions are the series of each expression.
	expressions map[string][]metrics.Labels
}

func (f *fakeSource) Instant(context.Context, string, time.Time) ([]metrics.Sample, error) {
	return nil, nil
}

func (f *fakeSource) begin(ctx context.Context, w metrics.Window, names int) error {
	f.mu.Lock()
	var delay time.Duration
	if w.End.Sub(w.Start) > time.Hour {
		f.histories++
		delay = f.delay
	} else {
		f.refreshes++
		delay = f.refreshing
	}

	f.names += names
	err := f.fail
	f.mu.Unlock()

	if delay > 0 {
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return ctx.Err()
		}
	}

	return err
}

func (f *fakeSource) fill(name string, w metrics.Window) (series.Series, bool) {
	out := series.Series{Start: w.Start, Step: w.Step}
	some := false
	for at := w.Start; at.Before(w.End); at = at.Add(w.Step) {
		v := f.use(name, at)
		some = some || !math.IsNaN(v)
		out.Values = append(out.Values, v)
	}

	f.mu.Lock()
	f.samples += len(out.Values)
	f.mu.Unlock()

	return out, some
}

func (f *fakeSource) WorkloadUsage(ctx context.Context, r metrics.WorkloadsRequest) (map[string]series.Series, error) {
	return f.sums(ctx, r.Names, r.Window)
}

func (f *fakeSource) NodeUsage(ctx context.Context, r metrics.NodesRequest) (map[string]series.Series, error) {
	return f.sums(ctx, r.Names, r.Window)
}

func (f *fakeSource) sums(ctx context.Context, names []string, w metrics.Window) (map[string]series.Series, error) {
	if err := f.begin(ctx, w, len(names)); err != nil {
		return nil, err
	}

	out := map[string]series.Series{}
	for _, n := range names {
		if s, ok := f.fill(n, w); ok {
			out[n] = s
		}
	}

	return out, nil
}

func (f *fakeSource) Range(ctx context.Context, query string, w metrics.Window) ([]metrics.LabeledSeries, error) {
	if err := f.begin(ctx, w, 0); err != nil {
		return nil, err
	}

	var out []metrics.LabeledSeries
	for _, l := range f.expressions[query] {
		if s, ok := f.fill(l["pod"], w); ok {
			out = append(out, metrics.LabeledSeries{Labels: l, Series: s})
		}
	}

	return out, nil
}

func (f *fakeSource) set(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()

	f.fail = err
}

func (f *fakeSource) reads() (histories, refreshes int) {
	f.mu.Lock()
	defer f.mu.Unlock()

	return f.histories, f.refreshes
}

// dailyWave has its peak at noon.
func dailyWave(_ string, at time.Time) float64 {
	return 2 - math.Cos(2*math.Pi*float64(at.Unix()%86400)/86400)
}

func cpuOf(name string) Request {
	return Request{Query: Query{Resource: metrics.CPU, Target: workload.Ref{Namespace: "shop", Kind: "Deployment", Name: name}}}
}

func start(t *testing.T, source Source, change func(*Config)) *Predictor {
	t.Helper()

	p := newPredictor(t, source, change)
	run(t, p)
	return p
}

func newPredictor(t *testing.T, source Source, change func(*Config)) *Predictor {
	t.Helper()

	c := DefaultConfig()
	c.Source = source
	if change != nil {
		change(&c)
	}

	p, err := New(c)
	if err != nil {
		t.Fatal(err)
	}

	return p
}

// run starts p and stops it at the end of the test.
func run(t *testing.T, p *Predictor) {
	t.Helper()

	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)

		_ = p.Start(ctx)
	}()

	t.Cleanup(func() { cancel(); <-done })
}
