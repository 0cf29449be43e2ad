// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package predictor

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"sync"
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"

	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics"
)

// logReads logs what was read from the source, and starts over.
func (f *fakeSource) logReads(b *testing.B, what string) {
	b.Helper()

	f.mu.Lock()
	defer f.mu.Unlock()

	b.Logf("%s: %d reads of histories, %d others, %d samples", what, f.histories, f.refreshes, f.samples)
	f.histories = 0
	f.refreshes = 0
	f.samples = 0
}

// BenchmarkRefreshFromState restarts a predictor of 10,000 series with 14 days of history each: it loads checkpoints,
// reads the 30 minutes since, and forecasts each series for two hours. The source is a function, so the benchmark
// measures the predictor alone.
func BenchmarkRefreshFromState(b *testing.B) {
	const count, perNamespace = 10_000, 100
	dir := b.TempDir()
	source := &fakeSource{use: func(name string, at time.Time) float64 {
		return dailyWave(name, at) * (1 + 0.1*math.Sin(float64(at.Unix()*int64(len(name)))))
	}}

	var requests []Request
	for i := range count {
		requests = append(requests, Request{Query: Query{Resource: metrics.CPU, Target: workload.Ref{
			Namespace: fmt.Sprintf("ns-%d", i/perNamespace), Kind: "Deployment", Name: fmt.Sprintf("web-%d", i),
		}}})
	}

	clock := testingclock.NewFakeClock(time.Now().Truncate(time.Minute))
	open := func() (*Predictor, []RequestResult, func()) {
		c := DefaultConfig()
		c.Source = source
		c.StateDir = dir

		c.Clock = clock
		p, err := New(c)
		if err != nil {
			b.Fatal(err)
		}

		tickets := p.Set("bench", requests)
		ctx, cancel := context.WithCancel(b.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)

			_ = p.Start(ctx)
		}()

		return p, tickets, func() { cancel(); <-done }
	}

	until := func(p *Predictor, enough func(Counts) bool) {
		for tick := time.NewTicker(5 * time.Millisecond); !enough(p.Counts()); <-tick.C {
		}
	}

	began := time.Now()
	p, _, stop := open()
	until(p, func(c Counts) bool { return c.Models == count })
	b.Logf("%d histories of 14 days by the minute fitted in %s", count, time.Since(began).Round(time.Millisecond))
	source.logReads(b, "a leader without checkpoints")
	began = time.Now()
	stop()
	b.Logf("checkpoints written in %s", time.Since(began).Round(time.Millisecond))

	for b.Loop() {
		b.StopTimer()
		clock.Step(30 * time.Minute)
		runtime.GC()
		b.StartTimer()
		p, tickets, stop := open()
		until(p, func(c Counts) bool { return c.Restored == count && c.Refreshes >= count/perNamespace })

		var group sync.WaitGroup
		for part := range 2 {
			group.Go(func() {
				for i := part; i < count; i += 2 {
					if all, err := p.Forecast(tickets[i].Key, 2*time.Hour); err != nil || len(all) != 1 {
						b.Errorf("Forecast of request %d has %d series, %v, want 1", i, len(all), err)
						return
					}
				}
			})
		}

		group.Wait()
		b.StopTimer()
		source.logReads(b, "a leader with checkpoints")

		if c := p.Counts(); c.Histories != 0 || c.Models != count {
			b.Fatalf("Counts = %+v, want %d models and no history read", c, count)
		}

		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		b.ReportMetric(float64(m.HeapAlloc)/count, "heapB/series")
		stop()
		b.StartTimer()
	}
}
