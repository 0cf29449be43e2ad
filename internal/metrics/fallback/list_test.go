// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package fallback

import (
	"context"
	"errors"
	"fmt"
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

// history is a source of the past: it hands on chunks, then fails with err.
type history struct {
	name   string
	chunks int
	err    error
	asked  int
}

func (h *history) Usage(_ context.Context, _ metrics.UsageRequest, visit func(metrics.Chunk) error) error {
	h.asked++
	for range h.chunks {
		if err := visit(metrics.Chunk{Key: metrics.ContainerKey{Pod: h.name}}); err != nil {
			return fmt.Errorf("wrapped: %w", err)
		}
	}
	return h.err
}

// present is a source of the present alone.
type present struct {
	err   error
	at    time.Time
	asked int
}

func (p *present) CurrentUsage(_ context.Context, _ metrics.Resource, _ []string, visit func(metrics.Reading) error) error {
	p.asked++
	if p.err != nil {
		return p.err
	}
	return visit(metrics.Reading{Key: metrics.ContainerKey{Pod: "now"}, Time: p.at, Window: time.Minute, Value: 2})
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

// read returns the names of who has answered, in order.
func (f fixture) read(t *testing.T) (string, error) {
	t.Helper()
	var from []string
	err := f.Usage(t.Context(), metrics.UsageRequest{}, func(c metrics.Chunk) error {
		from = append(from, c.Key.Pod)
		return nil
	})
	return strings.Join(from, ","), err
}

// TestOrder: the first that can answer serves; one that fails rests, and is asked first again when it has rested.
func TestOrder(t *testing.T) {
	a, b := &history{name: "a", chunks: 1}, &history{name: "b", chunks: 1}
	now := &present{}
	f := list(Source{"now", now}, Source{"a", a}, Source{"b", b})
	expect := func(step, want string, askedA int) {
		t.Helper()
		got, err := f.read(t)
		if err != nil || got != want || a.asked != askedA || now.asked != 0 {
			t.Errorf("%s: %q, %v, want %q; a was asked %d times, want %d", step, got, err, want, a.asked, askedA)
		}
	}
	expect("all well", "a", 1)
	a.chunks, a.err = 0, errDown
	expect("a fails", "b", 2)
	if !strings.Contains(f.log.String(), `"source"="a"`) || !strings.Contains(f.log.String(), "connection refused") {
		t.Errorf("the log does not tell: %s", f.log)
	}
	expect("a rests", "b", 2)
	f.clock.SetTime(start.Add(-time.Hour)) // set back: a rest of an hour is none
	expect("a clock set back", "b", 3)
	f.clock.SetTime(start.Add(2 * Cooldown))
	a.chunks, a.err = 1, nil
	expect("a is back", "a", 4)
	if n := strings.Count(f.log.String(), "Data source fails"); n > 2 {
		t.Errorf("%d lines for one outage", n)
	}
	if err := testutil.CollectAndCompare(f.List, strings.NewReader(`
# HELP crane_data_source_failures_total Questions that a data source has failed to answer; the next one in order was asked.
# TYPE crane_data_source_failures_total counter
crane_data_source_failures_total{question="history",source="a"} 2
# HELP crane_data_source_answers_total Questions that a data source has answered, by what was asked.
# TYPE crane_data_source_answers_total counter
crane_data_source_answers_total{question="history",source="a"} 2
crane_data_source_answers_total{question="history",source="b"} 3
`)); err != nil {
		t.Error(err)
	}
}

// TestNoAnswer: what is nobody's to answer, or fails everywhere, or in the midst, is an error, and never half an answer of
// one source with half of another's.
func TestNoAnswer(t *testing.T) {
	other := errors.New("visitor has had enough")
	for name, c := range map[string]struct {
		first, second *history
		want          error
		answered      string
		askedSecond   int
	}{
		"both down":           {&history{err: errDown}, &history{err: errDown}, errDown, "", 1},
		"own fault":           {&history{err: errQuery}, &history{name: "b", chunks: 1}, errQuery, "", 0},
		"in the midst":        {&history{name: "a", chunks: 1, err: errDown}, &history{name: "b", chunks: 1}, errDown, "a", 0},
		"none can":            {&history{err: metrics.ErrUnsupported}, &history{err: metrics.ErrUnsupported}, metrics.ErrUnsupported, "", 1},
		"one cannot":          {&history{err: metrics.ErrUnsupported}, &history{name: "b", chunks: 1}, nil, "b", 1},
		"no data is a answer": {&history{}, &history{name: "b", chunks: 1}, nil, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			f := list(Source{"a", c.first}, Source{"b", c.second})
			got, err := f.read(t)
			if !errors.Is(err, c.want) || got != c.answered || c.second.asked != c.askedSecond {
				t.Errorf("%q, %v; the second was asked %d times", got, err, c.second.asked)
			}
		})
	}
	f := list(Source{"a", &history{name: "a", chunks: 2}}, Source{"b", &history{name: "b", chunks: 2}})
	if err := f.Usage(t.Context(), metrics.UsageRequest{}, func(metrics.Chunk) error { return other }); !errors.Is(err, other) {
		t.Errorf("an error of the visitor: %v", err)
	}
	if n := testutil.CollectAndCount(f.List, "crane_data_source_failures_total"); n != 0 {
		t.Error("an error of the visitor counts as a failure of the source")
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	second := &history{name: "b", chunks: 1}
	f = list(Source{"a", &history{err: errDown}}, Source{"b", second})
	if err := f.Usage(cancelled, metrics.UsageRequest{}, func(metrics.Chunk) error { return nil }); err == nil || second.asked != 0 {
		t.Errorf("after the end of the context: %v, the second was asked %d times", err, second.asked)
	}
}

// TestRecent: a short window is answered with what is used now where no history answers, and only then.
func TestRecent(t *testing.T) {
	window := metrics.UsageRequest{Resource: metrics.CPU, Start: start.Add(-time.Hour), End: start}
	for name, c := range map[string]struct {
		sources []Source
		want    string
		fails   bool
	}{
		"history answers":       {[]Source{{"now", &present{at: start}}, {"h", &history{name: "h", chunks: 1}}}, "h", false},
		"history fails":         {[]Source{{"h", &history{err: errDown}}, {"now", &present{at: start}}}, "now", false},
		"only the present":      {[]Source{{"now", &present{at: start}}}, "now", false},
		"a stale present":       {[]Source{{"now", &present{at: start.Add(-2 * time.Hour)}}}, "", false},
		"a present of tomorrow": {[]Source{{"now", &present{at: start.Add(24 * time.Hour)}}}, "", false},
		"both fail":             {[]Source{{"h", &history{err: errDown}}, {"now", &present{err: errDown}}}, "", true},
		"half a history":        {[]Source{{"h", &history{name: "h", chunks: 1, err: errDown}}, {"now", &present{at: start}}}, "h", true},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			err := list(c.sources...).Recent().Usage(t.Context(), window, func(chunk metrics.Chunk) error {
				got = append(got, chunk.Key.Pod)
				if chunk.Key.Pod == "now" && (len(chunk.Series.Values) != 1 || chunk.Series.Values[0] != 2 || chunk.Series.End().After(start)) {
					t.Errorf("chunk %+v", chunk)
				}
				return nil
			})
			if strings.Join(got, ",") != c.want || (err != nil) != c.fails {
				t.Errorf("%v, %v", got, err)
			}
		})
	}
}

// rereader keeps what it has found out.
type rereader struct{ *history }

func (r rereader) Rereading() metrics.UsageReader { return r.history }
func (r rereader) MemoryDetails() []metrics.Resource {
	return []metrics.Resource{metrics.HeldMemory}
}

func (r rereader) WorkloadUsage(context.Context, metrics.WorkloadsRequest) (map[string]series.Series, error) {
	return nil, r.err
}

func (r rereader) NodeUsage(context.Context, metrics.NodesRequest) (map[string]series.Series, error) {
	return map[string]series.Series{"n": {}}, nil
}

// figures is a source with figures by the hour.
type figures struct {
	*history
	name string
}

func (f figures) Hourly(context.Context, metrics.HourlyRequest) ([]metrics.HourlySeries, error) {
	f.asked++
	if f.err != nil {
		return nil, f.err
	}
	return []metrics.HourlySeries{{Key: metrics.ContainerKey{Node: f.name}}}, nil
}

// TestHourly: figures come from the first source that has them, whatever else the sources before it can.
func TestHourly(t *testing.T) {
	for name, c := range map[string]struct {
		sources []Source
		want    string
		err     error
	}{
		"the first that can":      {[]Source{{"now", &present{}}, {"h", &history{}}, {"a", figures{&history{}, "a"}}, {"b", figures{&history{}, "b"}}}, "a", nil},
		"the first fails":         {[]Source{{"a", figures{&history{err: errDown}, "a"}}, {"b", figures{&history{}, "b"}}}, "b", nil},
		"all fail":                {[]Source{{"a", figures{&history{err: errDown}, "a"}}, {"b", figures{&history{err: errDown}, "b"}}}, "", errDown},
		"the question is wrong":   {[]Source{{"a", figures{&history{err: errQuery}, "a"}}, {"b", figures{&history{}, "b"}}}, "", errQuery},
		"none has any":            {[]Source{{"now", &present{}}, {"h", &history{}}}, "", metrics.ErrUnsupported},
		"kept by who reads again": {[]Source{{"now", &present{}}, {"a", figures{&history{}, "a"}}}, "a", nil},
	} {
		t.Run(name, func(t *testing.T) {
			again, can := list(c.sources...).Rereading().(metrics.HourlyReader)
			if !can {
				t.Fatal("a list that is read again has no figures")
			}
			for _, reader := range []metrics.HourlyReader{list(c.sources...), again} {
				got, err := reader.Hourly(t.Context(), metrics.HourlyRequest{Metric: metrics.NodePods, Hours: 1})
				if !errors.Is(err, c.err) || (c.want == "") != (len(got) == 0) || len(got) == 1 && got[0].Key.Node != c.want {
					t.Errorf("%v, %v", got, err)
				}
			}
		})
	}
}

// TestAbilities: a list can what its sources can, and says so where none can.
func TestAbilities(t *testing.T) {
	h := &history{name: "h", chunks: 1}
	f := list(Source{"now", &present{}}, Source{"h", rereader{h}})
	again := f.Rereading()
	if err := again.Usage(t.Context(), metrics.UsageRequest{}, func(metrics.Chunk) error { return nil }); err != nil || h.asked != 1 {
		t.Errorf("rereading: %v, asked %d times", err, h.asked)
	}
	if got := f.MemoryDetails(); len(got) != 1 {
		t.Errorf("memory details %v", got)
	}
	if got, err := f.NodeUsage(t.Context(), metrics.NodesRequest{}); err != nil || len(got) != 1 {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := f.WorkloadUsage(t.Context(), metrics.WorkloadsRequest{}); err != nil {
		t.Error(err)
	}
	if _, err := f.Instant(t.Context(), "up", start); !errors.Is(err, metrics.ErrUnsupported) {
		t.Errorf("a query that nobody takes: %v", err)
	}
	if _, err := f.Range(t.Context(), "up", metrics.Window{}); !errors.Is(err, metrics.ErrUnsupported) {
		t.Errorf("a query that nobody takes: %v", err)
	}
	if err := f.OOMKills(t.Context(), metrics.Window{}, nil, nil); err != nil {
		t.Errorf("kills that nobody sees: %v", err)
	}
	if err := f.Heaps(t.Context(), metrics.Window{}, nil, nil); err != nil {
		t.Errorf("heaps that nobody sees: %v", err)
	}
	if !f.HasHistory() || list(Source{"now", &present{}}).HasHistory() {
		t.Error("history is not told from the present")
	}
}
