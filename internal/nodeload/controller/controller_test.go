// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"crane.io/crane/internal/metrics"
	"crane.io/crane/internal/metrics/prometheus"
	"crane.io/crane/internal/nodeload/policyfile"
	"crane.io/crane/pkg/nodeload"
)

var begin = time.Date(2024, 5, 1, 12, 0, 0, 0, time.UTC)

// fakeCluster holds the nodes and loads and records queries and patches.
type fakeCluster struct {
	mu      sync.Mutex
	nodes   []corev1.Node
	vectors map[string][]metrics.Sample
	queries []string
	err     error
	usages  []Usage
	patches []string
	reject  error
	binds   map[string][]int64
	// sampled returns the time of a node's newest sample; nil for the time of the query.
	sampled func(node int, at time.Time) time.Time
	// undated means that no sample times are recorded.
	undated bool
}

func (w *fakeCluster) Vector(_ context.Context, query string, at time.Time) ([]metrics.Sample, error) {
	w.mu.Lock()
	defer w.mu.Unlock()

	if strings.Contains(query, "_sample_time_seconds") {
		return w.sampleTimes(at), w.err
	}

	w.queries = append(w.queries, query)
	return w.vectors[query], w.err
}

// sampleTimes returns the recorded series of sample times.
func (w *fakeCluster) sampleTimes(at time.Time) []metrics.Sample {
	var out []metrics.Sample
	for i := range w.nodes {
		sampleTime := at
		if w.sampled != nil {
			sampleTime = w.sampled(i, at)
		}
		if !w.undated && !sampleTime.IsZero() {
			out = append(out, metrics.Sample{Labels: metrics.Labels{"instance": fmt.Sprintf("n%d:9100", i)}, Value: float64(sampleTime.UnixMilli()) / 1000})
		}
	}

	return out
}

func (*fakeCluster) Selector(metric string, _ ...prometheus.Matcher) (string, error) {
	return metric, nil
}

func (w *fakeCluster) NodeUsages(context.Context) ([]Usage, error) {
	w.mu.Lock()
	defer w.mu.Unlock()

	w.queries = append(w.queries, "metrics-server")
	return w.usages, w.err
}

func (*fakeCluster) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return errors.New("not expected")
}

func (w *fakeCluster) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	list.(*corev1.NodeList).Items = w.nodes
	return nil
}

// PatchNode applies the patch as the API server does.
func (w *fakeCluster) PatchNode(_ context.Context, name string, patch []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()

	if w.reject != nil {
		return w.reject
	}

	var object struct {
		Metadata metav1.ObjectMeta
		Spec     struct{ Taints *[]corev1.Taint }
	}

	if err := json.Unmarshal(patch, &object); err != nil {
		return err
	}

	i := slices.IndexFunc(w.nodes, func(n corev1.Node) bool { return n.Name == name })
	if i < 0 {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "nodes"}, name)
	}

	if object.Metadata.UID != w.nodes[i].UID {
		return apierrors.NewConflict(schema.GroupResource{Resource: "nodes"}, name, errors.New("UID"))
	}

	if object.Spec.Taints != nil {
		w.nodes[i].Spec.Taints = *object.Spec.Taints
		return nil
	}

	annotations := maps.Clone(w.nodes[i].Annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}

	maps.Copy(annotations, object.Metadata.Annotations)
	w.nodes[i].Annotations = annotations
	w.patches = append(w.patches, name)

	return nil
}

func (*fakeCluster) Ranges([]nodeload.HotRange) {}

func (w *fakeCluster) Count(node string, _ time.Time) ([]int64, bool) {
	if c, ok := w.binds[node]; ok {
		return c, true
	}

	return []int64{0, 0}, true
}

// drain returns queries and patches since the last call.
func (w *fakeCluster) drain() (queries, patches []string) {
	w.mu.Lock()
	defer w.mu.Unlock()

	queries = w.queries
	patches = w.patches
	slices.Sort(queries)
	slices.Sort(patches)
	w.queries = nil
	w.patches = nil

	return queries, patches
}

func (w *fakeCluster) percent(metric string, values ...float64) {
	w.vectors[metric] = nil
	for i, v := range values {
		w.vectors[metric] = append(w.vectors[metric], metrics.Sample{Labels: metrics.Labels{"instance": fmt.Sprintf("n%d:9100", i)}, Value: v})
	}
}

func newCluster(nodes int) *fakeCluster {
	w := &fakeCluster{vectors: map[string][]metrics.Sample{}}
	for i := range nodes {
		w.nodes = append(w.nodes, corev1.Node{
			ObjectMeta: metav1.ObjectMeta{
				Name: fmt.Sprintf("n%d", i), UID: types.UID(fmt.Sprintf("u%d", i)), CreationTimestamp: metav1.NewTime(begin.Add(-time.Hour)),
			},
			Status: corev1.NodeStatus{Capacity: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("10"), corev1.ResourceMemory: resource.MustParse("100Gi"),
			}},
		})
	}

	return w
}

type fixture struct {
	*Controller
	w      *fakeCluster
	clock  *clocktesting.FakeClock
	events *events.FakeRecorder
}

func start(t *testing.T, w *fakeCluster, spec nodeload.Spec) *fixture {
	t.Helper()

	policy, err := nodeload.NewPolicy(spec)
	if err != nil {
		t.Fatalf("NewPolicy: %v, want no error", err)
	}

	clk := clocktesting.NewFakeClock(begin)
	f := &fixture{w: w, clock: clk, events: events.NewFakeRecorder(1000)}
	f.Controller, err = New(Config{
		Policy: policyfile.Fixed(policy, clk), Sources: Sources{Prometheus: w, MetricsServer: w}, Nodes: w, Patches: w,
		Binds: w, Labels: []string{"instance"}, Material: 0.02, Workers: 3, Events: f.events, Metrics: NewMetrics(), Clock: clk,
	})
	if err != nil {
		t.Fatalf("New: %v, want a controller", err)
	}

	return f
}

// recorded returns the events since the last call.
func (f *fixture) recorded() []string {
	var out []string
	for {
		select {
		case e := <-f.events.Events:
			out = append(out, e)
		default:
			return out
		}
	}
}

func twoMetrics() nodeload.Spec {
	return nodeload.Spec{Metrics: []nodeload.Metric{
		{Name: "cpu_usage_avg_5m", Period: 3 * time.Minute}, {Name: "mem_usage_max_avg_1h", Period: 15 * time.Minute},
	}}
}

func TestOneQueryAMetricAndOnePatchANode(t *testing.T) {
	w := newCluster(3)
	w.percent("cpu_usage_avg_5m", 10, 20, 30)
	w.percent("mem_usage_max_avg_1h", 40, 50, 60)
	f := start(t, w, twoMetrics())
	next := f.Round(t.Context())

	queries, patches := w.drain()
	if !slices.Equal(queries, []string{"cpu_usage_avg_5m", "mem_usage_max_avg_1h"}) || !slices.Equal(patches, []string{"n0", "n1", "n2"}) {
		t.Fatalf("the first Round: queries %v, patches %v, want one query a metric and one patch a node", queries, patches)
	}

	if want := begin.Add(3 * time.Minute); !next.Equal(want) {
		t.Errorf("next round at %v, want %v", next, want)
	}
	if got, want := w.nodes[1].Annotations, map[string]string{
		"cpu_usage_avg_5m": "0.20000,2024-05-01T12:00:00Z", "mem_usage_max_avg_1h": "0.50000,2024-05-01T12:00:00Z",
	}; !maps.Equal(got, want) {
		t.Errorf("annotations of n1 %v, want %v", got, want)
	}

	// One value changes; the others neither change nor expire.
	f.clock.Step(3 * time.Minute)
	w.percent("cpu_usage_avg_5m", 10.5, 20, 35)
	f.Round(t.Context())

	queries, patches = w.drain()
	if !slices.Equal(queries, []string{"cpu_usage_avg_5m"}) || !slices.Equal(patches, []string{"n2"}) {
		t.Errorf("after one change: queries %v, patches %v, want cpu_usage_avg_5m and n2", queries, patches)
	}

	// The values of the first round expire before the next.
	f.clock.Step(3 * time.Minute)
	f.Round(t.Context())

	_, patches = w.drain()
	if !slices.Equal(patches, []string{"n0", "n1"}) {
		t.Errorf("before the values expire: patches %v, want n0 and n1", patches)
	}

	// Both metrics are read in one round, and a node gets one patch.
	for range 3 {
		f.clock.Step(3 * time.Minute)
		f.Round(t.Context())
		queries, patches = w.drain()
	}

	if len(queries) != 2 || len(patches) != 3 {
		t.Errorf("after 15 minutes: queries %v, patches %v, want 2 and 3", queries, patches)
	}
}

// TestHostileLoads checks that series which a pod exports under the name of a recorded load, with the label of a node, are not read beside recorded ones.
func TestHostileLoads(t *testing.T) {
	w := newCluster(2)
	w.percent("cpu_usage_avg_5m", 10, 20)
	w.percent("mem_usage_max_avg_1h", 40, 50)
	for _, query := range []string{"cpu_usage_avg_5m", "mem_usage_max_avg_1h"} {
		for _, node := range []string{"n0", "n1"} {
			w.vectors[query] = append(w.vectors[query], metrics.Sample{Labels: metrics.Labels{"job": "shop/web", "namespace": "shop", "pod": "web-0", "node": node}, Value: 99})
		}
	}

	start(t, w, twoMetrics()).Round(t.Context())

	for i, want := range []string{"0.10000,2024-05-01T12:00:00Z", "0.20000,2024-05-01T12:00:00Z"} {
		if got := w.nodes[i].Annotations["cpu_usage_avg_5m"]; got != want {
			t.Errorf("the load of node n%d is %q, want the recorded one, %q", i, got, want)
		}
	}

	scraped := []metrics.Sample{{Labels: metrics.Labels{"job": "exporter", "node": "n0"}, Value: 1}}
	if got := recordedSeries(scraped); len(got) != 1 {
		t.Errorf("recordedSeries of scraped series alone = %v, want these", got)
	}
}

// TestBadSamplesAreReportedAndNotWritten checks that no bad sample becomes a zero and that existing annotations stay.
func TestBadSamplesAreReportedAndNotWritten(t *testing.T) {
	w := newCluster(8)
	w.percent("cpu_usage_avg_5m", 10, math.NaN(), -1, math.Inf(1), 1e9, 50, 60)
	w.vectors["cpu_usage_avg_5m"] = append(w.vectors["cpu_usage_avg_5m"],
		metrics.Sample{Labels: metrics.Labels{"instance": "n6:9100", "replica": "2"}, Value: 61},
		metrics.Sample{Labels: metrics.Labels{"instance": "stranger:9100"}, Value: 5})

	const old = "0.90000,2024-05-01T11:59:00Z"
	for i := range w.nodes {
		w.nodes[i].Annotations = map[string]string{"cpu_usage_avg_5m": old}
	}

	f := start(t, w, nodeload.Spec{Metrics: twoMetrics().Metrics[:1]})
	f.Round(t.Context())

	if _, patches := w.drain(); !slices.Equal(patches, []string{"n0", "n5"}) {
		t.Errorf("patches %v, want n0 and n5", patches)
	}

	for _, i := range []int{1, 2, 3, 4, 6, 7} {
		if got := w.nodes[i].Annotations["cpu_usage_avg_5m"]; got != old {
			t.Errorf("n%d has %q, want the old %q", i, got, old)
		}
	}

	recorded := strings.Join(f.recorded(), "\n")
	for _, want := range []string{"not a number", "negative", "too large", "two series", "no series"} {
		if !strings.Contains(recorded, want) {
			t.Errorf("no event has %q, want one in\n%s", want, recorded)
		}
	}

	if err := testutil.CollectAndCompare(f.cfg.Metrics, strings.NewReader(`
		# HELP crane_nodeload_unmatched_series Series of the last reading of a metric that matched no node.
		# TYPE crane_nodeload_unmatched_series gauge
		crane_nodeload_unmatched_series{metric="cpu_usage_avg_5m"} 1
		# HELP crane_nodeload_nodes Number of nodes by result of the last reading of a metric: ok, or why there is no value.
		# TYPE crane_nodeload_nodes gauge
		crane_nodeload_nodes{metric="cpu_usage_avg_5m",state="negative"} 1
		crane_nodeload_nodes{metric="cpu_usage_avg_5m",state="no capacity"} 0
		crane_nodeload_nodes{metric="cpu_usage_avg_5m",state="no forecast"} 0
		crane_nodeload_nodes{metric="cpu_usage_avg_5m",state="no recent sample"} 0
		crane_nodeload_nodes{metric="cpu_usage_avg_5m",state="no series"} 1
		crane_nodeload_nodes{metric="cpu_usage_avg_5m",state="not a number"} 2
		crane_nodeload_nodes{metric="cpu_usage_avg_5m",state="not reported"} 0
		crane_nodeload_nodes{metric="cpu_usage_avg_5m",state="ok"} 2
		crane_nodeload_nodes{metric="cpu_usage_avg_5m",state="too large"} 1
		crane_nodeload_nodes{metric="cpu_usage_avg_5m",state="two series"} 1
	`), "crane_nodeload_unmatched_series", "crane_nodeload_nodes"); err != nil {
		t.Errorf("Collect: %v", err)
	}

	f.clock.Step(3 * time.Minute)
	f.Round(t.Context())

	if recorded := f.recorded(); len(recorded) > 0 {
		t.Errorf("events of the second Round %v, want none", recorded)
	}
}

// TestManyBadNodesAreOneEvent checks that a missing exporter does not cause thousands of events.
func TestManyBadNodesAreOneEvent(t *testing.T) {
	f := start(t, newCluster(100), nodeload.Spec{Metrics: twoMetrics().Metrics[:1]})
	f.Round(t.Context())

	if recorded := f.recorded(); len(recorded) != 1 || !strings.Contains(recorded[0], "100 of 100 nodes") {
		t.Errorf("events %v, want one about 100 of 100 nodes", recorded)
	}
}

// TestDeadExporterLooksStale checks that values are stamped with the time of the newest raw sample, so that those of a
// dead exporter, which averages contain for minutes, expire by its last sample.
func TestDeadExporterLooksStale(t *testing.T) {
	w := newCluster(3)
	w.percent("cpu_usage_avg_5m", 10, 20, 30)
	died := begin.Add(-4 * time.Minute)
	w.sampled = func(node int, at time.Time) time.Time {
		return map[int]time.Time{0: at.Add(-20 * time.Second), 1: died}[node] // none of n2 in an hour
	}

	f := start(t, w, nodeload.Spec{Metrics: twoMetrics().Metrics[:1]})
	f.Round(t.Context())
	f.clock.Step(3 * time.Minute)
	w.percent("cpu_usage_avg_5m", 15, 25, 30)
	f.Round(t.Context())

	for node, want := range map[int]string{0: "0.15000,2024-05-01T12:02:40Z", 1: "0.20000,2024-05-01T11:56:00Z", 2: ""} {
		if got := w.nodes[node].Annotations["cpu_usage_avg_5m"]; got != want {
			t.Errorf("n%d has %q, want %q", node, got, want)
		}
	}

	if recorded := f.recorded(); len(recorded) != 1 || !strings.Contains(recorded[0], "no recent sample") {
		t.Errorf("events %v, want one about no recent sample", recorded)
	}
}

// TestUndatedValuesExpireEarlier checks that missing sample times are reported once and shorten the life of values.
func TestUndatedValuesExpireEarlier(t *testing.T) {
	w := newCluster(1)
	w.percent("cpu_usage_avg_5m", 10)
	w.undated = true
	f := start(t, w, nodeload.Spec{Metrics: twoMetrics().Metrics[:1]})
	f.Round(t.Context())

	if got := w.nodes[0].Annotations["cpu_usage_avg_5m"]; got != "0.10000,2024-05-01T11:57:30Z" {
		t.Errorf("annotation without sample times %q, want a time of 2m30s before now", got)
	}

	recorded := f.recorded()
	if len(recorded) != 1 || !strings.Contains(recorded[0], "SampleTimeUnknown") || !strings.Contains(recorded[0], "node_cpu_sample_time_seconds") {
		t.Errorf("events %v, want one SampleTimeUnknown with the query", recorded)
	}

	gauge := func(value string) {
		t.Helper()

		if err := testutil.CollectAndCompare(f.cfg.Metrics, strings.NewReader(`
		# HELP crane_nodeload_undated 1 if the sample times of a metric are unknown, so that its values expire earlier, else 0.
		# TYPE crane_nodeload_undated gauge
		crane_nodeload_undated{metric="cpu_usage_avg_5m"} `+value+"\n"), "crane_nodeload_undated"); err != nil {
			t.Errorf("Collect: %v, want %s", err, value)
		}
	}

	gauge("1")
	f.clock.Step(3 * time.Minute)
	f.Round(t.Context())

	if recorded := f.recorded(); len(recorded) != 0 {
		t.Errorf("events of the second Round %v, want none", recorded)
	}

	w.undated = false
	f.clock.Step(3 * time.Minute)
	f.Round(t.Context())

	if got := w.nodes[0].Annotations["cpu_usage_avg_5m"]; got != "0.10000,2024-05-01T12:06:00Z" {
		t.Errorf("annotation with sample times %q, want the time of now", got)
	}
	gauge("0")
}

func TestSourceGone(t *testing.T) {
	w := newCluster(1)
	w.percent("cpu_usage_avg_5m", 10)
	w.err = errors.New("connection refused")

	f := start(t, w, nodeload.Spec{Metrics: twoMetrics().Metrics[:1]})
	pauses := []time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second, 80 * time.Second, 160 * time.Second, 180 * time.Second, 180 * time.Second}
	for _, want := range pauses {
		next := f.Round(t.Context())
		if got := next.Sub(f.clock.Now()); got != want {
			t.Errorf("Round is repeated in %v, want %v", got, want)
		}

		f.clock.SetTime(next)
	}

	if recorded := f.recorded(); len(recorded) != 1 || !strings.Contains(recorded[0], "connection refused") {
		t.Errorf("events %v, want one with the error", recorded)
	}
	if _, patches := w.drain(); len(patches) > 0 {
		t.Errorf("patches without the source %v, want none", patches)
	}

	w.err = nil
	f.Round(t.Context())

	if _, patches := w.drain(); len(patches) != 1 {
		t.Errorf("patches after the source is back %v, want one", patches)
	}
}

func TestMetricsServer(t *testing.T) {
	w := newCluster(3)
	at := begin.Add(-20 * time.Second)
	w.usages = []Usage{
		{Node: "n0", Time: at, CPU: resource.MustParse("2500m"), Memory: resource.MustParse("50Gi")},
		{Node: "n1", Time: at, CPU: resource.MustParse("1"), Memory: resource.MustParse("1Gi")},
	}

	w.nodes[1].Status.Capacity = nil
	f := start(t, w, nodeload.Spec{Metrics: []nodeload.Metric{
		{Name: "cpu_now", Period: time.Minute, From: nodeload.FromMetricsServer}, {Name: "mem_now", Period: time.Minute, From: nodeload.FromMetricsServer},
	}})
	f.Round(t.Context())

	if queries, patches := w.drain(); len(queries) != 1 || !slices.Equal(patches, []string{"n0"}) {
		t.Errorf("queries %v, patches %v, want one query and n0", queries, patches)
	}
	if got := w.nodes[0].Annotations; got["cpu_now"] != "0.25000,2024-05-01T11:59:40Z" || got["mem_now"] != "0.50000,2024-05-01T11:59:40Z" {
		t.Errorf("annotations of n0 %v, want a quarter of the CPU and half of the memory", got)
	}

	recorded := strings.Join(f.recorded(), "\n")
	if !strings.Contains(recorded, "no capacity") || !strings.Contains(recorded, "not reported") {
		t.Errorf("events %s, want no capacity and not reported", recorded)
	}
}

func TestHotValue(t *testing.T) {
	w := newCluster(3)
	spec := nodeload.Spec{Hot: nodeload.GocraneSpec().Hot}
	w.nodes[1].Annotations = map[string]string{"node_hot_value": "4,2024-05-01T11:59:00Z"}
	w.binds = map[string][]int64{"n0": {10, 3}}
	f := start(t, w, spec)
	next := f.Round(t.Context())

	if got := w.nodes[0].Annotations["node_hot_value"]; got != "3,2024-05-01T12:00:00Z" {
		t.Errorf("hot value of n0 %q, want 3", got)
	}
	if got := w.nodes[1].Annotations["node_hot_value"]; got != "0,2024-05-01T12:00:00Z" {
		t.Errorf("hot value of n1 %q, want 0", got)
	}
	if _, patches := w.drain(); len(patches) != 2 || next.Sub(begin) != hotInterval {
		t.Errorf("patches %v, next round at %v, want 2 patches and %v later", patches, next, hotInterval)
	}

	f.clock.Step(hotInterval)
	f.Round(t.Context())

	if _, patches := w.drain(); len(patches) != 0 {
		t.Errorf("patches without a change %v, want none", patches)
	}
}

// TestYoungNodesNeedNotWait checks that a node added between two readings of a slow metric gets its value with the
// next fast one.
func TestYoungNodesNeedNotWait(t *testing.T) {
	w := newCluster(1)
	w.percent("cpu_usage_avg_5m", 10, 20)
	w.percent("mem_usage_max_avg_1h", 10, 20)
	f := start(t, w, twoMetrics())
	f.Round(t.Context())
	w.drain()

	w.nodes = newCluster(2).nodes
	w.nodes[1].CreationTimestamp = metav1.NewTime(begin.Add(time.Minute))
	w.nodes[0].Annotations = map[string]string{
		"cpu_usage_avg_5m": "0.10000,2024-05-01T12:00:00Z", "mem_usage_max_avg_1h": "0.10000,2024-05-01T12:00:00Z",
	}
	f.clock.Step(3 * time.Minute)
	f.Round(t.Context())

	if queries, patches := w.drain(); len(queries) != 2 || !slices.Equal(patches, []string{"n1"}) || len(w.nodes[1].Annotations) != 2 {
		t.Errorf("with a new node: queries %v, patches %v, annotations %v, want both metrics for n1", queries, patches, w.nodes[1].Annotations)
	}

	f.clock.Step(3 * time.Minute)
	f.Round(t.Context())

	if queries, _ := w.drain(); len(queries) != 1 {
		t.Errorf("queries once the node has its values %v, want one", queries)
	}
}

func TestDryRunAndRefusedWrites(t *testing.T) {
	w := newCluster(2)
	w.percent("cpu_usage_avg_5m", 10, 20)
	f := start(t, w, nodeload.Spec{Metrics: twoMetrics().Metrics[:1]})
	f.cfg.DryRun = true
	f.Round(t.Context())

	if _, patches := w.drain(); len(patches) != 0 || w.nodes[0].Annotations != nil {
		t.Errorf("patches of a dry run %v, want none", patches)
	}

	f.cfg.DryRun = false
	w.reject = errors.New("the server is away")
	f.clock.Step(3 * time.Minute)
	f.Round(t.Context())
	w.reject = nil
	f.clock.Step(3 * time.Minute)
	f.Round(t.Context())

	if _, patches := w.drain(); len(patches) != 2 {
		t.Errorf("patches after refused ones %v, want two", patches)
	}
	if got := testutil.CollectAndCount(f.cfg.Metrics, "crane_nodeload_patches_total"); got != 3 {
		t.Errorf("%d results of patches, want 3", got)
	}
}

// TestInvalidAnnotationsAreReplaced checks that a good value replaces any annotation without a panic.
func TestInvalidAnnotationsAreReplaced(t *testing.T) {
	garbage := []string{"", ",", "0.1,2,3", "NaN,2024-05-01T12:00:00Z", "1e308,2024-05-01T12:00:00Z", "0.1,2099-01-01T00:00:00Z", "-1,x", strings.Repeat("9", 300)}
	w := newCluster(len(garbage))
	values := make([]float64, len(garbage))
	for i, text := range garbage {
		w.nodes[i].Annotations = map[string]string{"cpu_usage_avg_5m": text, "node_hot_value": text}
		values[i] = 50
	}

	w.percent("cpu_usage_avg_5m", values...)
	f := start(t, w, nodeload.Spec{Metrics: twoMetrics().Metrics[:1], Hot: nodeload.GocraneSpec().Hot})
	f.Round(t.Context())

	for _, n := range w.nodes {
		if got := n.Annotations["cpu_usage_avg_5m"]; got != "0.50000,2024-05-01T12:00:00Z" {
			t.Errorf("%s has %q, want the value that was read", n.Name, got)
		}
	}
}

// TestLocalTimeForOldReaders checks that writer and reader of the annotation use one time zone.
func TestLocalTimeForOldReaders(t *testing.T) {
	w := newCluster(1)
	w.percent("cpu_usage_avg_5m", 10)
	f := start(t, w, nodeload.Spec{Metrics: twoMetrics().Metrics[:1]})
	f.cfg.Format = nodeload.Format{Zone: time.FixedZone("Asia/Shanghai", 8*60*60)}
	f.Round(t.Context())

	if got := w.nodes[0].Annotations["cpu_usage_avg_5m"]; got != "0.10000,2024-05-01T20:00:00Z" {
		t.Errorf("annotation %q, want the time of the zone", got)
	}

	w.drain()
	f.clock.Step(3 * time.Minute)
	f.Round(t.Context())

	if _, patches := w.drain(); len(patches) != 0 {
		t.Errorf("patches after its own annotation was read %v, want none", patches)
	}
}

// indexedCluster finds nodes by their number, so that the benchmark does not measure the search.
type indexedCluster struct{ *fakeCluster }

func (c indexedCluster) PatchNode(ctx context.Context, name string, patch []byte) error {
	var i int
	if _, err := fmt.Sscanf(name, "n%d", &i); err != nil {
		return err
	}

	var object struct{ Metadata metav1.ObjectMeta }
	if err := json.Unmarshal(patch, &object); err != nil {
		return err
	}

	c.mu.Lock()
	defer c.mu.Unlock()

	annotations := maps.Clone(c.nodes[i].Annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}

	maps.Copy(annotations, object.Metadata.Annotations)
	c.nodes[i].Annotations = annotations
	c.patches = append(c.patches, name)

	return ctx.Err()
}
