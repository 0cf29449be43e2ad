// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package fallback

import (
	"context"
	"errors"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus/testutil"
	clocktesting "k8s.io/utils/clock/testing"

	"crane.io/crane/internal/metrics"
	"crane.io/crane/pkg/series"
)

var (
	errDown  = errors.New("connection refused")
	errQuery = errors.New("parse error")
	start    = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
)

// history is a source of usage history that returns chunks, then fails with err.
type history struct {
	name   string
	chunks int
	err    error
	asked  int
}

func (h *history) capabilities() metrics.Capabilities { return metrics.Capabilities{Usage: h} }

func (h *history) Usage(context.Context, metrics.UsageRequest) iter.Seq2[metrics.Chunk, error] {
	return func(yield func(metrics.Chunk, error) bool) {
		h.asked++
		for range h.chunks {
			if !yield(metrics.Chunk{Key: metrics.ContainerKey{Pod: h.name}}, nil) {
				return
			}
		}

		if h.err != nil {
			yield(metrics.Chunk{}, h.err)
		}
	}
}

// present is a source of current usage.
type present struct {
	err   error
	at    time.Time
	asked int
}

func (p *present) capabilities() metrics.Capabilities { return metrics.Capabilities{Realtime: p} }

func (p *present) CurrentUsage(context.Context, metrics.UsageKind, []string) iter.Seq2[metrics.Reading, error] {
	p.asked++
	if p.err != nil {
		return metrics.Fail[metrics.Reading](p.err)
	}

	return func(yield func(metrics.Reading, error) bool) {
		yield(metrics.Reading{Key: metrics.ContainerKey{Pod: "now"}, Time: p.at, Window: time.Minute, Value: 2}, nil)
	}
}

// errorOf returns the error of a sequence.
func errorOf[T any](elements iter.Seq2[T, error]) (err error) {
	for _, err = range elements {
	}
	return err
}

type fixture struct {
	*List
	clock *clocktesting.FakePassiveClock
	log   *strings.Builder
}

func list(sources ...Source) fixture {
	f := fixture{clock: clocktesting.NewFakePassiveClock(start), log: &strings.Builder{}}
	f.List = New(Config{
		IsQueryError: func(err error) bool { return errors.Is(err, errQuery) || errors.Is(err, metrics.ErrUnsupported) },
		Clock:        f.clock,
		Log:          funcr.New(func(_, args string) { f.log.WriteString(args + "\n") }, funcr.Options{}),
	}, sources...)

	return f
}

// read returns the names of the sources of the results, in order.
func (f fixture) read(t *testing.T) (string, error) {
	t.Helper()

	var from []string
	for c, err := range f.Usage(t.Context(), metrics.UsageRequest{}) {
		if err != nil {
			return strings.Join(from, ","), err
		}

		from = append(from, c.Key.Pod)
	}

	return strings.Join(from, ","), nil
}

// TestOrder checks that the first source that supports a request serves it, and that a failed source is used last
// until its cooldown ends.
func TestOrder(t *testing.T) {
	a := &history{name: "a", chunks: 1}
	b := &history{name: "b", chunks: 1}
	now := &present{}
	f := list(Source{"now", now.capabilities()}, Source{"a", a.capabilities()}, Source{"b", b.capabilities()})

	expect := func(step, want string, askedA int) {
		t.Helper()

		got, err := f.read(t)
		if err != nil || got != want || a.asked != askedA || now.asked != 0 {
			t.Errorf("%s: read = %q, %v, want %q; a was asked %d times, want %d; now %d times, want 0", step, got, err, want, a.asked, askedA, now.asked)
		}
	}

	expect("all well", "a", 1)
	a.chunks = 0
	a.err = errDown
	expect("a fails", "b", 2)

	if !strings.Contains(f.log.String(), `"source"="a"`) || !strings.Contains(f.log.String(), "connection refused") {
		t.Errorf("log after a failure of a: %s\nwant the source and the reason", f.log)
	}

	expect("a in cooldown", "b", 2)
	f.clock.SetTime(start.Add(-time.Hour)) // Setting the clock back ends the cooldown.
	expect("a clock set back", "b", 3)
	f.clock.SetTime(start.Add(2 * Cooldown))
	a.chunks = 1
	a.err = nil
	expect("a is back", "a", 4)

	if n := strings.Count(f.log.String(), "data source failed"); n > 2 {
		t.Errorf("%d log lines for one outage, want at most 2", n)
	}
	if err := testutil.CollectAndCompare(f.List, strings.NewReader(`
# HELP crane_data_source_failures_total Requests that a data source has failed to answer, after which the next source was tried.
# TYPE crane_data_source_failures_total counter
crane_data_source_failures_total{question="history",source="a"} 2
# HELP crane_data_source_answers_total Requests that a data source has answered, by kind of request.
# TYPE crane_data_source_answers_total counter
crane_data_source_answers_total{question="history",source="a"} 2
crane_data_source_answers_total{question="history",source="b"} 3
`)); err != nil {
		t.Error(err)
	}
}

// TestNoAnswer checks that a request that no source supports, that all sources fail, or that fails halfway returns an
// error, and that results of two sources are never combined.
func TestNoAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		first, second *history
		want          error
		answered      string
		askedSecond   int
	}{
		"both down":            {&history{err: errDown}, &history{err: errDown}, errDown, "", 1},
		"error of the query":   {&history{err: errQuery}, &history{name: "b", chunks: 1}, errQuery, "", 0},
		"halfway":              {&history{name: "a", chunks: 1, err: errDown}, &history{name: "b", chunks: 1}, errDown, "a", 0},
		"none can":             {&history{err: metrics.ErrUnsupported}, &history{err: metrics.ErrUnsupported}, metrics.ErrUnsupported, "", 1},
		"one cannot":           {&history{err: metrics.ErrUnsupported}, &history{name: "b", chunks: 1}, nil, "b", 1},
		"no data is an answer": {&history{}, &history{name: "b", chunks: 1}, nil, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			f := list(Source{"a", c.first.capabilities()}, Source{"b", c.second.capabilities()})
			got, err := f.read(t)
			if !errors.Is(err, c.want) || got != c.answered || c.second.asked != c.askedSecond {
				t.Errorf("read = %q, %v with %d requests to the second source, want %q, %v with %d", got, err, c.second.asked, c.answered, c.want, c.askedSecond)
			}
		})
	}

	a := &history{name: "a", chunks: 2}
	b := &history{name: "b", chunks: 2}

	f := list(Source{"a", a.capabilities()}, Source{"b", b.capabilities()})
	for chunk, err := range f.Usage(t.Context(), metrics.UsageRequest{}) {
		if err != nil || chunk.Key.Pod != "a" {
			t.Errorf("Usage yielded %v, %v, want a chunk of a", chunk, err)
		}
		break
	}

	if n := testutil.CollectAndCount(f.List, "crane_data_source_failures_total"); n != 0 || b.asked != 0 {
		t.Errorf("after a consumer that stops early: %d failure series and %d requests to b, want 0 and 0", n, b.asked)
	}

	canceledCtx, cancel := context.WithCancel(t.Context())
	cancel()

	second := &history{name: "b", chunks: 1}
	f = list(Source{"a", (&history{err: errDown}).capabilities()}, Source{"b", second.capabilities()})
	if err := errorOf(f.Usage(canceledCtx, metrics.UsageRequest{})); err == nil || second.asked != 0 {
		t.Errorf("Usage with a canceled context: error %v after %d requests to the second source, want an error and 0", err, second.asked)
	}
}

// TestRecent checks that current usage replaces the history of a short window if no source has the history.
func TestRecent(t *testing.T) {
	window := metrics.UsageRequest{Resource: metrics.CPU, Start: start.Add(-time.Hour), End: start}
	for name, c := range map[string]struct {
		sources []Source
		want    string
		fails   bool
	}{
		"history answers":       {[]Source{{"now", (&present{at: start}).capabilities()}, {"h", (&history{name: "h", chunks: 1}).capabilities()}}, "h", false},
		"history fails":         {[]Source{{"h", (&history{err: errDown}).capabilities()}, {"now", (&present{at: start}).capabilities()}}, "now", false},
		"only the present":      {[]Source{{"now", (&present{at: start}).capabilities()}}, "now", false},
		"a stale present":       {[]Source{{"now", (&present{at: start.Add(-2 * time.Hour)}).capabilities()}}, "", false},
		"a present of tomorrow": {[]Source{{"now", (&present{at: start.Add(24 * time.Hour)}).capabilities()}}, "", false},
		"both fail":             {[]Source{{"h", (&history{err: errDown}).capabilities()}, {"now", (&present{err: errDown}).capabilities()}}, "", true},
		"half a history":        {[]Source{{"h", (&history{name: "h", chunks: 1, err: errDown}).capabilities()}, {"now", (&present{at: start}).capabilities()}}, "h", true},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			var err error
			for chunk, failure := range list(c.sources...).Recent().Usage(t.Context(), window) {
				if err = failure; err != nil {
					break
				}

				got = append(got, chunk.Key.Pod)
				if chunk.Key.Pod == "now" && (len(chunk.Series.Values) != 1 || chunk.Series.Values[0] != 2 || chunk.Series.End().After(start)) {
					t.Errorf("Usage: chunk %+v of the current source, want the value 2, ending at %v or before", chunk, start)
				}
			}

			if strings.Join(got, ",") != c.want || (err != nil) != c.fails {
				t.Errorf("Usage = %v, %v, want %s, with an error: %v", got, err, c.want, c.fails)
			}
		})
	}
}

// prometheusLike is a source with a cache, a memory breakdown and aggregates.
type prometheusLike struct{ *history }

func (r prometheusLike) capabilities() metrics.Capabilities {
	return metrics.Capabilities{
		Aggregates: r, MemoryBreakdown: []metrics.UsageKind{metrics.UnreclaimableMemory},
		Caching: r.history.capabilities,
	}
}

func (r prometheusLike) WorkloadUsage(context.Context, metrics.WorkloadsRequest) (map[string]series.Series, error) {
	return nil, r.err
}

func (r prometheusLike) NodeUsage(context.Context, metrics.NodesRequest) (map[string]series.Series, error) {
	return map[string]series.Series{"n": {}}, nil
}

// figures is a source with hourly metrics.
type figures struct {
	*history
	name string
}

func (f figures) capabilities() metrics.Capabilities {
	return metrics.Capabilities{Usage: f, Hourly: f}
}

func (f figures) Hourly(context.Context, metrics.HourlyRequest) ([]metrics.HourlySeries, error) {
	f.asked++
	if f.err != nil {
		return nil, f.err
	}

	return []metrics.HourlySeries{{Key: metrics.ContainerKey{Node: f.name}}}, nil
}

// TestHourly checks that hourly metrics are read from the first source that has them.
func TestHourly(t *testing.T) {
	for name, c := range map[string]struct {
		sources []Source
		want    string
		err     error
	}{
		"the first that can":    {[]Source{{"now", (&present{}).capabilities()}, {"h", (&history{}).capabilities()}, {"a", figures{&history{}, "a"}.capabilities()}, {"b", figures{&history{}, "b"}.capabilities()}}, "a", nil},
		"the first fails":       {[]Source{{"a", figures{&history{err: errDown}, "a"}.capabilities()}, {"b", figures{&history{}, "b"}.capabilities()}}, "b", nil},
		"all fail":              {[]Source{{"a", figures{&history{err: errDown}, "a"}.capabilities()}, {"b", figures{&history{err: errDown}, "b"}.capabilities()}}, "", errDown},
		"an error of the query": {[]Source{{"a", figures{&history{err: errQuery}, "a"}.capabilities()}, {"b", figures{&history{}, "b"}.capabilities()}}, "", errQuery},
		"none has any":          {[]Source{{"now", (&present{}).capabilities()}, {"h", (&history{}).capabilities()}}, "", metrics.ErrUnsupported},
		"with a cache":          {[]Source{{"now", (&present{}).capabilities()}, {"a", figures{&history{}, "a"}.capabilities()}}, "a", nil},
	} {
		t.Run(name, func(t *testing.T) {
			cached := list(c.sources...).Capabilities().WithCache().Hourly
			if supported := list(c.sources...).Capabilities().Hourly != nil; supported != (cached != nil) || supported == errors.Is(c.err, metrics.ErrUnsupported) {
				t.Fatalf("hourly metrics are supported: %v, with a cache: %v, want the same and an error %v", supported, cached != nil, c.err)
			}

			for _, reader := range []metrics.HourlyReader{list(c.sources...), cached} {
				if reader == nil {
					continue
				}

				got, err := reader.Hourly(t.Context(), metrics.HourlyRequest{Metric: metrics.NodePods, Hours: 1})
				if !errors.Is(err, c.err) || (c.want == "") != (len(got) == 0) || len(got) == 1 && got[0].Key.Node != c.want {
					t.Errorf("Hourly = %v, %v, want node %q and error %v", got, err, c.want, c.err)
				}
			}
		})
	}
}

// TestCapabilities checks that a list supports the union of the capabilities of its sources.
func TestCapabilities(t *testing.T) {
	h := &history{name: "h", chunks: 1}
	f := list(Source{"now", (&present{}).capabilities()}, Source{"h", prometheusLike{h}.capabilities()})
	if err := errorOf(f.Capabilities().WithCache().Usage.Usage(t.Context(), metrics.UsageRequest{})); err != nil || h.asked != 1 {
		t.Errorf("Usage with a cache: error %v after %d requests, want none after 1", err, h.asked)
	}

	if got := f.Capabilities().MemoryBreakdown; len(got) != 1 {
		t.Errorf("Capabilities: memory breakdown %v, want one resource", got)
	}
	if got, err := f.NodeUsage(t.Context(), metrics.NodesRequest{}); err != nil || len(got) != 1 {
		t.Errorf("NodeUsage = %v, %v, want one node", got, err)
	}

	if _, err := f.WorkloadUsage(t.Context(), metrics.WorkloadsRequest{}); err != nil {
		t.Error(err)
	}
	if _, err := f.Instant(t.Context(), "up", start); !errors.Is(err, metrics.ErrUnsupported) {
		t.Errorf("Instant without a source for it: error %v, want ErrUnsupported", err)
	}
	if _, err := f.Range(t.Context(), "up", metrics.Window{}); !errors.Is(err, metrics.ErrUnsupported) {
		t.Errorf("Range without a source for it: error %v, want ErrUnsupported", err)
	}

	if c := f.Capabilities(); c.OOM != nil || c.Heaps != nil || c.Queries != nil || c.Hourly != nil || c.Days != nil {
		t.Errorf("Capabilities = %+v, want no OOM kills, heaps, queries, hourly metrics or days", c)
	}
	if list(Source{"h", h.capabilities()}).Capabilities().Usage == nil || list(Source{"now", (&present{}).capabilities()}).Capabilities().Usage != nil {
		t.Error("Capabilities: current usage counts as history, want Usage of sources with history only")
	}
}
