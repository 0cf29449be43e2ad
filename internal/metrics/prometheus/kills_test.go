// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"cmp"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"crane.io/crane/internal/metrics"
	"crane.io/crane/internal/testbed/promserver"
)

// from returns a value from a time on, and another one before it; NaN is no sample.
func from(at time.Time, before, after float64) func(time.Time) float64 {
	return func(t time.Time) float64 {
		if t.Before(at) {
			return before
		}

		return after
	}
}

// ended adds a series with the reason OOMKilled of a container.
func (w *fixture) ended(metric, pod, container string, value func(time.Time) float64, more ...string) {
	w.add(value, append([]string{"__name__", metric, "namespace", "shop", "pod", pod, "container", container, "reason", "OOMKilled"}, more...)...)
}

// restarts adds the number of restarts of a container.
func (w *fixture) restarts(metric, pod, container string, value func(time.Time) float64, more ...string) {
	w.add(value, append([]string{"__name__", metric, "namespace", "shop", "pod", pod, "container", container}, more...)...)
}

// oomEvents adds the counter of the kernel of a run of a container.
func (w *fixture) oomEvents(pod, container, id string, value func(time.Time) float64, more ...string) {
	w.add(value, append([]string{"__name__", oomEventsMetric, "namespace", "shop", "pod", pod, "container", container, "id", id}, more...)...)
}

// TestOOMKills_TooLargeForOneNamespace checks that only that namespace has unknown kills, with the reason.
func TestOOMKills_TooLargeForOneNamespace(t *testing.T) {
	start := today.Add(-6 * time.Hour)
	w := newFixture(start.Add(-2*time.Hour), today)
	for _, namespace := range []string{"shop", "vast"} {
		w.memory(namespace, "web-0", "app", constant(1e8))
		w.add(from(start.Add(time.Hour), math.NaN(), 1), "__name__", oomReasonMetric, "namespace", namespace, "pod", "web-0", "container", "app", "reason", "OOMKilled")
	}

	server := w.serve(t, promserver.Options{Middleware: func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			query := r.FormValue("query")
			all := !strings.Contains(query, `namespace=`)
			if strings.Contains(query, "OOMKilled") && (all || strings.Contains(query, "vast")) {
				answerWith(422, "application/json", `{"status":"error","errorType":"execution","error":"query processing would load too many samples into memory"}`)(rw, r)
				return
			}

			h.ServeHTTP(rw, r)
		})
	}})

	s := newSource(t, server.URL(), func(c *Config) { c.Now = func() time.Time { return today } })
	for _, namespaces := range [][]string{nil, {"shop", "vast"}, {"vast"}} {
		got := map[string]string{}
		for k, err := range s.Capabilities().OOM.OOMKills(t.Context(), metrics.Window{Start: start, End: today}, namespaces) {
			if err != nil {
				t.Fatalf("OOMKills(%v): %v, want no error", namespaces, err)
			}

			got[k.Key.Workload.Namespace] = k.Unknown
		}

		_, other := got["shop"]
		if got["shop"] != "" || other != (len(namespaces) != 1) || !strings.Contains(got["vast"], "too many samples") {
			t.Errorf("OOMKills(%v) has kills or reasons %v, want a kill in shop and the reason why those in vast are unknown", namespaces, got)
		}
	}
}

// TestOOMKills_CountersTooLargeForAll checks that the counters of all namespaces are read namespace by namespace where the server rejects them
// at once, and that a namespace that is still too large has the reason.
func TestOOMKills_CountersTooLargeForAll(t *testing.T) {
	start := today.Add(-6 * time.Hour)
	w := newFixture(start.Add(-2*time.Hour), today)
	for _, namespace := range []string{"shop", "vast"} {
		w.memory(namespace, "web-0", "app", constant(1e8))
		w.add(from(start.Add(2*time.Hour), 0, 1), "__name__", oomEventsMetric, "namespace", namespace, "pod", "web-0", "container", "app", "id", "/kubepods/1")
	}

	server := w.serve(t, promserver.Options{Middleware: func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			query := r.FormValue("query")
			one := strings.Contains(query, "shop") && !strings.Contains(query, "vast")
			if strings.Contains(query, oomEventsMetric) && !one {
				answerWith(422, "application/json", `{"status":"error","errorType":"execution","error":"query processing would load too many samples into memory"}`)(rw, r)
				return
			}

			h.ServeHTTP(rw, r)
		})
	}})

	s := newSource(t, server.URL(), func(c *Config) { c.Now = func() time.Time { return today } })
	found := map[string]string{}
	for k, err := range s.Capabilities().OOM.OOMKills(t.Context(), metrics.Window{Start: start, End: today}, nil) {
		if err != nil {
			t.Fatalf("OOMKills of all namespaces: %v, want no error", err)
		}

		found[k.Key.Workload.Namespace] = cmp.Or(k.Unknown, "killed in "+k.Key.Container)
	}

	if found["shop"] != "killed in app" || !strings.Contains(found["vast"], "too many samples") {
		t.Errorf("OOMKills of all namespaces = %v, want the kill in shop and the reason why those in vast are unknown", found)
	}
}

// TestOOMKills_EachKindOfContainer lists kills in the series that kube-state-metrics exports for them. Each time is the start of the hour.
func TestOOMKills_EachKindOfContainer(t *testing.T) {
	start := today.Add(-6 * time.Hour)
	at := start.Add(2*time.Hour + 5*time.Minute)
	nan := math.NaN()
	limit := func(w *fixture, metric, pod, container string, value func(time.Time) float64) {
		w.add(value, "__name__", metric, "namespace", "shop", "pod", pod, "container", container, "resource", "memory", "unit", "byte")
	}

	for name, c := range map[string]struct {
		series func(w *fixture)
		now    time.Time
		want   []string
	}{
		"an app container that restarts": {func(w *fixture) {
			w.ended(oomReasonMetric, "web-0", "app", from(at, nan, 1))
			w.restarts(restartsMetric, "web-0", "app", from(at, 0, 1))
			limit(w, limitsMetric, "web-0", "app", constant(1<<30))
		}, today, []string{"web-0/app 02:00 1073741824"}},
		"the limit is raised after the kill": {func(w *fixture) {
			w.ended(oomReasonMetric, "web-0", "app", from(at, nan, 1))
			w.restarts(restartsMetric, "web-0", "app", from(at, 0, 1))
			limit(w, limitsMetric, "web-0", "app", from(at.Add(2*time.Hour), 1<<30, 4<<30))
		}, today, []string{"web-0/app 02:00 1073741824"}},
		"no limit, while others have one": {func(w *fixture) {
			w.ended(oomReasonMetric, "web-0", "app", from(at, nan, 1))
			w.restarts(restartsMetric, "web-0", "app", from(at, 0, 1))
			limit(w, limitsMetric, "web-0", "proxy", constant(1<<20))
		}, today, []string{"web-0/app 02:00 without a limit"}},
		"a sidecar, killed each hour": {func(w *fixture) {
			w.ended(initOOMReasonMetric, "web-0", "proxy", from(at, nan, 1))
			w.restarts(initRestartsMetric, "web-0", "proxy", func(t time.Time) float64 { return max(0, math.Floor(t.Sub(at).Hours()+1)) })
			limit(w, initLimitsMetric, "web-0", "proxy", constant(128<<20))
		}, today, []string{"web-0/proxy 02:00 134217728", "web-0/proxy 03:00 134217728", "web-0/proxy 04:00 134217728", "web-0/proxy 05:00 134217728"}},
		"an init container that is restarted": {func(w *fixture) {
			w.ended(initEndReasonMetric, "web-0", "setup", between(at, at.Add(time.Minute), 1))
			w.ended(initOOMReasonMetric, "web-0", "setup", from(at.Add(time.Minute), nan, 1))
			w.restarts(initRestartsMetric, "web-0", "setup", from(at.Add(time.Minute), 0, 1))
		}, today, []string{"web-0/setup 02:00 0"}},
		"a job that is never restarted": {func(w *fixture) {
			w.ended(endReasonMetric, "nightly-28412345-x8k2p", "job", from(at, nan, 1))
			w.restarts(restartsMetric, "nightly-28412345-x8k2p", "job", constant(0))
		}, today, []string{"nightly-28412345-x8k2p/job 02:00 0"}},
		"a job without a series of restarts": {func(w *fixture) {
			w.ended(endReasonMetric, "nightly-28412345-x8k2p", "job", from(at, nan, 1))
		}, today, []string{"nightly-28412345-x8k2p/job 02:00 0"}},
		"a pod that is replaced after 20 minutes": {func(w *fixture) {
			gone := at.Add(20 * time.Minute)
			w.ended(oomReasonMetric, "web-5d4f8c7b9d-x8k2p", "app", between(at, gone, 1))
			w.restarts(restartsMetric, "web-5d4f8c7b9d-x8k2p", "app", between(at.Add(-time.Hour), gone, 1))
			limit(w, limitsMetric, "web-5d4f8c7b9d-x8k2p", "app", between(at.Add(-time.Hour), gone, 1<<30))
		}, today, []string{"web-5d4f8c7b9d-x8k2p/app 02:00 1073741824"}},
		"a pod that is seen at one scrape": {func(w *fixture) {
			w.ended(endReasonMetric, "web-5d4f8c7b9d-x8k2p", "app", between(at, at.Add(time.Minute), 1))
		}, today, []string{"web-5d4f8c7b9d-x8k2p/app 02:00 0"}},
		"a crash loop from the first second": {func(w *fixture) {
			w.ended(oomReasonMetric, "web-0", "app", from(at, nan, 1))
			w.restarts(restartsMetric, "web-0", "app", from(at, nan, 1))
		}, today, []string{"web-0/app 02:00 0"}},
		"in the hour that is not over": {func(w *fixture) {
			w.ended(oomReasonMetric, "web-0", "app", from(today.Add(-40*time.Minute), nan, 1))
			w.restarts(restartsMetric, "web-0", "app", from(today.Add(-40*time.Minute), 0, 1))
		}, today.Add(-time.Minute), []string{"web-0/app 05:00 0"}},
		"a pod of the same name, also killed once": {func(w *fixture) {
			second := at.Add(2 * time.Hour)
			w.ended(oomReasonMetric, "web-0", "app", between(at, second, 1), "uid", "a")
			w.restarts(restartsMetric, "web-0", "app", between(at, second, 1), "uid", "a")
			w.ended(oomReasonMetric, "web-0", "app", from(second, nan, 1), "uid", "b")
			w.restarts(restartsMetric, "web-0", "app", from(second, nan, 1), "uid", "b")
		}, today, []string{"web-0/app 02:00 0", "web-0/app 04:00 0"}},
		"before the window": {func(w *fixture) {
			w.ended(oomReasonMetric, "web-0", "app", constant(1))
			w.restarts(restartsMetric, "web-0", "app", constant(3))
		}, today, nil},
		"kube-state-metrics that was away for two hours, and starts at 0": {func(w *fixture) {
			away := func(v float64) func(time.Time) float64 {
				return func(t time.Time) float64 {
					switch since := t.Sub(at); {
					case since < 0:
						return nan
					case since >= time.Hour && since < 3*time.Hour:
						return nan
					case since >= 3*time.Hour && since < 3*time.Hour+3*time.Minute:
						return 0
					}

					return v
				}
			}
			w.ended(oomReasonMetric, "web-0", "app", away(1), "uid", "a")
			w.restarts(restartsMetric, "web-0", "app", away(5), "uid", "a")
		}, today, []string{"web-0/app 02:00 0"}},
		"a process in a container that goes on": {func(w *fixture) {
			w.oomEvents("web-0", "app", "/a", from(at, 0, 1))
			limit(w, limitsMetric, "web-0", "app", constant(1<<30))
		}, today, []string{"web-0/app 02:00 1073741824"}},
		"limits of another namespace alone": {func(w *fixture) {
			w.ended(oomReasonMetric, "web-0", "app", from(at, nan, 1))
			w.restarts(restartsMetric, "web-0", "app", from(at, 0, 1))
			w.add(constant(1<<30), "__name__", limitsMetric, "namespace", "other", "pod", "a", "container", "a", "resource", "memory")
		}, today, []string{"web-0/app 02:00 0"}},
		"a process, and limits of another namespace alone": {func(w *fixture) {
			w.oomEvents("web-0", "app", "/a", from(at, 0, 1))
			w.add(constant(1<<30), "__name__", limitsMetric, "namespace", "other", "pod", "a", "container", "a", "resource", "memory")
		}, today, []string{"web-0/app 02:00 0"}},
		"processes in two hours": {func(w *fixture) {
			w.oomEvents("web-0", "app", "/a", func(t time.Time) float64 {
				return from(at, 0, 3)(t) + from(at.Add(2*time.Hour), 0, 1)(t)
			})
			limit(w, limitsMetric, "web-0", "proxy", constant(1<<20))
		}, today, []string{"web-0/app 02:00 without a limit", "web-0/app 04:00 without a limit"}},
		"a run that is counted as it ends": {func(w *fixture) {
			w.oomEvents("web-0", "app", "/a", between(start, at, 0))
			w.oomEvents("web-0", "app", "/a", between(at, at.Add(time.Minute), 1), "job", "other")
			w.oomEvents("web-0", "app", "/b", from(at.Add(time.Minute), nan, 0))
		}, today, []string{"web-0/app 02:00 0"}},
		"both sources of one kill": {func(w *fixture) {
			w.oomEvents("web-0", "app", "/a", from(at, 0, 1))
			w.ended(oomReasonMetric, "web-0", "app", from(at, nan, 1))
			w.restarts(restartsMetric, "web-0", "app", from(at, 0, 1))
			limit(w, limitsMetric, "web-0", "app", constant(1<<30))
		}, today, []string{"web-0/app 02:00 1073741824"}},
		"a process killed before the window": {func(w *fixture) { w.oomEvents("web-0", "app", "/a", constant(4)) }, today, nil},
		"no process":                         {func(w *fixture) { w.oomEvents("web-0", "app", "/a", constant(0)) }, today, nil},
		"a count that starts again": {func(w *fixture) {
			w.oomEvents("web-0", "app", "/a", from(at, 5, 1))
		}, today, nil},
		"a process killed in the hour that is not over": {func(w *fixture) {
			w.oomEvents("web-0", "app", "/a", from(today.Add(-10*time.Minute), 0, 1))
		}, today.Add(-time.Minute), []string{"web-0/app 04:59 0"}},
		"restarted for other reasons": {func(w *fixture) {
			w.restarts(restartsMetric, "web-0", "app", func(t time.Time) float64 { return t.Sub(start).Hours() })
			w.add(constant(1), "__name__", oomReasonMetric, "namespace", "shop", "pod", "web-0", "container", "app", "reason", "Error")
		}, today, nil},
	} {
		w := newFixture(start.Add(-2*time.Hour), today)
		w.memory("shop", "web-0", "app", constant(1e8))
		c.series(w)
		for _, namespaces := range [][]string{nil, {"shop"}} {
			s := w.source(t, func(cfg *Config) { cfg.Now = func() time.Time { return c.now } })

			var got []string
			for k, err := range s.Capabilities().OOM.OOMKills(t.Context(), metrics.Window{Start: start, End: today}, namespaces) {
				if err != nil {
					t.Fatal(err)
				}

				memory := fmt.Sprint(int64(k.Memory))
				if k.NoLimit {
					memory = "without a limit"
				}
				got = append(got, fmt.Sprintf("%s/%s %s %s", k.Key.Pod, k.Key.Container, k.Time.Add(-start.Sub(today.Add(-24*time.Hour))).Format("15:04"), memory))
			}

			slices.SortFunc(got, cmp.Compare)
			if diff := gocmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s: OOMKills(%v) differ (-want +got):\n%s", name, namespaces, diff)
			}
		}
	}
}
