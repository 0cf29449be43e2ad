// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"io"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/internal/testbed/promserver"
)

func TestProbe(t *testing.T) {
	start := today.Add(-50*time.Hour - 7*time.Minute)
	w := newFixture(start, today)
	w.cpu("shop", "web-0", "app", constant(1))
	w.cpu("shop", "web-1", "app", constant(1))
	w.memory("shop", "web-0", "app", constant(1e9))
	w.owned(podOwnerMetric, "shop", "pod", "web-0", "StatefulSet", "web", constant(1))

	// Metrics of each group of identifying labels: pods with containers, pods with nodes, nodes, and none.
	w.add(constant(1), "__name__", "kube_pod_info", "namespace", "shop", "pod", "web-0", "node", "n")
	w.add(constant(1), "__name__", "kube_node_info", "node", "n")
	w.add(constant(1), "__name__", "node_memory_MemTotal_bytes", "instance", "n:9100")

	s := w.source(t, nil)
	r, err := s.Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	if r.ScrapeInterval != time.Minute {
		t.Errorf("scrape interval %v, want 1m", r.ScrapeInterval)
	}
	if off := r.Oldest.Sub(start); off < 0 || off > 10*time.Minute || r.HistoryTruncated {
		t.Errorf("oldest sample at %v, want shortly after %v", r.Oldest, start)
	}
	if !strings.Contains(r.Server, "Prometheus") {
		t.Errorf("server %q, want one with Prometheus", r.Server)
	}

	present := map[string]int{}
	for _, c := range r.Metrics {
		if c.Impact == "" {
			t.Errorf("metric %s has no impact, want what its absence costs", c.Metric)
		}
		if c.Series > 0 {
			present[c.Metric] = c.Series
		}
	}

	if diff := cmp.Diff(map[string]int{
		cpuMetric: 2, memoryMetric: 1, podOwnerMetric: 1,
		"kube_pod_info": 1, "kube_node_info": 1, "node_memory_MemTotal_bytes": 1,
	}, present); diff != "" {
		t.Errorf("series of the present metrics differ (-want +got):\n%s", diff)
	}
	if got := len(r.Missing()); got != len(r.Metrics)-6 {
		t.Errorf("%d of %d metrics missing, want all but 6", got, len(r.Metrics))
	}
	if q := s.Stats().Queries; q > 8 {
		t.Errorf("%d queries, want a handful however many metrics there are", q)
	}
}

func TestProbeOfAnEmptyServer(t *testing.T) {
	w := newFixture(today.Add(-time.Hour), today)
	for want, matchers := range map[string][]Matcher{
		"is this the Prometheus that scrapes the cluster": nil,
		`with {cluster="eu"}: check the extra labels`:     {{Label: "cluster", Op: "=", Value: "eu"}},
	} {
		r, err := w.source(t, func(c *Config) { c.Matchers = matchers }).Probe(t.Context())
		if err != nil {
			t.Fatal(err)
		}

		if r.ScrapeInterval != 0 || !r.Oldest.IsZero() || len(r.Missing()) != len(r.Metrics) || !strings.Contains(strings.Join(r.Warnings, "\n"), want) {
			t.Errorf("%+v: want nothing, and a warning with %q", r, want)
		}
	}
}

func TestAServerThatStoppedScraping(t *testing.T) {
	w := newFixture(today.Add(-20*time.Hour), today.Add(-5*time.Hour))
	w.cpu("shop", "web-0", "app", constant(1))
	w.memory("shop", "web-0", "app", constant(1e9))
	w.add(constant(1), "__name__", containerInfoMetric, "namespace", "shop", "pod", "web-0", "container", "app")
	w.add(constant(2), "__name__", requestsMetric, "namespace", "shop", "pod", "web-0", "container", "app", "resource", "cpu")

	s := w.source(t, func(c *Config) { c.Now = func() time.Time { return today } })
	r, err := s.Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	if len(r.Missing()) != len(r.Metrics)-4 || r.ScrapeInterval != time.Minute {
		t.Errorf("%+v: want what was there five hours ago", r)
	}
	if age := today.Sub(r.Newest); age < 4*time.Hour+50*time.Minute || age > 5*time.Hour+time.Minute {
		t.Errorf("newest sample %v ago, want about 5h", age)
	}
	if all := strings.Join(r.Warnings, "\n"); !strings.Contains(all, "old: is the cluster still scraped") {
		t.Errorf("warnings %q, want one about old samples", all)
	}

	found, err := s.Inventory(t.Context(), nil)
	if err != nil || len(found) != 1 || found[0].Containers[0].Requests.CPU != 2000 {
		t.Errorf("inventory %+v, %v, want what there was", found, err)
	}
}

func TestProbeSeesRenamedLabels(t *testing.T) {
	w := newFixture(today.Add(-time.Hour), today)
	w.add(constant(1), "__name__", podOwnerMetric, "namespace", "monitoring", "pod", "ksm", "exported_namespace", "shop", "exported_pod", "web-0")

	r, err := w.source(t, nil).Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	if !strings.Contains(strings.Join(r.Warnings, "\n"), "honorLabels: true") {
		t.Errorf("warnings %q, want one about honorLabels", r.Warnings)
	}
}

func TestProbeSeesSkewAndFlavor(t *testing.T) {
	address, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Date", today.Add(10*time.Minute).Format(http.TimeFormat))
		w.Header().Set("X-Server-Hostname", "vmselect-0")

		if r.URL.Path == buildInfoPath {
			w.WriteHeader(http.StatusNotFound)
			return
		}

		io.WriteString(w, `{"status":"success","isPartial":true,"warnings":["one node is away"],"data":{"result":[]}}`)
	})

	s := newSource(t, address, func(c *Config) { c.Now = func() time.Time { return today } })
	r, err := s.Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	if r.Server != "VictoriaMetrics" || r.ClockSkew != 10*time.Minute {
		t.Errorf("server %q, skew %v, want VictoriaMetrics and 10m", r.Server, r.ClockSkew)
	}

	all := strings.Join(r.Warnings, "\n")
	for _, want := range []string{"differs from ours by 10m", "one node is away"} {
		if !strings.Contains(all, want) {
			t.Errorf("warnings:\n%s\nwant %q in them", all, want)
		}
	}
}

func TestScrapeIntervals(t *testing.T) {
	for _, c := range []struct {
		name  string
		every time.Duration
		want  time.Duration
		from  time.Time
		ok    bool
	}{
		{"a minute", time.Minute, time.Minute, today.Add(-day), true},
		{"three minutes", 3 * time.Minute, 3 * time.Minute, today.Add(-day), true},
		{"seven minutes of history", time.Minute, time.Minute, today.Add(-7 * time.Minute), true},
		{"nothing", time.Minute, defaultInterval, today, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newFixture(today.Add(-day), today)
			w.memory("shop", "web-0", "app", func(at time.Time) float64 {
				if at.Before(c.from) || at.Truncate(c.every) != at {
					return math.NaN()
				}

				return 1
			})

			s := w.source(t, nil)
			for range 2 {
				got, ok, err := s.intervals.scrapeInterval(t.Context(), memoryMetric, today)
				if err != nil || ok != c.ok || got.usual != c.want {
					t.Errorf("interval %v, %v, %v, want %v", got, ok, err, c.want)
				}
			}

			if c.ok && s.Stats().Queries != 3 {
				t.Errorf("%d queries, want 3 and then what was found", s.Stats().Queries)
			}
		})
	}
}

func TestInventory(t *testing.T) {
	w := newFixture(today.Add(-time.Hour), today)
	always := constant(1)
	container := func(metric, pod, name string, more ...string) {
		w.add(always, append([]string{"__name__", metric, "namespace", "shop", "pod", pod, "container", name}, more...)...)
	}
	amount := func(metric, pod, name, resource string, v float64) {
		w.add(constant(v), "__name__", metric, "namespace", "shop", "pod", pod, "container", name, "resource", resource, "unit", "x", "job", "a")
		w.add(constant(v), "__name__", metric, "namespace", "shop", "pod", pod, "container", name, "resource", resource, "unit", "x", "job", "b")
	}

	for pod, rs := range map[string]string{"web-old-1": "web-old", "web-new-1": "web-new", "web-new-2": "web-new", "web-done": "web-new"} {
		w.owned(podOwnerMetric, "shop", "pod", pod, "ReplicaSet", rs, always)
		container(containerInfoMetric, pod, "app")
		container(containerInfoMetric, pod, "bare")
		container(initContainerInfoMetric, pod, "setup")
		container(initContainerInfoMetric, pod, "mesh", "restart_policy", "Always")
		amount(requestsMetric, pod, "app", "nvidia_com_gpu", 1)
		amount(initRequestsMetric, pod, "mesh", "cpu", 0.1)
	}

	for _, rs := range []string{"web-old", "web-new"} {
		w.owned(replicaSetOwnerMetric, "shop", "replicaset", rs, "Deployment", "web", always)
	}

	w.add(always, "__name__", phaseMetric, "namespace", "shop", "pod", "web-done", "phase", "Failed")
	w.add(constant(0), "__name__", phaseMetric, "namespace", "shop", "pod", "web-new-1", "phase", "Failed")
	amount(requestsMetric, "web-old-1", "app", "cpu", 2)
	amount(requestsMetric, "web-new-1", "app", "cpu", 0.9)
	amount(requestsMetric, "web-new-2", "app", "cpu", 0.9)
	amount(requestsMetric, "web-old-1", "app", "memory", 1e9)
	amount(requestsMetric, "web-new-1", "app", "memory", 2e9)
	amount(limitsMetric, "web-new-1", "app", "memory", 3e9)
	w.add(always, "__name__", containerInfoMetric, "namespace", "other", "pod", "db-0", "container", "db")

	want := []workload.Workload{
		{
			Ref:      workload.Ref{Namespace: "other", APIVersion: "apps/v1", Kind: "StatefulSet", Name: "db"},
			Replicas: 1, Containers: []workload.Container{{Name: "db", Role: workload.App}},
		},
		{
			Ref:      workload.Ref{Namespace: "shop", APIVersion: "apps/v1", Kind: "Deployment", Name: "web"},
			Replicas: 3,
			Containers: []workload.Container{
				{Name: "mesh", Role: workload.Sidecar, Requests: workload.Resources{CPU: 100}},
				{Name: "setup", Role: workload.Init},
				{Name: "app", Role: workload.App, Requests: workload.Resources{CPU: 900, Memory: 2e9}, Limits: workload.Resources{Memory: 3e9}},
				{Name: "bare", Role: workload.App},
			},
		},
	}

	s := w.source(t, nil)
	got, err := s.Inventory(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Inventory differs (-want +got):\n%s", diff)
	}
	if got, err = s.Inventory(t.Context(), []string{"other"}); err != nil || cmp.Diff(want[:1], got) != "" {
		t.Errorf("Inventory of one namespace = %v, %v, want %v", got, err, want[:1])
	}
}

func TestOOMKills(t *testing.T) {
	w := newFixture(today.Add(-2*day), today)
	kill := today.Add(-30*time.Hour + 20*time.Minute)
	w.add(func(at time.Time) float64 {
		if at.Before(kill) {
			return 0
		}

		return 1
	}, "__name__", restartsMetric, "namespace", "shop", "pod", "db-0", "container", "db")

	w.add(func(at time.Time) float64 {
		if at.Before(kill) {
			return math.NaN()
		}

		return 1
	}, "__name__", oomReasonMetric, "namespace", "shop", "pod", "db-0", "container", "db", "reason", "OOMKilled")

	// Restarted for another reason.
	w.add(func(at time.Time) float64 { return float64(at.Unix() / 3600) }, "__name__", restartsMetric, "namespace", "shop", "pod", "x-0", "container", "x")
	w.add(constant(1), "__name__", oomReasonMetric, "namespace", "shop", "pod", "x-0", "container", "x", "reason", "Error")

	var got []metrics.OOMKill
	s := w.source(t, nil)
	for k, err := range s.Capabilities().OOM.OOMKills(t.Context(), metrics.Window{Start: today.Add(-2 * day), End: today}, nil) {
		if err != nil {
			t.Fatal(err)
		}

		got = append(got, k)
	}

	want := []metrics.OOMKill{{
		Key: metrics.ContainerKey{
			Workload: workload.Ref{Namespace: "shop", APIVersion: "apps/v1", Kind: "StatefulSet", Name: "db"}, Pod: "db-0", Container: "db",
		},
		Time: kill.Truncate(time.Hour),
	}}

	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("OOMKills differ (-want +got):\n%s", diff)
	}
}

func TestServersThatAnswerQueriesOnly(t *testing.T) {
	w := newFixture(today.Add(-6*time.Hour), today)
	w.cpu("shop", "odd-name", "app", constant(1))
	w.owned(podOwnerMetric, "shop", "pod", "odd-name", "StatefulSet", "web", constant(1))

	server := w.serve(t, promserver.Options{Middleware: func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if !strings.HasPrefix(r.URL.Path, instantPath) {
				http.Error(rw, "not for you", http.StatusForbidden)
				return
			}

			h.ServeHTTP(rw, r)
		})
	}})

	s := newSource(t, server.URL(), func(c *Config) { c.Now = func() time.Time { return today } })
	h := readAll(t, s, metrics.UsageRequest{Resource: metrics.CPU, Start: today.Add(-5 * time.Hour), End: today})
	if diff := cmp.Diff(map[string][]string{"shop/StatefulSet/web": {"odd-name/app"}}, h.byWorkload()); diff != "" {
		t.Errorf("containers of workloads differ (-want +got):\n%s", diff)
	}
}

// TestShortenedScrapeInterval checks a scrape interval that changed from one minute to 15 seconds two hours ago.
// Windows have to cover the longer interval, or earlier days would have no CPU usage.
func TestShortenedScrapeInterval(t *testing.T) {
	w := newFixture(today.Add(-2*day), today)
	w.grid.Step = 15 * time.Second
	w.memory("shop", "web-0", "app", func(at time.Time) float64 {
		if at.Before(today.Add(-2*time.Hour)) && at.Truncate(time.Minute) != at {
			return math.NaN()
		}

		return 1
	})

	got, ok, err := w.source(t, nil).intervals.scrapeInterval(t.Context(), memoryMetric, today)
	if err != nil || !ok || got.usual != time.Minute {
		t.Errorf("interval %v, %v, %v, want a minute", got, ok, err)
	}
}
