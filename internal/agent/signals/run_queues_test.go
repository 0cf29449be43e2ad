// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package signals

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"crane.io/crane/internal/agent/host"
	"crane.io/crane/internal/agent/observe"
	"crane.io/crane/pkg/qos"
	"crane.io/crane/pkg/units"
)

func known[T any](v T) observe.Known[T] { return observe.Known[T]{Value: v, OK: true} }

// at returns a pod of a snapshot.
func at(t *testing.T, s *observe.Snapshot, uid string) *observe.Pod {
	t.Helper()

	for i := range s.Pods {
		if s.Pods[i].UID == uid {
			return &s.Pods[i]
		}
	}

	t.Fatalf("the snapshot has no pod %s, want it", uid)
	return nil
}

func judged(t *testing.T, o *qos.Observation, uid string) *qos.Pod {
	t.Helper()

	for i := range o.Pods {
		if o.Pods[i].UID == uid {
			return &o.Pods[i]
		}
	}

	t.Fatalf("the observation has no pod %s, want it", uid)
	return nil
}

// TestRareMetrics checks the units of gocrane's rare metrics.
func TestRareMetrics(t *testing.T) {
	_, s := snapshot(t, 0)
	p := at(t, s, burstable)
	id := p.Containers[0].ID
	when := s.At.Add(-5 * time.Second)
	p.Containers[0].RunQueue = known(observe.RunQueue{At: when, Waiting: 0.25, Sampled: 8, Threads: 20})
	s.Node.ExclusiveIdle = known(units.MilliCPU(1250))
	s.Node.Zones = []observe.Zone{{ID: 2, Memory: known(host.ZoneMemory{Total: 100, Free: 20, PageCache: 30})}}
	list := pods(s)
	list.SetOffered(&corev1.Node{Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{"gocrane.io/cpu": resource.MustParse("8")}}})
	var builder SignalBuilder

	o := builder.Build(s, list, false)
	for _, test := range []struct {
		name, label, is string
		want            float64
	}{
		{"container_sched_run_queue_time", "ContainerId", id, 250_000},
		{"container_run_queue_wait_ratio", "ContainerId", id, 0.25},
		{"container_run_queue_wait_ratio", "PodUid", burstable, 0.25},
		{"container_cpu_limit", "ContainerId", id, 2},
		{"exclusive_cpu_idle", "", "", 1250},
		{"ext_cpu_total_distribute", "", "", 0},
		{"node_numa_memory_usage_bytes", "numaNode", "node2", 50},
		{"node_numa_memory_usage_ratio", "numaNode", "node2", 0.5},
	} {
		if got := value(t, o, test.name, test.label, test.is); math.Abs(got-test.want) > 1e-9 {
			t.Errorf("%s{%s=%s} = %g, want %g", test.name, test.label, test.is, got, test.want)
		}
	}

	for name := range o.Samples {
		if _, ok := qos.Lookup(name); !ok {
			t.Errorf("Lookup(%s) = false, want a metric that rules can name", name)
		}
	}

	// A sample has the time of its measurement, so that a rule counts it once.
	if got := o.Samples["container_run_queue_wait_ratio"][0].At; !got.Equal(when) {
		t.Errorf("a sample of %s, want %s", got, when)
	}

	list.SetOffered(nil)
	if o := builder.Build(s, list, false); len(o.Samples["ext_cpu_total_distribute"]) > 0 {
		t.Error("a node without elastic CPU has a distributed share, want none")
	}
}

// TestShares checks the shares the kubelet requests.
func TestShares(t *testing.T) {
	for request, want := range map[units.MilliCPU]float64{0: 2, 1: 2, 100: 102, 1000: 1024, 1500: 1536, 1 << 40: 262144} {
		if got := cpuShares(request); got != want {
			t.Errorf("%dm: %g shares, want %g", request, got, want)
		}
	}
}

// TestStalls checks that a pod's wait is its pressure, else the wait on run queues, with the larger throttled share of the pod and its
// containers.
func TestStalls(t *testing.T) {
	_, s := snapshot(t, 0)
	p := at(t, s, burstable)
	p.StallShares = observe.StallShares{CPU: known(units.Ratio(0.3)), Memory: known(units.Ratio(0.2))}
	p.Throttled = known(units.Ratio(0.1))
	p.Containers[0].Throttled = known(units.Ratio(0.4))
	p.HasExclusiveCPUs = true
	var builder SignalBuilder

	q := judged(t, builder.Build(s, pods(s), false), burstable)
	if q.StalledCPU.Value != 0.3 || q.StalledMemory.Value != 0.2 || q.Throttled.Value != 0.4 || !q.ExclusiveCPUs || !q.StalledCPU.At.Equal(s.At) || q.Labels["PodUid"] != burstable {
		t.Errorf("the pod is %+v, want stalls of 0.3 and 0.2, throttled 0.4 and exclusive CPUs", q)
	}

	p.StallShares = observe.StallShares{}
	p.Pressure = observe.Pressures{}

	if q = judged(t, builder.Build(s, pods(s), false), burstable); !q.StalledCPU.At.IsZero() {
		t.Errorf("without pressure and samples the pod is %+v, want no stall", q)
	}

	p.Containers[0].RunQueue = known(observe.RunQueue{At: s.At.Add(-time.Second), Waiting: 3, Sampled: 8, Threads: 8})
	if q = judged(t, builder.Build(s, pods(s), false), burstable); q.StalledCPU.Value != 1 || !q.StalledCPU.At.Equal(s.At.Add(-time.Second)) {
		t.Errorf("without pressure the pod is %+v, want the stall of its run queue, at most 1", q)
	}
}

func TestRunQueues(t *testing.T) {
	for metric, want := range map[string]observe.Sampling{
		"cpu_total_usage": observe.Never, "container_sched_run_queue_time": observe.Always, "container_run_queue_wait_ratio": observe.Always,
		"pod_interference_cpu_ratio": observe.WithoutPressure, "pod_interference_memory_ratio": observe.Never,
	} {
		if got := RunQueueSampling([]qos.Rule{{Metric: "cpu_load_1_min"}, {Metric: metric}}); got != want {
			t.Errorf("%s: %d, want %d", metric, got, want)
		}
	}
}

// TestTick500 checks the allocations of a tick with 500 pods and rules on interference and run queues.
func TestTick500(t *testing.T) {
	dir, observer, s := recorded(t, 0)
	dir = filepath.Join(dir, "sys/fs/cgroup/kubepods.slice/kubepods-burstable.slice")
	pod := "kubepods-burstable-pod" + strings.ReplaceAll(burstable, "-", "_") + ".slice"
	for i := range 496 {
		// A link to a pod's directory looks like another pod and is faster to create.
		if err := os.Symlink(pod, filepath.Join(dir, fmt.Sprintf("kubepods-burstable-pod%08d%s", i, pod[len("kubepods-burstable-pod")+8:]))); err != nil {
			t.Fatal(err)
		}
	}

	if s = observer.Collect(s.At.Add(time.Second)); len(s.Pods) != 500 {
		t.Fatalf("%d pods, want 500", len(s.Pods))
	}

	list := pods(s)
	rules := policy()
	for _, metric := range []string{"pod_interference_cpu_ratio", "pod_interference_memory_ratio", "container_sched_run_queue_time"} {
		rule := rules.Rules[0]
		rule.Name = "n/" + metric
		rule.Metric = metric
		rules.Rules = append(rules.Rules, rule)
	}

	observer.SetRunQueueSampling(RunQueueSampling(rules.Rules))
	var builder SignalBuilder
	var state qos.State
	now := s.At

	tick := func() {
		now = now.Add(time.Second)
		o := builder.Build(observer.Collect(now), list, false)
		if plan := qos.Decide(&rules, o, &state); len(o.Pods) != 500 || len(plan.Rules) != len(rules.Rules) {
			t.Fatalf("%d pods, %d rules; want 500 and %d", len(o.Pods), len(plan.Rules), len(rules.Rules))
		}
	}

	for range 3 {
		tick()
	}

	if len(s.Problems) > 0 {
		t.Errorf("problems are %v, want none", s.Problems)
	}
	// A fifth of the pods is listed again per scan, each with a new path.
	if allocations := testing.AllocsPerRun(2, tick); allocations > 1500 {
		t.Errorf("a tick allocates %g times, want at most 1500", allocations)
	}
}

// BenchmarkInterference110 measures a tick with rules on interference and 110 latency-sensitive pods, the most expensive case.
func BenchmarkInterference110(b *testing.B) {
	observer, s := snapshot(b, 106)
	list := pods(s)
	rules := policy()
	list.MarkSensitive(func(*corev1.Pod) (int32, bool) { return 0, true })

	for _, metric := range []string{qos.InterferenceCPU, qos.InterferenceMemory} {
		rule := rules.Rules[0]
		rule.Name = "n/" + metric
		rule.Metric = metric
		rule.Threshold = 0.1
		rules.Rules = append(rules.Rules, rule)
	}

	var builder SignalBuilder
	var state qos.State
	now := s.At
	b.ReportAllocs()

	for b.Loop() {
		now = now.Add(time.Second)
		o := builder.Build(observer.Collect(now), list, false)
		if plan := qos.Decide(&rules, o, &state); len(plan.Rules) != len(rules.Rules) {
			b.Fatalf("the plan has %d rules, want %d", len(plan.Rules), len(rules.Rules))
		}
	}
}
