// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/prometheus/model/labels"

	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/internal/testbed/promserver"
	"crane.io/crane/pkg/series"
)

// These tests use the real engine, because a fake cannot verify the meaning of a query.

var today = time.Date(2026, 3, 5, 0, 0, 0, 0, time.UTC)

// fixture builds a history and serves it.
type fixture struct {
	grid   promserver.Grid
	series []promserver.Series
}

func newFixture(start, end time.Time) *fixture {
	return &fixture{grid: promserver.Grid{Start: start, End: end, Step: time.Minute}}
}

// add adds a series with a value at each time of the grid; NaN is no sample.
func (w *fixture) add(value func(t time.Time) float64, pairs ...string) {
	w.series = append(w.series, promserver.Series{
		Labels: labels.FromStrings(pairs...),
		Fill: func(dst []float64, first int) {
			for i := range dst {
				dst[i] = value(w.grid.Start.Add(time.Duration(first+i) * w.grid.Step))
			}
		},
	})
}

// cpu adds a counter of a container that increases by cores(t) per second.
func (w *fixture) cpu(namespace, pod, container string, cores func(time.Time) float64, more ...string) {
	total := 0.0
	w.add(func(t time.Time) float64 {
		if t.Equal(w.grid.Start) {
			total = 0 // the history may be written more than once
		}

		v := cores(t)
		if math.IsNaN(v) {
			return v
		}

		total += v * w.grid.Step.Seconds()
		return total
	}, append([]string{"__name__", cpuMetric, "namespace", namespace, "pod", pod, "container", container, "cpu", "total"}, more...)...)
}

func (w *fixture) memory(namespace, pod, container string, bytes func(time.Time) float64, more ...string) {
	w.add(bytes, append([]string{"__name__", memoryMetric, "namespace", namespace, "pod", pod, "container", container}, more...)...)
}

func (w *fixture) owned(metric, namespace, by, object, kind, owner string, when func(time.Time) float64) {
	w.add(when, "__name__", metric, "namespace", namespace, by, object, "owner_kind", kind, "owner_name", owner, "owner_is_controller", "true")
}

func constant(v float64) func(time.Time) float64 { return func(time.Time) float64 { return v } }

// between returns v within [from, to) and no value outside.
func between(from, to time.Time, v float64) func(time.Time) float64 {
	return func(t time.Time) float64 {
		if t.Before(from) || !t.Before(to) {
			return math.NaN()
		}

		return v
	}
}

func (w *fixture) serve(t *testing.T, o promserver.Options) *promserver.Server {
	t.Helper()

	dir := t.TempDir()
	if len(w.series) > 0 {
		if _, err := promserver.WriteBlocks(t.Context(), dir, w.grid, w.series); err != nil {
			t.Fatal(err)
		}
	}

	o.Dir = dir
	s, err := promserver.Open(o)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})

	return s
}

func (w *fixture) source(t *testing.T, change func(*Config)) *Source {
	t.Helper()

	return newSource(t, w.serve(t, promserver.Options{}).URL(), func(c *Config) {
		c.Now = func() time.Time { return w.grid.End }
		if change != nil {
			change(c)
		}
	})
}

func newSource(t *testing.T, address string, change func(*Config)) *Source {
	t.Helper()

	cfg := DefaultConfig()
	cfg.Address = address
	if change != nil {
		change(&cfg)
	}

	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}

	return s
}

// history is the result of a read, joined by container.
type history map[metrics.ContainerKey]series.Series

// readAll joins the chunks and checks their contract.
func readAll(t *testing.T, s *Source, req metrics.UsageRequest) history {
	t.Helper()

	out := history{}
	for c, err := range s.Capabilities().Usage.Usage(t.Context(), req) {
		if err != nil {
			t.Fatal(err)
		}

		last := c.Series.Time(len(c.Series.Values) - 1)
		if len(c.Series.Values) == 0 || c.Series.Start.Truncate(day) != last.Truncate(day) {
			t.Fatalf("%v: a chunk from %v to %v: want some values of one day", c.Key, c.Series.Start, last)
		}

		whole, ok := out[c.Key]
		if !ok {
			whole = series.Series{Start: c.Series.Start, Step: c.Series.Step}
		}

		if c.Series.Start.Before(whole.End()) {
			t.Fatalf("%v: a chunk at %v after %v: want time order", c.Key, c.Series.Start, whole.End())
		}

		for whole.End().Before(c.Series.Start) {
			whole.Values = append(whole.Values, series.Gap())
		}

		whole.Values = append(whole.Values, c.Series.Values...)
		out[c.Key] = whole
	}

	return out
}

// usageError returns the error of a request, which must be its only element.
func usageError(t *testing.T, s *Source, req metrics.UsageRequest) error {
	t.Helper()

	for c, err := range s.Capabilities().Usage.Usage(t.Context(), req) {
		if err == nil {
			t.Fatalf("Usage(%+v) yielded the chunk %+v, want an error alone", req, c)
		}

		return err
	}

	return nil
}

// byWorkload returns the containers of each workload, sorted by name.
func (h history) byWorkload() map[string][]string {
	out := map[string][]string{}
	for k := range h {
		out[k.Workload.String()] = append(out[k.Workload.String()], k.Pod+"/"+k.Container)
	}

	for _, list := range out {
		slices.Sort(list)
	}

	return out
}

func only(t *testing.T, h history) series.Series {
	t.Helper()

	if len(h) != 1 {
		t.Fatalf("%d containers, want 1: %v", len(h), h.byWorkload())
	}

	for _, s := range h {
		return s
	}

	return series.Series{}
}

func TestCPUIsARateAlignedToDays(t *testing.T) {
	w := newFixture(today.Add(-30*time.Hour), today.Add(6*time.Hour))
	w.cpu("shop", "web-0", "app", constant(0.9))
	s := w.source(t, nil)

	got := only(t, readAll(t, s, metrics.UsageRequest{Resource: metrics.CPU, Start: today.Add(-day), End: today.Add(6 * time.Hour)}))
	if got.Step != 5*time.Minute {
		t.Errorf("step %v for a scrape interval of 1m, want 5m", got.Step)
	}
	if !got.Start.Equal(today.Add(-day)) || len(got.Values) != 30*12 {
		t.Errorf("%d values from %v, want %d from midnight", len(got.Values), got.Start, 30*12)
	}

	for i, v := range got.Values {
		if math.Abs(v-0.9) > 1e-9 {
			t.Fatalf("value %d at %v is %v, want 0.9", i, got.Time(i), v)
		}
	}
}

func TestCPUAcrossACounterReset(t *testing.T) {
	w := newFixture(today.Add(-day), today)
	total := 0.0
	reset := today.Add(-12 * time.Hour)

	w.add(func(at time.Time) float64 {
		total += 0.5 * 60

		if at.Equal(reset) {
			total = 0.5 * 30 // the container restarted half a minute ago
		}

		return total
	}, "__name__", cpuMetric, "namespace", "shop", "pod", "web-0", "container", "app")

	got := only(t, readAll(t, w.source(t, nil), metrics.UsageRequest{Resource: metrics.CPU, Start: today.Add(-day), End: today}))
	for i, v := range got.Values {
		if !(v > 0.3 && v < 0.6) {
			t.Errorf("value at %v is %v, want about 0.5: neither a drop nor a jump", got.Time(i), v)
		}
	}
}

func TestMemoryKeepsThePeak(t *testing.T) {
	w := newFixture(today.Add(-day), today)
	peak := today.Add(-7*time.Hour + 3*time.Minute)
	w.memory("shop", "web-0", "app", func(at time.Time) float64 {
		if at.Equal(peak) {
			return 9e9
		}

		return 1e9
	})

	got := only(t, readAll(t, w.source(t, nil), metrics.UsageRequest{Resource: metrics.Memory, Start: today.Add(-day), End: today}))
	if top := slices.Max(got.Values); top != 9e9 {
		t.Errorf("the peak of one minute reads %v, want 9e9", top)
	}
	if i := slices.Index(got.Values, 9e9); !got.Time(i).Equal(peak.Truncate(5 * time.Minute)) {
		t.Errorf("the peak is at %v, want the stretch that holds %v", got.Time(i), peak)
	}
}

func TestDuplicateSeriesCountOnce(t *testing.T) {
	w := newFixture(today.Add(-day), today)
	for _, replica := range []string{"a", "b"} {
		w.cpu("shop", "web-0", "app", constant(1), "job", "kubelet", "prometheus_replica", replica)
		w.cpu("shop", "web-0", "app", constant(1), "job", "cadvisor", "prometheus_replica", replica)
	}

	w.cpu("shop", "web-0", "POD", constant(7))
	w.add(constant(8), "__name__", cpuMetric, "namespace", "shop", "pod", "web-0", "id", "/kubepods/pod1")

	got := only(t, readAll(t, w.source(t, nil), metrics.UsageRequest{Resource: metrics.CPU, Start: today.Add(-day), End: today}))
	if top := slices.Max(got.Values); math.Abs(top-1) > 1e-9 {
		t.Errorf("use is %v, want 1: scraped four times, and pause container and pod left out", top)
	}
}

func TestCPUSplitByCoreIsSummed(t *testing.T) {
	w := newFixture(today.Add(-6*time.Hour), today)
	for _, core := range []string{"cpu00", "cpu01", "cpu02"} {
		total := 0.0
		w.add(func(time.Time) float64 { total += 30; return total },
			"__name__", cpuMetric, "namespace", "shop", "pod", "web-0", "container", "app", "cpu", core)
	}

	got := only(t, readAll(t, w.source(t, nil), metrics.UsageRequest{Resource: metrics.CPU, Start: today.Add(-6 * time.Hour), End: today}))
	if top := slices.Max(got.Values); math.Abs(top-1.5) > 1e-9 {
		t.Errorf("use is %v, want 3 x 0.5", top)
	}
}

func TestGapsAreExplicit(t *testing.T) {
	w := newFixture(today.Add(-day), today)
	from := today.Add(-12 * time.Hour)
	to := today.Add(-10 * time.Hour)
	w.memory("shop", "web-0", "app", func(at time.Time) float64 {
		if !at.Before(from) && at.Before(to) {
			return math.NaN()
		}

		return 1e6
	})

	s := w.source(t, nil)
	got := only(t, readAll(t, s, metrics.UsageRequest{Resource: metrics.Memory, Start: today.Add(-day), End: today}))
	missing := 0
	for _, v := range got.Values {
		if series.IsGap(v) {
			missing++
		} else if v != 1e6 {
			t.Fatalf("value %v, want 1e6 or a gap", v)
		}
	}

	if missing < 23 || missing > 24 {
		t.Errorf("%d gaps, want the 24 stretches of two hours less what their ends hold", missing)
	}
	if st := s.Stats(); st.Gaps != int64(missing) {
		t.Errorf("%d gaps counted, want %d", st.Gaps, missing)
	}
}

func TestOwnersJoinPodsThatAreGone(t *testing.T) {
	start := today.Add(-2 * day)
	rollout := today.Add(-day)
	end := today
	w := newFixture(start, end)
	always := constant(1)

	// A Deployment whose ReplicaSet was replaced, with names that match no pattern.
	w.cpu("shop", "blue-one", "app", between(start, rollout, 0.1))
	w.owned(podOwnerMetric, "shop", "pod", "blue-one", "ReplicaSet", "web-old", between(start, rollout, 1))
	w.owned(replicaSetOwnerMetric, "shop", "replicaset", "web-old", "Deployment", "web", between(start, rollout, 1))
	w.cpu("shop", "blue-two", "app", between(rollout, end, 0.1))
	w.owned(podOwnerMetric, "shop", "pod", "blue-two", "ReplicaSet", "web-new", between(rollout, end, 1))
	w.owned(replicaSetOwnerMetric, "shop", "replicaset", "web-new", "Deployment", "web", between(rollout, end, 1))

	// A job of a CronJob that ran for ten minutes.
	w.cpu("shop", "nightly-run", "app", between(start.Add(time.Hour), start.Add(70*time.Minute), 0.1))
	w.owned(podOwnerMetric, "shop", "pod", "nightly-run", "Job", "nightly-1", between(start.Add(time.Hour), start.Add(70*time.Minute), 1))
	w.owned(jobOwnerMetric, "shop", "job_name", "nightly-1", "CronJob", "nightly", between(start.Add(time.Hour), start.Add(70*time.Minute), 1))

	// A DeploymentConfig of OpenShift, with another ReplicationController after a roll-out.
	w.cpu("shop", "shop-3-abcde", "app", between(start, rollout, 0.1))
	w.owned(podOwnerMetric, "shop", "pod", "shop-3-abcde", "ReplicationController", "shop-3", between(start, rollout, 1))
	w.owned(replicationControllerOwnerMetric, "shop", "replicationcontroller", "shop-3", "DeploymentConfig", "shop", between(start, rollout, 1))
	w.cpu("shop", "shop-4-fghij", "app", between(rollout, end, 0.1))
	w.owned(podOwnerMetric, "shop", "pod", "shop-4-fghij", "ReplicationController", "shop-4", between(rollout, end, 1))
	w.owned(replicationControllerOwnerMetric, "shop", "replicationcontroller", "shop-4", "DeploymentConfig", "shop", between(rollout, end, 1))

	// A pod of another workload with the prefix of the Deployment.
	w.cpu("shop", "web-foo-x8k2p", "app", always)
	w.owned(podOwnerMetric, "shop", "pod", "web-foo-x8k2p", "DaemonSet", "web-foo", always)

	// The owner of this pod is not exported.
	w.cpu("shop", "api-5d4f8c7b9d-x8k2p", "app", always)
	w.add(always, "__name__", podInfoMetric, "namespace", "shop", "pod", "web-foo-x8k2p", "node", "node-7")
	w.add(always, "__name__", podOwnerMetric, "namespace", "shop", "pod", "api-5d4f8c7b9d-zzzzz", "owner_kind", "X", "owner_name", "x", "node", "of the exporter")

	h := readAll(t, w.source(t, nil), metrics.UsageRequest{Resource: metrics.CPU, Start: start, End: end})
	want := map[string][]string{
		"shop/Deployment/web":    {"blue-one/app", "blue-two/app"},
		"shop/CronJob/nightly":   {"nightly-run/app"},
		"shop/DaemonSet/web-foo": {"web-foo-x8k2p/app"},

		"shop/DeploymentConfig/shop": {"shop-3-abcde/app", "shop-4-fghij/app"},
		"shop/Deployment/api":        {"api-5d4f8c7b9d-x8k2p/app"},
	}

	if diff := cmp.Diff(want, h.byWorkload()); diff != "" {
		t.Errorf("containers of workloads differ (-want +got):\n%s", diff)
	}

	key := metrics.ContainerKey{
		Workload: workload.Ref{Namespace: "shop", APIVersion: "apps/v1", Kind: "DaemonSet", Name: "web-foo"},
		Pod:      "web-foo-x8k2p", Container: "app", Node: "node-7",
	}

	if _, ok := h[key]; !ok {
		t.Errorf("Usage lacks the key %+v, want it among %v", key, h.byWorkload())
	}
}

// many adds namespaces with containers of different sizes, some of them short-lived.
func many() *fixture {
	w := newFixture(today.Add(-2*day), today.Add(5*time.Hour))
	for ns := range 7 {
		for pod := range 3 * (ns + 1) {
			from := w.grid.Start.Add(time.Duration(pod) * 97 * time.Minute)
			to := w.grid.End.Add(-time.Duration(ns) * 61 * time.Minute)
			name := fmt.Sprintf("web-5d4f8c7b9d-x8k2%c", suffixLetters[pod])
			w.cpu(fmt.Sprintf("team-%d", ns), name, "app", func(at time.Time) float64 {
				return between(from, to, 0.1+math.Abs(math.Sin(float64(at.Unix()/600+int64(pod)))))(at)
			})
		}
	}

	return w
}

func TestShardingChangesNothing(t *testing.T) {
	w := many()
	address := w.serve(t, promserver.Options{}).URL()
	req := metrics.UsageRequest{Resource: metrics.CPU, Start: w.grid.Start.Add(17 * time.Minute), End: w.grid.End}

	read := func(change func(*Config)) (history, metrics.Stats) {
		s := newSource(t, address, func(c *Config) {
			c.Now = func() time.Time { return w.grid.End }
			change(c)
		})

		return readAll(t, s, req), s.Stats()
	}

	whole, base := read(func(*Config) {})
	if len(whole) != 84 {
		t.Fatalf("%d containers, want 84", len(whole))
	}

	for name, change := range map[string]func(*Config){
		"few samples":            func(c *Config) { c.MaxSamples = 1000 },
		"few points":             func(c *Config) { c.MaxPoints = 50 },
		"one at a time":          func(c *Config) { c.Concurrency = 1; c.MaxSamples = 3000 },
		"a hundred at a time":    func(c *Config) { c.Concurrency = 100; c.MaxSamples = 1000 },
		"both limits, odd parts": func(c *Config) { c.MaxPoints = 7; c.MaxSamples = 2500 },
	} {
		t.Run(name, func(t *testing.T) {
			got, stats := read(change)
			if diff := cmp.Diff(whole, got, cmpopts.EquateNaNs()); diff != "" {
				t.Errorf("%s: Usage differs from the unsharded reading (-want +got):\n%s", name, diff)
			}
			if stats.Queries <= base.Queries && name != "one at a time" {
				t.Errorf("%d queries, want more than the %d of the unsharded reading", stats.Queries, base.Queries)
			}
			if stats.Invalid+stats.Retries+stats.Splits != 0 {
				t.Errorf("%+v: want nothing bad, retried or split", stats)
			}
		})
	}
}

func TestServerLimitsSplitQueries(t *testing.T) {
	w := many()
	req := metrics.UsageRequest{Resource: metrics.CPU, Start: w.grid.Start, End: w.grid.End}
	want := readAll(t, w.source(t, nil), req)
	small := newSource(t, w.serve(t, promserver.Options{MaxSamples: 2000}).URL(), func(c *Config) {
		c.Now = func() time.Time { return w.grid.End }
	})

	got := readAll(t, small, req)
	if diff := cmp.Diff(want, got, cmpopts.EquateNaNs()); diff != "" {
		t.Errorf("Usage with a small server differs (-want +got):\n%s", diff)
	}
	if st := small.Stats(); st.Splits == 0 || st.Retries != 0 {
		t.Errorf("%+v: want splits and no retries", st)
	}
}

func TestServerLimitsOnSeriesSplitByPods(t *testing.T) {
	w := newFixture(today.Add(-3*time.Hour), today)
	for i := range 12 {
		w.cpu("shop", fmt.Sprintf("web-5d4f8c7b9d-x8k2%c", suffixLetters[i]), "app", constant(1))
		w.cpu("shop", fmt.Sprintf("db-%d", i), "app", constant(2))
	}

	req := metrics.UsageRequest{Resource: metrics.CPU, Start: today.Add(-2 * time.Hour), End: today}
	want := readAll(t, w.source(t, nil), req)

	// A server with a low limit on series: any usage query that does not select at most two name endings is too
	// large.
	picky := w.serve(t, promserver.Options{Middleware: func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			_, endings, _ := strings.Cut(r.FormValue("query"), `pod=~".*[`)
			endings, _, _ = strings.Cut(endings, "]")
			if r.URL.Path == rangePath && (endings == "" || len(endings) > 2) {
				answerWith(422, "application/json", `{"status":"error","errorType":"execution","error":"the query hit the max number of series limit"}`)(rw, r)
				return
			}

			h.ServeHTTP(rw, r)
		})
	}})

	s := newSource(t, picky.URL(), func(c *Config) { c.Now = func() time.Time { return today } })
	if diff := cmp.Diff(want, readAll(t, s, req), cmpopts.EquateNaNs()); diff != "" || len(want) != 24 {
		t.Errorf("Usage of %d containers, want 24 that do not differ (-want +got):\n%s", len(want), diff)
	}
}

func TestQueriesGrowWithDaysNotWorkloads(t *testing.T) {
	w := many()
	w.owned(podOwnerMetric, "team-0", "pod", "p", "ReplicaSet", "r", constant(1))
	w.owned(replicaSetOwnerMetric, "team-0", "replicaset", "r", "Deployment", "d", constant(1))
	w.owned(jobOwnerMetric, "team-0", "job_name", "j", "CronJob", "c", constant(1))
	w.add(constant(1), "__name__", podInfoMetric, "namespace", "team-0", "pod", "p", "node", "n")
	s := w.source(t, nil)
	readAll(t, s, metrics.UsageRequest{Resource: metrics.CPU, Start: w.grid.Start, End: w.grid.End})

	// Three days: usage and four queries for owners each; three more for the scrape interval, the namespaces and the
	// count, and three that look for several clusters.
	if got := s.Stats().Queries; got != 3*5+8 {
		t.Errorf("%d queries for 84 containers on 3 days, want 23", got)
	}
}

func TestNamespacesWithOddNames(t *testing.T) {
	w := newFixture(today.Add(-6*time.Hour), today)
	odd := []string{`a"b`, `c{d}`, `e\f`, `g|h`, `i.*`, "plain", "newline\nin", "Grüße", `k=~"v"`}
	for _, ns := range odd {
		w.cpu(ns, `pod-"0"{}`, `app\`, constant(0.25), "cluster", `eu="1"`)
		w.cpu(ns, `pod-"0"{}`, `app\`, constant(4), "cluster", `us`)
	}

	s := w.source(t, func(c *Config) { c.Matchers = []Matcher{{Label: "cluster", Op: "=", Value: `eu="1"`}} })
	for _, req := range [][]string{nil, odd} {
		h := readAll(t, s, metrics.UsageRequest{Resource: metrics.CPU, Start: today.Add(-5 * time.Hour), End: today, Namespaces: req})
		var got []string
		for k, v := range h {
			got = append(got, k.Workload.Namespace)
			if math.Abs(slices.Max(v.Values)-0.25) > 1e-9 {
				t.Errorf("%q reads %v, want 0.25: the extra label keeps other clusters out", k.Workload.Namespace, slices.Max(v.Values))
			}
		}

		if diff := cmp.Diff(odd, got, cmpopts.SortSlices(strings.Compare)); diff != "" {
			t.Errorf("namespaces differ (-want +got):\n%s", diff)
		}
	}
}

func TestManyNamespaces(t *testing.T) {
	w := newFixture(today.Add(-time.Hour), today)
	var names []string
	for i := range 300 {
		ns := fmt.Sprintf("a-team-with-a-rather-long-name-indeed-%03d", i)
		names = append(names, ns)
		w.cpu(ns, "odd", "app", constant(1))
		w.owned(podOwnerMetric, ns, "pod", "odd", "StatefulSet", "web", constant(1))
	}

	// The server rejects queries for more than fifty namespaces, and for all at once.
	picky := func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			text := r.FormValue("query") + r.FormValue("match[]")
			_, list, ok := strings.Cut(text, `namespace=~"`)
			if (strings.Contains(text, "by (namespace") || r.URL.Path == seriesPath) && (!ok || strings.Count(list, "|") > 50) {
				answerWith(422, "application/json", `{"status":"error","errorType":"execution","error":"exceeded series limit"}`)(rw, r)
				return
			}

			h.ServeHTTP(rw, r)
		})
	}

	for name, o := range map[string]promserver.Options{"any": {}, "picky": {Middleware: picky}} {
		address := w.serve(t, o).URL()
		for _, asked := range [][]string{nil, names} {
			s := newSource(t, address, func(c *Config) { c.Now = func() time.Time { return today } })
			h := readAll(t, s, metrics.UsageRequest{Resource: metrics.CPU, Start: today.Add(-time.Hour), End: today, Namespaces: asked})
			owned := 0
			for k := range h {
				if k.Workload.Kind == "StatefulSet" {
					owned++
				}
			}

			if len(h) != len(names) || owned != len(names) {
				t.Errorf("%s server, %d namespaces asked for: %d containers, %d with their owner, want %d", name, len(asked), len(h), owned, len(names))
			}
			if splits := s.Stats().Splits; (splits > 0) != (name == "picky") {
				t.Errorf("%s server: %d splits, want some with the picky server alone", name, splits)
			}
		}
	}
}

func TestNothingIsNoError(t *testing.T) {
	w := newFixture(today.Add(-2*time.Hour), today)
	s := w.source(t, nil)
	if h := readAll(t, s, metrics.UsageRequest{Resource: metrics.CPU, Start: today.Add(-day), End: today}); len(h) != 0 {
		t.Errorf("Usage of an empty server: %d containers, want none", len(h))
	}
	if h := readAll(t, s, metrics.UsageRequest{Resource: metrics.CPU, Start: today.Add(-day), End: today, Namespaces: []string{"gone"}}); len(h) != 0 {
		t.Errorf("Usage of a missing namespace: %d containers, want none", len(h))
	}
}

func TestTheFutureIsLeftOut(t *testing.T) {
	w := newFixture(today.Add(-6*time.Hour), today.Add(6*time.Hour))
	w.cpu("shop", "web-0", "app", constant(1))
	s := w.source(t, func(c *Config) { c.Now = func() time.Time { return today.Add(7 * time.Minute) } })

	got := only(t, readAll(t, s, metrics.UsageRequest{Resource: metrics.CPU, Start: today.Add(-day), End: today.Add(day)}))
	if want := today.Add(5 * time.Minute); !got.End().Equal(want) {
		t.Errorf("history ends at %v, want at the last whole step before now, %v", got.End(), want)
	}
}

func TestStepIsHonored(t *testing.T) {
	w := newFixture(today.Add(-6*time.Hour), today)
	w.cpu("shop", "web-0", "app", constant(1))

	s := w.source(t, nil)
	for _, step := range []time.Duration{time.Minute, 15 * time.Minute, time.Hour} {
		got := only(t, readAll(t, s, metrics.UsageRequest{Resource: metrics.CPU, Start: today.Add(-5 * time.Hour), End: today, Step: step}))
		if got.Step != step || len(got.Values) != int(5*time.Hour/step) {
			t.Errorf("%d values every %v, want one every %v", len(got.Values), got.Step, step)
		}
	}

	for _, step := range []time.Duration{-time.Minute, 7 * time.Minute, 1500 * time.Millisecond, 48 * time.Hour} {
		err := usageError(t, s, metrics.UsageRequest{Resource: metrics.CPU, Start: today.Add(-day), End: today, Step: step})
		if err == nil || !strings.Contains(err.Error(), step.String()) {
			t.Errorf("step %v: error %v, want one that names it", step, err)
		}
	}
}
