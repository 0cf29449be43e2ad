// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterseries

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/api"
	v1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

	"crane.io/crane/internal/testbed/playground/load"
	"crane.io/crane/internal/testbed/promserver"
	"crane.io/crane/pkg/series"
	"crane.io/crane/pkg/units"
)

type fixture struct {
	*cluster
	exporter *Exporter
	server   *promserver.Server
	api      v1.API
	past     load.Past
	dir      string // of the server
}

// The generated load depends on the time of day. At midday no workload of Catalog(1, 30) starts or stops by schedule;
// the nightly batch of spark-worker ends at 01:59.
var (
	midday     = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
	endOfBatch = time.Date(2026, 3, 4, 1, 56, 0, 0, time.UTC)
)

// newFixture returns a cluster of 30 workloads on 4 nodes with a history of two days until now at a step of two minutes.
func newFixture(t *testing.T, now time.Time) *fixture {
	t.Helper()

	workloads := load.Catalog(1, 30)
	for _, w := range workloads { // leaks that die within two days
		for i := range w.Containers {
			if p := &w.Containers[i].Profile; p.Kind == load.Leak {
				p.Life = 7 * time.Hour
			}
		}
	}

	f := &fixture{cluster: newCluster(t, workloads, 4, now.Add(-time.Minute)), past: load.Past{Start: now.Add(-48 * time.Hour), End: now}}
	f.exporter = New(f.source)

	f.dir = t.TempDir()
	s, err := promserver.Open(promserver.Options{Dir: f.dir, Targets: Targets([]string{"node-0", "node-1", "node-2", "node-3"}), Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})

	f.server = s
	stats := f.write(t, f.exporter, s, f.past, 2*time.Minute)
	t.Logf("%d pods: %+v", len(f.objects.Pods), stats)

	c, err := api.NewClient(api.Config{Address: s.URL()})
	if err != nil {
		t.Fatal(err)
	}

	f.api = v1.NewAPI(c)
	return f
}

func (f *fixture) query(t *testing.T, q string, at time.Time) model.Vector {
	t.Helper()

	v, _, err := f.api.Query(t.Context(), q, at)
	if err != nil {
		t.Fatalf("query %s: %v, want a vector", q, err)
	}

	return v.(model.Vector)
}

func (f *fixture) one(t *testing.T, q string, at time.Time) float64 {
	t.Helper()

	v := f.query(t, q, at)
	if len(v) != 1 {
		t.Fatalf("query %s: %d results, want 1", q, len(v))
	}

	return float64(v[0].Value)
}

// play runs the cluster and appends live samples every 15 s for the given time.
func (f *fixture) play(t *testing.T, from time.Time, d time.Duration) time.Time {
	t.Helper()

	at := from
	for ; !at.After(from.Add(d)); at = at.Add(15 * time.Second) {
		f.run(at.Add(-14*time.Second), at)
		if err := f.server.Append(t.Context(), "exporters", at, f.exporter.Samples(f.snapshot(at))); err != nil {
			t.Fatal(err)
		}
	}

	if st := f.server.AppendStats(); st.OutOfOrder+st.Duplicate+st.TooOld > 0 {
		t.Errorf("AppendStats() = %+v, want no refused live sample", st)
	}

	return at.Add(-15 * time.Second)
}

// steady selects all pods but those of the leaking workload, whose limit may kill it at any time.
const steady = `pod!~"recommendations-.*"`

func TestPastThenLive(t *testing.T) {
	f := newFixture(t, midday)
	end := f.past.End
	at := f.play(t, end.Add(15*time.Second), 6*time.Minute)

	// No counter drops within ten minutes around the end of the history.
	for _, metric := range []string{
		"container_cpu_usage_seconds_total", "container_cpu_cfs_periods_total", "container_cpu_cfs_throttled_periods_total",
		"container_cpu_cfs_throttled_seconds_total", "container_network_receive_bytes_total", "container_network_transmit_bytes_total",
		"container_oom_events_total", "node_cpu_seconds_total", "kube_pod_container_status_restarts_total",
	} {
		if v := f.query(t, "resets("+metric+"{"+steady+"}[12m]) > 0", at); len(v) > 0 {
			t.Errorf("resets of %s where the history ends: %d series such as %s, want 0", metric, len(v), v[0])
		}
		if v := f.query(t, "count("+metric+" offset 7m)", at); len(v) == 0 {
			t.Errorf("history of %s: no sample, want some", metric)
		}
		if v := f.query(t, "count("+metric+")", at); len(v) == 0 {
			t.Errorf("live part of %s: no sample, want some", metric)
		}
	}

	// Live series continue those of the history: nothing that ran at the end has new series.
	fresh := `count by (__name__, pod) ({job="kubelet", pod!=""} unless ({job="kubelet", pod!=""} offset 7m))`
	if v := f.query(t, fresh, at); len(v) > 0 {
		t.Errorf("pods with new series in the live part: %d such as %s, want 0", len(v), v[0])
	}

	// Use does not jump at the end of the history.
	before := f.one(t, `sum(rate(container_cpu_usage_seconds_total{container!=""}[10m] offset 7m))`, at)
	after := f.one(t, `sum(rate(container_cpu_usage_seconds_total{container!=""}[5m]))`, at)

	if math.Abs(after-before) > 0.2*before {
		t.Errorf("CPU of all containers at the seam goes from %g to %g, want a change of at most 20 %%", before, after)
	}

	checkUsualQueries(t, f, at)

	memory := f.one(t, `max(abs(1 - container_memory_working_set_bytes{container!="",`+steady+`} / (container_memory_working_set_bytes offset 7m)))`, at)
	if memory > 0.35 {
		t.Errorf("largest change of a working set at the seam: %.0f %%, want at most 35 %%", 100*memory)
	}

	f.checkWorkingSets(t, at)
}

// A workload that starts or stops by schedule at the end of the history changes its memory as its load does.
func TestBatchEndsAtTheSeam(t *testing.T) {
	f := newFixture(t, endOfBatch)
	at := f.play(t, f.past.End.Add(15*time.Second), 6*time.Minute)
	f.checkWorkingSets(t, at)

	change := f.one(t, `max(1 - container_memory_working_set_bytes{container="spark-worker"} / (container_memory_working_set_bytes offset 7m))`, at)
	if change < 0.5 {
		t.Errorf("the working set of spark-worker drops by %.0f %%, want more than 50 %%", 100*change)
	}
}

// checkWorkingSets compares the working sets of the last sample of the history and of a live sample with the generated load.
func (f *fixture) checkWorkingSets(t *testing.T, live time.Time) {
	t.Helper()

	const (
		sinceMeasured = 4 * time.Second // run measures 4 s before a live sample
		tolerance     = 0.02
	)

	last := f.past.End.Add(-2 * time.Minute)
	for at, measured := range map[time.Time]time.Time{last: last, live: live.Add(-sinceMeasured)} {
		got := map[string]float64{}
		for _, s := range f.query(t, `container_memory_working_set_bytes{container!="",`+steady+`}`, at) {
			got[string(s.Metric["pod"]+"/"+s.Metric["container"])] = float64(s.Value)
		}

		compared := 0
		for _, pod := range f.objects.Pods {
			for _, c := range longRunning(pod) {
				v, ok := got[pod.Name+"/"+c.Name]
				if !ok {
					continue
				}

				compared++
				if want := f.source.Use(pod, c.Name, measured).Memory; math.Abs(v-want) > tolerance*want {
					t.Errorf("working set of %s/%s is %g at %s, want %g", pod.Name, c.Name, v, at.Format(time.TimeOnly), want)
				}
			}
		}

		if compared < 50 {
			t.Errorf("%d working sets at %s, want 50 or more", compared, at.Format(time.TimeOnly))
		}
	}
}

// checkUsualQueries checks that the queries of Crane and similar tools return samples.
func checkUsualQueries(t *testing.T, f *fixture, at time.Time) {
	t.Helper()

	const pods = `namespace="shop",pod=~"^checkout-[a-z0-9]+-[a-z0-9]{5}$"`
	const node = `instance=~"(node-0)(:\\d+)?"`
	for _, q := range []string{
		`sum(irate(container_cpu_usage_seconds_total{` + pods + `,container!=""}[3m]))`,
		`sum(container_memory_working_set_bytes{` + pods + `,container!=""})`,
		`irate(container_cpu_usage_seconds_total{container!="POD",` + pods + `,container="checkout"}[3m])`,
		`sum(count(node_cpu_seconds_total{mode="idle",` + node + `}) by (mode, cpu)) - sum(irate(node_cpu_seconds_total{mode="idle",` + node + `}[3m]))`,
		`sum(node_memory_MemTotal_bytes{` + node + `} - node_memory_MemAvailable_bytes{` + node + `})`,
		`sum(rate(container_network_receive_bytes_total{` + pods + `}[3m]))`,
		`sum(kube_pod_container_resource_requests{node="node-0", resource="cpu", unit="core"} * on (node) group_left () max(kube_node_labels) by (node)) / sum(kube_node_status_capacity{node="node-0", resource="cpu", unit="core"} * on (node) group_left () max(kube_node_labels) by (node))`,
		`label_replace(sum(irate(container_cpu_usage_seconds_total{instance="node-0",container!=""}[1h])) by (instance), "node", "$1", "instance", "(.*)")`,
		`quantile_over_time(0.95, (max by (container, pod, job) (rate(container_cpu_usage_seconds_total{` + pods + `,container="checkout"}[5m])))[1d:5m])`,
		`kube_replicaset_owner{owner_name="checkout", owner_kind="Deployment"}`,
		`100 - (avg by (instance) (irate(node_cpu_seconds_total{mode="idle"}[30s])) * 100)`,
		`100 * (1 - node_memory_MemAvailable_bytes / node_memory_MemTotal_bytes)`,
		`rate(container_cpu_cfs_throttled_periods_total[5m]) / rate(container_cpu_cfs_periods_total[5m])`,
	} {
		v := f.query(t, q, at)
		if len(v) == 0 {
			t.Errorf("query %s returns no sample, want some", q)
		}

		for _, s := range v {
			if x := float64(s.Value); math.IsNaN(x) || math.IsInf(x, 0) || x < 0 {
				t.Errorf("query %s returns %v, want a finite number of 0 or more", q, x)
			}
		}
	}
}

// A compressed pattern changes use and the frequency of OOM kills, but neither the clock nor limits.
func TestCompressedPattern(t *testing.T) {
	now := midday
	past := load.Past{Start: now.Add(-12 * time.Hour), End: now}
	grid := promserver.Grid{Start: past.Start, End: past.End, Step: time.Minute}
	c := newCluster(t, load.Catalog(1, 20), 3, now.Add(-time.Minute))

	c.source = load.NewSource(c.workloads, 48)
	h, err := New(c.source).Backfill(c.objects, past, grid)
	if err != nil {
		t.Fatal(err)
	}

	kills := 0.0
	values := make([]float64, grid.Len())
	for _, s := range h.Series {
		s.Fill(values, 0)
		switch last := values[len(values)-1]; s.Labels.Get("__name__") {
		case "container_oom_events_total":
			if !math.IsNaN(last) {
				kills += last
			}
		case "kube_pod_container_status_restarts_total":
			if last > 0 && !strings.HasPrefix(s.Labels.Get("pod"), "recommendations-") {
				t.Errorf("%s was restarted %v times", s.Labels.Get("pod"), last)
			}
		}
	}

	// A pod that existed before the history was created a day before it: 36 hours of the clock are 72 days of the
	// pattern. A leak lives for two to five.
	if pods := float64(c.workloads[13].Replicas); kills < 12*pods || kills > 45*pods {
		t.Errorf("%v kills in 72 days of the pattern for %v pods that leak", kills, pods)
	}
}

// TestPast reads a history of two days without live samples.
func TestPast(t *testing.T) {
	f := newFixture(t, midday)
	t.Run("every metric exists", f.testMetrics)
	t.Run("figures add up", f.testSums)
	t.Run("earlier generations", f.testGenerations)
	t.Run("leaks are killed", f.testKills)
}

func (f *fixture) testMetrics(t *testing.T) {
	end := f.past.End
	for metric := range strings.FieldsSeq(`
		container_cpu_usage_seconds_total container_memory_working_set_bytes container_memory_rss container_memory_cache
		container_memory_total_active_file_bytes
		container_memory_usage_bytes container_cpu_cfs_periods_total container_cpu_cfs_throttled_periods_total
		container_cpu_cfs_throttled_seconds_total container_network_receive_bytes_total container_network_transmit_bytes_total
		container_spec_cpu_quota container_spec_cpu_period container_spec_memory_limit_bytes container_oom_events_total
		container_start_time_seconds machine_cpu_cores machine_memory_bytes kube_pod_info kube_pod_owner kube_replicaset_owner
		kube_pod_container_info kube_pod_init_container_info kube_pod_container_resource_requests kube_pod_container_resource_limits
		kube_pod_init_container_resource_requests kube_pod_status_phase
		kube_pod_container_status_restarts_total kube_pod_container_status_last_terminated_reason kube_pod_labels kube_pod_created
		kube_pod_start_time kube_deployment_spec_replicas kube_statefulset_replicas kube_daemonset_status_desired_number_scheduled
		kube_job_owner kube_job_info kube_cronjob_info kube_node_info kube_node_labels kube_node_status_allocatable
		kube_node_status_capacity kube_horizontalpodautoscaler_info kube_horizontalpodautoscaler_spec_max_replicas
		node_cpu_seconds_total node_memory_MemTotal_bytes node_memory_MemAvailable_bytes node_load1 up scrape_duration_seconds`) {
		if v := f.query(t, "count(present_over_time("+metric+"[1d]))", end); len(v) == 0 {
			t.Errorf("history of %s: no sample, want some", metric)
		}
	}
}

func (f *fixture) testSums(t *testing.T) {
	at := f.past.End.Add(-time.Minute)
	pods := f.one(t, `sum(rate(container_cpu_usage_seconds_total{container!=""}[1h]))`, at)
	if v := f.one(t, `sum(rate(container_cpu_usage_seconds_total{container="",pod!=""}[1h]))`, at); math.Abs(v-pods) > 0.01*pods {
		t.Errorf("CPU of the cgroups of pods = %g, want %g as their containers use", v, pods)
	}

	system := 4 * systemCPU
	if v := f.one(t, `sum(rate(container_cpu_usage_seconds_total{id="/"}[1h]))`, at); math.Abs(v-pods-system) > 0.02*pods {
		t.Errorf("CPU of the root cgroups = %g, want %g of containers and %g of the system", v, pods, system)
	}
	if v := f.one(t, `sum(rate(node_cpu_seconds_total{mode=~"user|system"}[1h]))`, at); math.Abs(v-pods-system) > 0.02*pods {
		t.Errorf("busy cores of node-exporter = %g, want %g of containers and %g of the system", v, pods, system)
	}
	if v := f.one(t, `sum(count by (mode, cpu, instance) (node_cpu_seconds_total{mode="idle"}))`, at); v != 4*32 {
		t.Errorf("idle series of node-exporter = %g, want %d, one for each CPU", v, 4*32)
	}

	if v := f.one(t, `max(100 - avg by (instance) (rate(node_cpu_seconds_total{mode="idle"}[5m])) * 100)`, at); v <= 0 || v >= 100 {
		t.Errorf("share of time of the busiest node = %g %%, want between 0 and 100", v)
	}
	if v := f.query(t, `count(container_memory_working_set_bytes > container_spec_memory_limit_bytes and container_spec_memory_limit_bytes > 0)`, at); len(v) > 0 {
		t.Errorf("containers over their limit: %v, want none", v)
	}
	if v := f.query(t, `min_over_time(node_memory_MemAvailable_bytes[1d]) <= 0`, at); len(v) > 0 {
		t.Errorf("nodes without available memory: %v, want none", v)
	}
}

func (f *fixture) testGenerations(t *testing.T) {
	end := f.past.End.Add(-time.Minute)
	v := f.query(t, `count by (namespace, owner_name) (count by (namespace, owner_name, replicaset) (last_over_time(kube_replicaset_owner{owner_kind="Deployment"}[2d]))) > 1`, end)

	rolled := 0
	for _, w := range f.workloads {
		if w.Rollout > 0 {
			rolled++
		}
	}

	if len(v) != rolled || rolled == 0 {
		t.Errorf("Deployments with an earlier ReplicaSet: %d, want %d (at least 1)", len(v), rolled)
	}

	// At any time a workload has exactly its replicas: a generation ends where the next one starts.
	const owned = `count by (namespace, deployment) (label_replace(container_memory_working_set_bytes{container!="",container!="proxy"} * on (namespace, pod) group_left (owner_name) kube_pod_owner{owner_kind="ReplicaSet"}, "deployment", "$1", "owner_name", "(.*)-[^-]+"))`
	for _, ago := range []time.Duration{time.Minute, 20 * time.Hour, 47 * time.Hour} {
		got := map[string]float64{}
		for _, s := range f.query(t, owned, f.past.End.Add(-ago)) {
			got[string(s.Metric["namespace"]+"/"+s.Metric["deployment"])] = float64(s.Value)
		}

		for _, w := range f.workloads {
			if w.Kind == "Deployment" && got[w.Namespace+"/"+w.Name] != float64(w.Replicas) {
				t.Errorf("pods %s before the end of %s/%s: %g, want %d", ago, w.Namespace, w.Name, got[w.Namespace+"/"+w.Name], w.Replicas)
			}
		}
	}

	jobs := f.query(t, `count by (owner_name) (last_over_time(kube_job_owner{owner_kind="CronJob"}[2d]))`, end)
	if len(jobs) == 0 {
		t.Error("Jobs in the history: 0, want some")
	}
}

func (f *fixture) testKills(t *testing.T) {
	end := f.past.End.Add(-time.Minute)
	kills := f.query(t, `increase(kube_pod_container_status_restarts_total[2d]) > 1 and on (namespace, pod, container) kube_pod_container_status_last_terminated_reason{reason="OOMKilled"} == 1`, end)
	if len(kills) == 0 {
		t.Error("OOM kills in the history: 0, want some")
	}
	if v := f.query(t, `resets(container_cpu_usage_seconds_total{container!=""}[2d]) > 0 unless on (namespace, pod, container) increase(container_oom_events_total[2d]) > 0`, end); len(v) > 0 {
		t.Errorf("containers whose CPU counter is reset without an OOM kill: %v, want none", v)
	}
}

// After a restart the gap is backfilled; counters restart at zero, which rates must not count as use.
func TestPastGoesOnAfterARestart(t *testing.T) {
	now := midday
	c := newCluster(t, load.Catalog(1, 20), 4, now.Add(-6*time.Hour))

	s, err := promserver.Open(promserver.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()

	first := load.Past{Start: now.Add(-30 * time.Hour), End: now.Add(-6 * time.Hour)}
	c.write(t, New(c.source), s, first, time.Minute)

	again := New(c.source)
	whole := load.Past{Start: first.Start, End: now}

	grid := promserver.Grid{Start: first.End, End: now, Step: time.Minute}
	h, err := again.Backfill(c.objects, whole, grid)
	if err != nil {
		t.Fatal(err)
	}

	if _, err := s.Backfill(t.Context(), grid, h.Series); err != nil {
		t.Fatal(err)
	}

	h.Commit()
	client, err := api.NewClient(api.Config{Address: s.URL()})
	if err != nil {
		t.Fatal(err)
	}

	f := &fixture{cluster: c, api: v1.NewAPI(client)}
	seam := first.End.Add(5 * time.Minute)
	before := f.one(t, `sum(rate(container_cpu_usage_seconds_total{container!=""}[10m] offset 20m))`, seam)
	for _, q := range []string{
		`sum(rate(container_cpu_usage_seconds_total{container!=""}[10m]))`,
		`sum(rate(container_cpu_usage_seconds_total{container="",pod!=""}[10m]))`,
		fmt.Sprintf(`sum(rate(container_cpu_usage_seconds_total{id="/"}[10m])) - 4 * %g`, systemCPU),
		fmt.Sprintf(`sum(rate(node_cpu_seconds_total{mode=~"user|system"}[10m])) - 4 * %g`, systemCPU),
	} {
		if at := f.one(t, q, seam); math.Abs(at-before) > 0.3*before {
			t.Errorf("query %s over the seam = %g, want about %g as before", q, at, before)
		}
	}

	if v := f.one(t, `max(rate(node_cpu_seconds_total{mode="idle"}[10m]))`, seam); v > 1.01 {
		t.Errorf("largest idle time of a CPU = %g s per second, want at most 1.01", v)
	}
	if v := f.query(t, `count by (namespace, pod) (changes(kube_pod_created[12h]) > 0)`, now.Add(-time.Minute)); len(v) > 0 {
		t.Errorf("pods with a new creation time after the restart: %d such as %s, want 0", len(v), v[0].Metric)
	}
}

func TestBackfillRefusals(t *testing.T) {
	now := midday
	e := New(load.NewSource(nil, 1))
	good := promserver.Grid{Start: now.Add(-time.Hour), End: now, Step: time.Minute}
	if _, err := e.Backfill(Objects{}, load.Past{Start: good.Start, End: now}, good); err == nil {
		t.Error("Backfill of a cluster without nodes: no error, want one")
	}
	if _, err := e.Backfill(Objects{}, load.Past{Start: now, End: now}, good); err == nil {
		t.Error("Backfill of an empty past: no error, want one")
	}

	c := newCluster(t, load.Catalog(1, 9), 1, now)
	c.objects.CronJobs[0].Spec.Schedule = "at noon"
	if _, err := New(c.source).Backfill(c.objects, load.Past{Start: good.Start, End: now}, good); err == nil || !strings.Contains(err.Error(), "report-nightly") {
		t.Errorf("Backfill with an invalid schedule: %v, want an error that names the CronJob report-nightly", err)
	}
}

// Each pod replays the trace: the rate of its counter equals the trace, in the history and live.
func TestTraceIsPlayedInThePast(t *testing.T) {
	now := midday
	values := make([]float64, 8*24*60)
	for i := range values {
		values[i] = float64(1+i/60) / 100
	}

	trace := series.Series{Start: now.AddDate(0, 0, -8-7*3), Step: time.Minute, Values: values}
	workloads, err := load.FromTraces([]load.NamedSeries{{Name: "workload-0", Series: trace}}, units.CPU, 1, now)
	if err != nil {
		t.Fatal(err)
	}

	c := newCluster(t, workloads, 1, now.Add(-time.Minute))
	past := load.Past{Start: now.Add(-14 * 24 * time.Hour), End: now}
	grid := promserver.Grid{Start: past.Start, End: past.End, Step: time.Minute}

	h, err := New(c.source).Backfill(c.objects, past, grid)
	if err != nil {
		t.Fatal(err)
	}

	found := 0
	got := make([]float64, grid.Len())
	for _, s := range h.Series {
		if s.Labels.Get("__name__") != "container_cpu_usage_seconds_total" || s.Labels.Get("container") != "workload-0" {
			continue
		}

		found++
		s.Fill(got, 0)

		for i := 1; i < len(got); i++ {
			// The last sample of the trace lies in the minute before now, or up to a week after it.
			back := len(values) - 1 - (len(got) - i - 1) - 7*24*60
			for back < 0 {
				back += 7 * 24 * 60
			}

			if rate := (got[i] - got[i-1]) / 60; math.Abs(rate-values[back]) > 1e-4 {
				t.Fatalf("minute %d of the history: %v cores, want %v as in the trace", i, rate, values[back])
			}
		}
	}

	if found != workloads[0].Replicas {
		t.Errorf("%d pods replay the trace, want %d", found, workloads[0].Replicas)
	}
}

func TestSeriesAreDeterministic(t *testing.T) {
	now := time.Date(2026, 5, 13, 14, 0, 0, 0, time.UTC)
	past := load.Past{Start: now.Add(-24 * time.Hour), End: now}
	grid := promserver.Grid{Start: past.Start, End: past.End, Step: 10 * time.Minute}

	read := func() map[string][]float64 {
		c := newCluster(t, load.Catalog(1, 12), 2, now)
		h, err := New(c.source).Backfill(c.objects, past, grid)
		if err != nil {
			t.Fatal(err)
		}

		out := map[string][]float64{}
		for _, s := range h.Series {
			v := make([]float64, grid.Len())
			s.Fill(v, 0)
			out[s.Labels.String()] = v
		}

		return out
	}

	a := read()
	b := read()
	if len(a) != len(b) {
		t.Fatalf("Backfill returned %d series, then %d, want equal numbers", len(a), len(b))
	}

	for name, v := range a {
		for i := range v {
			if math.Float64bits(v[i]) != math.Float64bits(b[name][i]) {
				t.Fatalf("point %d of %s in the second history = %v, want %v as in the first", i, name, b[name][i], v[i])
			}
		}
	}
}
