// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package usagemetrics

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"crane.io/crane/internal/agent/host"
	"crane.io/crane/internal/agent/host/cgroup"
	"crane.io/crane/internal/agent/observe"
	"crane.io/crane/pkg/units"
	"crane.io/crane/test/hostrecording"
)

const (
	guaranteed = "6f1c2b1a-0d6e-4a9e-9d53-5a7f0f6f1a01"
	burstable  = "9b8de3f4-3c1b-4a57-8f4e-2f6a1a3f7c02"
)

// fixture is an observed recorded node.
type fixture struct {
	rec       *hostrecording.Recorder
	observer  *observe.Observer
	latest    observe.Latest
	clock     *clocktesting.FakePassiveClock
	collector *Collector
}

func newFixture(t *testing.T, copies int) *fixture {
	t.Helper()

	b := &fixture{rec: hostrecording.ForTest(t, "v2-systemd-containerd"), clock: clocktesting.NewFakePassiveClock(time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC))}
	b.rec.Multiply(burstable, copies)

	layout, err := cgroup.Detect(host.Root(b.rec.Dir))
	if err != nil {
		t.Fatal(err)
	}

	b.observer = observe.New(host.Root(b.rec.Dir), layout)
	t.Cleanup(b.observer.Close)
	b.collector = New(Config{Latest: &b.latest, Clock: b.clock, Pods: func() []*corev1.Pod {
		return []*corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: guaranteed}}}
	}})

	return b
}

func (b *fixture) observe(t *testing.T, moment int) {
	t.Helper()

	b.rec.To(moment)
	b.clock.SetTime(b.clock.Now().Add(10 * time.Second))
	b.latest.Publish(b.observer.Collect(b.clock.Now()))
}

// transferring adds disk use to the Guaranteed pod of the latest snapshot.
func transferring(latest *observe.Latest) {
	s := *latest.Load()
	s.Pods = slices.Clone(s.Pods)
	for i := range s.Pods {
		if p := &s.Pods[i]; p.UID == guaranteed {
			p.Cycles = observe.Known[observe.Cycles]{Value: observe.Cycles{At: s.At, PerInstruction: 1.5}, OK: true}
			p.DiskIO = observe.Known[observe.DiskIORate]{Value: observe.DiskIORate{At: s.At, Reads: 1, Writes: 2, ReadBytes: 3, WriteBytes: 4}, OK: true}
		}
	}

	latest.Publish(&s)
}

// TestCollect checks names, labels and units.
func TestCollect(t *testing.T) {
	b := newFixture(t, 0)
	if n := testutil.CollectAndCount(b.collector); n != 0 {
		t.Errorf("%d series before the first snapshot, want none", n)
	}

	b.observe(t, 0)
	if n := testutil.CollectAndCount(b.collector, "crane_agent_node_cpu_usage_cores", "crane_agent_pod_cpu_usage_cores"); n != 0 {
		t.Errorf("%d rates after one snapshot, want none", n)
	}

	b.observe(t, 1)
	transferring(&b.latest)

	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(b.collector); err != nil {
		t.Fatal(err)
	}

	want := `
# HELP crane_agent_node_cpu_usage_cores CPU use between the last two measurements, in cores.
# TYPE crane_agent_node_cpu_usage_cores gauge
crane_agent_node_cpu_usage_cores 2
# HELP crane_agent_node_disk_write_bytes_per_second Bytes written to a disk.
# TYPE crane_agent_node_disk_write_bytes_per_second gauge
crane_agent_node_disk_write_bytes_per_second{disk="nvme0n1"} 491520
# HELP crane_agent_node_memory_usage_bytes Memory that is not available to new processes, in bytes.
# TYPE crane_agent_node_memory_usage_bytes gauge
crane_agent_node_memory_usage_bytes 8.585216e+09
# HELP crane_agent_node_network_receive_bytes_per_second Bytes received by an interface of the host.
# TYPE crane_agent_node_network_receive_bytes_per_second gauge
crane_agent_node_network_receive_bytes_per_second{interface="eth0"} 1.25e+06
# HELP crane_agent_observed_pods Pods found by the last measurement.
# TYPE crane_agent_observed_pods gauge
crane_agent_observed_pods 4
# HELP crane_agent_observed_timestamp_seconds Time of the last measurement, in seconds since 1970.
# TYPE crane_agent_observed_timestamp_seconds gauge
crane_agent_observed_timestamp_seconds 1.76757122e+09
# HELP crane_agent_pod_cpu_limit_cores CPU limit in force, in cores; absent if there is none.
# TYPE crane_agent_pod_cpu_limit_cores gauge
crane_agent_pod_cpu_limit_cores{namespace="shop",pod="web",uid="` + guaranteed + `"} 0.5
# HELP crane_agent_pod_cycles_per_instruction CPU cycles that a latency-sensitive pod needed for an instruction, when they were counted last.
# TYPE crane_agent_pod_cycles_per_instruction gauge
crane_agent_pod_cycles_per_instruction{namespace="shop",pod="web",uid="` + guaranteed + `"} 1.5
# HELP crane_agent_pod_disk_read_bytes_per_second Bytes that the pod read from disks, of the last sample.
# TYPE crane_agent_pod_disk_read_bytes_per_second gauge
crane_agent_pod_disk_read_bytes_per_second{namespace="shop",pod="web",uid="` + guaranteed + `"} 3
# HELP crane_agent_pod_disk_reads_per_second Reads of disks by the pod, of the last sample.
# TYPE crane_agent_pod_disk_reads_per_second gauge
crane_agent_pod_disk_reads_per_second{namespace="shop",pod="web",uid="` + guaranteed + `"} 1
# HELP crane_agent_pod_disk_write_bytes_per_second Bytes that the pod wrote to disks, of the last sample.
# TYPE crane_agent_pod_disk_write_bytes_per_second gauge
crane_agent_pod_disk_write_bytes_per_second{namespace="shop",pod="web",uid="` + guaranteed + `"} 4
# HELP crane_agent_pod_disk_writes_per_second Writes to disks by the pod, of the last sample.
# TYPE crane_agent_pod_disk_writes_per_second gauge
crane_agent_pod_disk_writes_per_second{namespace="shop",pod="web",uid="` + guaranteed + `"} 2
`

	names := []string{
		"crane_agent_node_cpu_usage_cores", "crane_agent_node_disk_write_bytes_per_second", "crane_agent_node_memory_usage_bytes",
		"crane_agent_node_network_receive_bytes_per_second", "crane_agent_observed_pods", "crane_agent_observed_timestamp_seconds",
		"crane_agent_pod_cpu_limit_cores", "crane_agent_pod_cycles_per_instruction", "crane_agent_pod_disk_read_bytes_per_second", "crane_agent_pod_disk_reads_per_second",
		"crane_agent_pod_disk_write_bytes_per_second", "crane_agent_pod_disk_writes_per_second",
	}

	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}

	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}

	found := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			key := []string{f.GetName()}
			for _, l := range m.GetLabel() {
				key = append(key, l.GetValue())
			}
			found[strings.Join(key, ",")] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}

	for key, want := range map[string]float64{
		"crane_agent_pod_cpu_usage_cores,shop,web," + guaranteed:          0.5,
		"crane_agent_pod_cpu_usage_cores,,," + burstable:                  0.9, // its name is unknown
		"crane_agent_pod_cpu_throttled_ratio,shop,web," + guaranteed:      0.5,
		"crane_agent_pod_memory_working_set_bytes,shop,web," + guaranteed: (512 - 64) << 20,
		"crane_agent_node_load,5":                                         0.9,
		"crane_agent_node_disk_busy_ratio,nvme0n1":                        0.12,
		"crane_agent_node_cpus":                                           4,
	} {
		if got, ok := found[key]; !ok || got-want > 1e-9 || want-got > 1e-9 {
			t.Errorf("%s = %g, %t; want %g", key, got, ok, want)
		}
	}

	if n := testutil.CollectAndCount(b.collector, "crane_agent_pod_pressure_stalled_seconds_total"); n != 4*3*2 {
		t.Errorf("%d series of pressure, want those of 4 pods, 3 resources, some and full", n)
	}

	s := *b.latest.Load()
	s.Node.ExclusiveIdle = observe.Known[units.MilliCPU]{Value: 1500, OK: true}
	s.Pods[0].Containers[0].RunQueue = observe.Known[observe.RunQueue]{Value: observe.RunQueue{Waiting: 0.5, Sampled: 8, Threads: 20}, OK: true}
	b.latest.Publish(&s)

	for name, want := range map[string]int{
		"crane_agent_node_exclusive_cpu_idle_cores": 1, "crane_agent_node_numa_memory_bytes": 2, "crane_agent_node_numa_memory_usage_bytes": 2,
		"crane_agent_pod_run_queue_wait_ratio": 1, "crane_agent_pod_run_queue_threads": 1, "crane_agent_pod_run_queue_sampled_threads": 1,
	} {
		if n := testutil.CollectAndCount(b.collector, name); n != want {
			t.Errorf("%d series of %s, want %d", n, name, want)
		}
	}

	problems, err := testutil.CollectAndLint(b.collector)
	if err != nil || len(problems) > 0 {
		t.Errorf("CollectAndLint = %v, %v, want no problem", problems, err)
	}
}

// TestGone checks that a series ends with its pod, and all series with the snapshots.
func TestGone(t *testing.T) {
	b := newFixture(t, 0)
	b.observe(t, 0)
	b.observe(t, 1)

	if n := testutil.CollectAndCount(b.collector, "crane_agent_pod_memory_usage_bytes"); n != 4 {
		t.Fatalf("%d pods, want 4", n)
	}

	s := b.latest.Load()
	without := *s
	without.Pods = without.Pods[1:]
	b.latest.Publish(&without)

	if n := testutil.CollectAndCount(b.collector, "crane_agent_pod_memory_usage_bytes"); n != 3 {
		t.Errorf("%d pods, want 3", n)
	}

	b.clock.SetTime(b.clock.Now().Add(2 * time.Minute))
	if n := testutil.CollectAndCount(b.collector); n != 1 {
		t.Errorf("%d series of two minutes ago, want that of the time alone", n)
	}
}

// TestBound checks that the number of series grows only with the pods.
func TestBound(t *testing.T) {
	b := newFixture(t, 0)
	b.observe(t, 0)
	b.observe(t, 1)
	few := testutil.CollectAndCount(b.collector)
	b = newFixture(t, 100)
	b.observe(t, 0)
	b.observe(t, 1)

	many := testutil.CollectAndCount(b.collector)
	if each := (many - few) / 100; each > 13 || many-few < 100 {
		t.Errorf("%d series for 4 pods, %d for 104: %d each, want 13 at most", few, many, each)
	}
}

// TestHostileNames checks odd, duplicate and non-UTF-8 names.
func TestHostileNames(t *testing.T) {
	b := newFixture(t, 0)
	b.observe(t, 0)
	b.observe(t, 1)
	s := *b.latest.Load()
	odd := s.Interfaces[0]
	odd.Name = "veth\xff\xfe"
	s.Interfaces = []observe.Interface{s.Interfaces[0], odd}
	s.Pods = append([]observe.Pod{s.Pods[0]}, s.Pods...)
	b.latest.Publish(&s)

	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(b.collector); err != nil {
		t.Fatal(err)
	}

	if _, err := registry.Gather(); err != nil {
		t.Error(err)
	}
	if n := testutil.CollectAndCount(b.collector, "crane_agent_node_network_receive_bytes_per_second"); n != 2 {
		t.Errorf("%d interfaces, want 2", n)
	}
}
