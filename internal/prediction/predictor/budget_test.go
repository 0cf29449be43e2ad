// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package predictor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"crane.io/crane/internal/metrics"
	"crane.io/crane/pkg/forecast/dsp"
	"crane.io/crane/pkg/forecast/registry"
)

// longestRing returns a request of which each series needs a ring of 25,000 samples, 100 KiB.
func longestRing(namespace, name string) Request {
	r := cpuOf(name)
	r.Namespace = namespace
	r.Query.Target.Namespace = namespace
	r.Algorithm = registry.DSP
	r.Options.DSP = dsp.Options{SampleInterval: "1m", HistoryLength: "17d"}

	return r
}

// TestNamespaceBudget: a namespace that requests as much as it can is bounded in bytes, and others are served.
func TestNamespaceBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, &fakeSource{use: dailyWave}, func(c *Config) {
			c.MaxBytes = 40 << 20
			c.MaxNamespaceBytes = 10 << 20
		})

		accepted := 0
		for i := range 1000 {
			if p.Set(fmt.Sprint("attacker-", i), []Request{longestRing("attacker", fmt.Sprint("w", i))})[0].Err == nil {
				accepted++
			}
		}

		if want := int((10 << 20) / ((maxCacheBytes) + ringBytes + 4*17*24*60*17/16)); accepted != want {
			t.Errorf("%d requests of the namespace are accepted, want %d", accepted, want)
		}

		// A copy of the request of another namespace is charged to both, and leaves the other one alone.
		honest := longestRing("honest", "w")
		if r := p.Set("honest", []Request{honest}); r[0].Err != nil {
			t.Errorf("Set of another namespace = %v, want no error", r[0].Err)
		}

		copied := honest
		copied.Namespace = "attacker"
		if r := p.Set("copy", []Request{copied}); r[0].Err == nil || !strings.Contains(r[0].Err.Error(), "namespace attacker") {
			t.Errorf("Set of a copy beyond the budget = %v, want an error with namespace attacker", r[0].Err)
		}

		time.Sleep(10 * time.Minute)
		synctest.Wait()

		for i := range 1000 {
			p.Forget(fmt.Sprint("attacker-", i))
		}

		p.Forget("honest")
		p.mu.Lock()
		defer p.mu.Unlock()

		if p.requested.budgets.total != 0 || len(p.requested.budgets.byNamespace) != 0 || len(p.reads.served) != 0 || len(p.reads.expressions) != 0 {
			t.Errorf("budgets %+v, %v and %v remain, want none", p.requested.budgets, p.reads.served, p.reads.expressions)
		}
	})
}

// TestSeriesBudget: the series of an expression are dropped where the budget of its namespace ends.
func TestSeriesBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &fakeSource{use: dailyWave, expressions: map[string][]metrics.Labels{}}
		for i := range 40 {
			source.expressions["x"] = append(source.expressions["x"], metrics.Labels{"pod": fmt.Sprint(i)})
		}

		p := start(t, source, func(c *Config) { c.MaxNamespaceBytes = 10 * autoBytes })
		key := p.Set("a", []Request{{Namespace: "shop", Query: Query{Expression: "x"}}})[0].Key
		time.Sleep(10 * time.Minute)
		synctest.Wait()

		if s := p.Status(key); s.Series != 10 || s.Dropped != 30 {
			t.Errorf("%d series, %d dropped, want 10 and 30", s.Series, s.Dropped)
		}
	})
}

// TestCheckpointsBounded: the files of a state directory stay below their limit.
func TestCheckpointsBounded(t *testing.T) {
	s, err := openStore(t.TempDir(), 10_000)
	if err != nil {
		t.Fatal(err)
	}

	refused := 0
	for i := range 20 {
		if err := s.write(Key{byte(i)}, checkpoint{Tracks: []trackCheckpoint{{Model: make([]byte, 500)}}}); err != nil {
			refused++
		}
	}

	written := s.total
	if err := s.measure(); err != nil || s.total != written || s.total > 10_000 || refused == 0 || refused == 20 {
		t.Errorf("%d bytes counted, %d on disk, %d refused, %v, want the sizes of the files and some refused", written, s.total, refused, err)
	}
}

// stuckSource never answers expressions that contain "slow", and answers all others.
type stuckSource struct {
	fakeSource
	mu    sync.Mutex
	stuck map[string]int
}

func (s *stuckSource) Range(ctx context.Context, query string, w metrics.Window) ([]metrics.LabeledSeries, error) {
	if strings.Contains(query, "slow") {
		s.mu.Lock()
		s.stuck[query]++
		s.mu.Unlock()
		<-ctx.Done()

		return nil, fmt.Errorf("reading: %w", ctx.Err())
	}

	return s.fakeSource.Range(ctx, query, w)
}

// TestSlowExpressions: expressions of one namespace that never answer hold up neither the workloads nor the expressions of others, and each
// is sent less and less often.
func TestSlowExpressions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &stuckSource{
			fakeSource: fakeSource{use: dailyWave, expressions: map[string][]metrics.Labels{"fast": {{"pod": "a"}}}}, stuck: map[string]int{},
		}

		p := start(t, source, nil)
		for i := range 100 {
			p.Set(fmt.Sprint("attacker-", i), []Request{{Namespace: "attacker", Query: Query{Expression: fmt.Sprint("slow", i)}}})
		}

		time.Sleep(time.Minute)
		honest := cpuOf("web")
		honest.Namespace = "shop"
		results := p.Set("honest", []Request{honest, {Namespace: "shop", Query: Query{Expression: "fast"}}})
		time.Sleep(time.Minute)
		synctest.Wait()

		for _, r := range results {
			if s := p.Status(r.Key); s.State != Ready {
				t.Errorf("%+v a minute after the request, want Ready", s)
			}
		}

		for range 24 {
			time.Sleep(10 * time.Minute)
			synctest.Wait()

			for _, r := range results {
				if s := p.Status(r.Key); s.State != Ready || s.Stale {
					t.Fatalf("Status beside slow expressions = %+v, want Ready and not stale", s)
				}
			}
		}

		source.mu.Lock()
		defer source.mu.Unlock()

		for query, n := range source.stuck {
			if n > 12 {
				t.Errorf("%s was sent %d times in four hours, want at most 12", query, n)
			}
		}
	})
}

// TestFirstHistoryBesideNewSamples: the history of a new workload is read beside more reads of new samples than the source can answer.
func TestFirstHistoryBesideNewSamples(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &fakeSource{use: dailyWave, refreshing: 30 * time.Second}
		p := start(t, source, func(c *Config) { c.Refresh = time.Minute })
		request := func(namespace string) Key {
			r := cpuOf("web")
			r.Namespace = namespace
			r.Query.Target.Namespace = namespace

			return p.Set(namespace, []Request{r})[0].Key
		}

		for n := range 40 {
			request(fmt.Sprint("other-", n))
		}

		time.Sleep(20 * time.Minute)
		for _, namespace := range []string{"shop", "bank"} {
			key := request(namespace)
			time.Sleep(time.Minute)
			synctest.Wait()

			if s := p.Status(key); s.State != Ready {
				t.Errorf("%+v a minute after the request, want Ready", s)
			}
		}

		_, before := source.reads()
		time.Sleep(10 * time.Minute)

		if _, after := source.reads(); after-before < 60 {
			t.Errorf("%d reads of new samples in ten minutes, want 60 or more", after-before)
		}
	})
}

// TestOverloadingExpression: an expression that makes the source fail does not pause the reads of others for long.
func TestOverloadingExpression(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &refusing{fakeSource: fakeSource{use: dailyWave}, err: errors.New("503 service unavailable")}
		p := start(t, source, nil)
		p.Set("attacker", []Request{{Namespace: "attacker", Query: Query{Expression: "heavy"}}})

		key := p.Set("honest", []Request{cpuOf("web")})[0].Key
		for range 60 {
			time.Sleep(2 * time.Minute)
			synctest.Wait()

			if s := p.Status(key); s.State != Ready || s.Stale {
				t.Fatalf("Status beside an expression that fails = %+v, want Ready and not stale", s)
			}
		}

		if source.asked > 16 {
			t.Errorf("the failing expression was sent %d times in two hours, want at most 16", source.asked)
		}
	})
}

// TestManyExpressions: one dispatch considers a bounded number of expressions of a namespace, and all are read in the end.
func TestManyExpressions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPredictor(t, &fakeSource{use: dailyWave}, nil)
		var all []RequestResult
		for n := range 3 {
			var requests []Request
			for i := range 100 {
				requests = append(requests, Request{Namespace: fmt.Sprint("ns-", n), Query: Query{Expression: fmt.Sprint("a", n, "_", i)}})
			}
			all = append(all, p.Set(fmt.Sprint("c", n), requests)...)
		}

		p.mu.Lock()
		var due []*entry
		for _, e := range p.requested.entries {
			e.phase = toFetch
			due = append(due, e)
		}

		if n := len(p.config.batches(due, time.Now())); n != 3*expressionCandidates {
			t.Errorf("a dispatch considers %d reads, want %d", n, 3*expressionCandidates)
		}

		p.mu.Unlock()
		run(t, p)
		time.Sleep(time.Minute)
		synctest.Wait()

		for _, r := range all {
			if s := p.Status(r.Key); r.Err != nil || s.State != Empty {
				t.Fatalf("%v, %+v a minute after the request, want Empty", r.Err, s)
			}
		}
	})
}

// TestEqualShares: where many namespaces request more than all forecasts may use, each gets the same share, whichever came first, and those that
// request less get all of it.
func TestEqualShares(t *testing.T) {
	for name, limit := range map[string]func(*Config){
		"bytes":  func(c *Config) { c.MaxBytes = 400 * autoBytes },
		"series": func(c *Config) { c.MaxSeries = 400 },
	} {
		synctest.Test(t, func(t *testing.T) {
			p := newPredictor(t, &fakeSource{use: dailyWave}, limit)
			greedy := func(n int) (accepted int) {
				var requests []Request
				for i := range 100 {
					requests = append(requests, Request{Namespace: fmt.Sprint("greedy-", n), Query: Query{Expression: fmt.Sprint("g", n, "_", i)}})
				}

				for _, r := range p.Set(fmt.Sprint("greedy-", n), requests) {
					if r.Err == nil {
						accepted++
					} else if !strings.Contains(r.Err.Error(), "the limit of") {
						t.Fatal(r.Err)
					}
				}

				return accepted
			}

			for n := range 20 {
				greedy(n)
			}

			var modest []Request
			for i := range 10 {
				modest = append(modest, Request{Namespace: "modest", Query: Query{Expression: fmt.Sprint("m", i)}})
			}

			check := func() {
				t.Helper()

				for _, r := range p.Set("modest", modest) {
					if s := p.Status(r.Key); r.Err != nil || s.State == Failed {
						t.Errorf("%s: Set of the namespace that requests little = %v, Status = %+v, want no failure", name, r.Err, s)
					}
				}
			}

			check()
			for n := range 20 {
				if got := greedy(n); got < 18 || got > 21 {
					t.Errorf("%s: %d requests of namespace %d are accepted, want 19 or 20", name, got, n)
				}
			}

			check()
			if len(p.requested.entries) > 400 || p.requested.budgets.total > p.config.MaxBytes {
				t.Errorf("%s: %d entries, %d bytes, want at most 400 and the budget", name, len(p.requested.entries), p.requested.budgets.total)
			}

			run(t, p)
			time.Sleep(10 * time.Minute)
			synctest.Wait()

			for n := range 20 {
				p.Forget(fmt.Sprint("greedy-", n))
			}

			p.Forget("modest")
			p.mu.Lock()
			defer p.mu.Unlock()

			if p.requested.budgets.total != 0 || len(p.requested.budgets.byNamespace) != 0 || p.requested.models != 0 || len(p.requested.entries) != 0 || len(p.requested.callers) != 0 {
				t.Errorf("%s: budgets %+v, %d models, %d entries and %d callers remain, want none", name, p.requested.budgets, p.requested.models, len(p.requested.entries), len(p.requested.callers))
			}
		})
	}
}

// TestSearchesAreRare: reads that end start others that were found before; all entries are searched once per scanInterval.
func TestSearchesAreRare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &fakeSource{use: dailyWave}
		p := start(t, source, nil)
		synctest.Wait() // The first search finds nothing.

		var requests []Request
		for i := range 10 * expressionCandidates {
			requests = append(requests, Request{Namespace: "shop", Query: Query{Expression: fmt.Sprint("x", i)}})
		}

		p.Set("a", requests)
		time.Sleep(2*scanInterval + scanInterval/2) // One search for checkpoints, one for histories.
		synctest.Wait()

		if n, _ := source.reads(); n != expressionCandidates {
			t.Errorf("%d reads after the search for histories, want %d", n, expressionCandidates)
		}

		time.Sleep(10 * scanInterval)
		synctest.Wait()

		if n, _ := source.reads(); n != len(requests) {
			t.Errorf("%d reads in the end, want %d", n, len(requests))
		}
	})
}
