// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package signals

import (
	"math"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"crane.io/crane/internal/agent/host"
	"crane.io/crane/internal/agent/host/cgroup"
	"crane.io/crane/internal/agent/inventory"
	"crane.io/crane/internal/agent/observe"
	"crane.io/crane/pkg/qos"
	"crane.io/crane/test/hostrecording"
)

const (
	burstable           = "9b8de3f4-3c1b-4a57-8f4e-2f6a1a3f7c02"
	guaranteedContainer = "014b5c6d7e8f90a1014b5c6d7e8f90a1014b5c6d7e8f90a1014b5c6d7e8f90a1"
)

func snapshot(t testing.TB, copies int) (*observe.Observer, *observe.Snapshot) {
	t.Helper()
	_, o, s := recorded(t, copies)
	return o, s
}

// recorded returns a recorded tree, its observer and the second snapshot.
func recorded(t testing.TB, copies int) (string, *observe.Observer, *observe.Snapshot) {
	t.Helper()

	rec := hostrecording.ForTest(t, "v2-systemd-containerd")
	rec.Multiply(burstable, copies)

	layout, err := cgroup.Detect(host.Root(rec.Dir))
	if err != nil {
		t.Fatal(err)
	}

	o := observe.New(host.Root(rec.Dir), layout)
	t.Cleanup(o.Close)
	now := time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC)
	o.Collect(now)
	rec.To(1)

	return rec.Dir, o, o.Collect(now.Add(rec.Moments[1].At))
}

func pods(s *observe.Snapshot) inventory.Pods {
	var list []*corev1.Pod
	for i := range s.Pods {
		seen := &s.Pods[i]
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "pod-" + seen.UID, UID: types.UID(seen.UID)}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
		p.Spec.Containers = []corev1.Container{{Name: "main"}}
		if seen.UID == burstable {
			p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"gocrane.io/cpu": resource.MustParse("2")}
		}

		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", ContainerID: "containerd://" + seen.Containers[0].ID}}
		list = append(list, p)
	}

	return inventory.New(list, func(*corev1.Pod) []string { return nil }, func(*corev1.Pod) string { return "" })
}

func value(t *testing.T, o *qos.Observation, name, label, is string) float64 {
	t.Helper()

	for _, s := range o.Samples[name] {
		if label == "" || s.Labels[label] == is {
			return s.Value
		}
	}

	t.Errorf("the observation has no %s with %s=%s, want one", name, label, is)
	return math.NaN()
}

// TestUnits checks that each metric has the unit of its name and documentation.
func TestUnits(t *testing.T) {
	_, s := snapshot(t, 0)
	var builder SignalBuilder

	o := builder.Build(s, pods(s), true)
	if !o.Node.Avoided || o.Node.CPUs != 4000 || o.Node.UsedCPU.Value != 2000 {
		t.Errorf("the node is %+v, want 2 of 4 cores in use and new pods kept away", o.Node)
	}

	for _, test := range []struct {
		name, label, is string
		want            float64
	}{
		{"cpu_total_usage", "", "", 2000},
		{"cpu_total_utilization", "", "", 50},
		{"cpu_core_numbers", "", "", 4},
		{"node_cpu_usage_cores", "", "", 2},
		{"node_cpu_usage_ratio", "", "", 0.5},
		{"memory_total", "", "", 16384000 << 10},
		{"memory_total_usage", "", "", (16384000 - 8000000) << 10},
		{"node_memory_usage_ratio", "", "", 8384000.0 / 16384000},
		{"cpu_load_1_min", "", "", 1.2},
		{"cpu_load_5_min", "", "", 0.9},
		{"cpu_load_15_min", "", "", 0.7},
		{"disk_read_kibps", "diskName", "nvme0n1", 40},
		{"disk_write_kibps", "diskName", "nvme0n1", 480},
		{"disk_read_iops", "diskName", "nvme0n1", 10},
		{"node_disk_writes_per_second", "diskName", "nvme0n1", 60},
		{"disk_read_utilization", "diskName", "nvme0n1", 12},
		{"network_receive_kibps", "NetInterface", "eth0", 10000},
		{"network_sent_kibps", "NetInterface", "eth0", 1000},
		{"node_network_receive_bytes_per_second", "NetInterface", "eth0", 1.25e6},
		{"network_receive_pckps", "NetInterface", "eth0", 1250},
		{"node_pressure_cpu_some_avg10_ratio", "", "", 0.015},
		{"pod_pressure_io_full_avg60_ratio", "PodUid", burstable, 0.001},
		{"container_cpu_total_usage", "PodUid", burstable, 0.9},
		{"container_cpu_total_usage", "ContainerId", guaranteedContainer, 0.5},
		{"container_mem_total_usage", "PodUid", burstable, (1024 - 128) << 20},
		{"container_cpu_throttled_ratio", "ContainerId", guaranteedContainer, 0.5},
		{"container_cpu_quota", "ContainerId", guaranteedContainer, 50000},
		{"container_cpu_period", "ContainerId", guaranteedContainer, 100000},
		{"ext_res_container_cpu_total_usage", "", "", 0.9},
		{"container_cpu_total_usage", "HasExtRes", "true", 0.9},
	} {
		if got := value(t, o, test.name, test.label, test.is); math.Abs(got-test.want) > 1e-6*math.Max(1, math.Abs(test.want)) {
			t.Errorf("%s{%s=%s} = %g, want %g", test.name, test.label, test.is, got, test.want)
		}
		if _, ok := qos.Lookup(test.name); !ok {
			t.Errorf("Lookup(%s) = false, want a metric that rules can name", test.name)
		}
	}

	for name := range o.Samples {
		if _, ok := qos.Lookup(name); !ok {
			t.Errorf("Lookup(%s) = false, want a metric that rules can name", name)
		}
	}
}

// TestPods checks that a sandbox is not a container and that a quota is in millicores.
func TestPods(t *testing.T) {
	_, s := snapshot(t, 0)
	var builder SignalBuilder
	for _, p := range builder.Build(s, pods(s), false).Pods {
		if len(p.Containers) != 1 || p.Containers[0].Name != "main" || p.UsedCPU.At.IsZero() || p.UsedMemory.Value <= 0 {
			t.Errorf("the pod is %+v, want container main and measured CPU and memory", p)
		}

		want := qos.Unlimited
		if p.UsedCPU.Value == 500 {
			want = 500
		}
		if p.Containers[0].Quota != want {
			t.Errorf("a quota of %s, want %s", p.Containers[0].Quota, want)
		}
	}

	// Unknown pods have a class and no containers.
	for _, p := range builder.Build(s, inventory.Pods{}, false).Pods {
		if p.Class == "" || len(p.Containers) > 0 || p.Allowed != nil {
			t.Errorf("the unknown pod is %+v, want a class only", p)
		}
	}

	// Labels of removed pods are dropped.
	s.Pods = nil

	s.Disks = nil
	s.Interfaces = nil
	if o := builder.Build(s, inventory.Pods{}, false); len(o.Pods) > 0 || len(builder.labels) > 0 || len(o.Samples["container_cpu_total_usage"]) > 0 {
		t.Errorf("without objects there are %d pods and %d labels, want none", len(o.Pods), len(builder.labels))
	}
}

// policy returns typical rules.
func policy() qos.Policy {
	p := qos.Policy{Limits: qos.DefaultLimits()}
	for _, m := range []string{"cpu_total_utilization", "memory_total_utilization", "node_pressure_cpu_some_avg10_ratio", "node_pressure_memory_full_avg10_ratio", "container_cpu_total_usage"} {
		p.Rules = append(p.Rules, qos.Rule{Name: "n/" + m, Metric: m, Threshold: 99, TriggerCount: 2, RestoreCount: 2, MaxAge: time.Minute, Action: qos.Action{Name: "a", Evict: &qos.EvictionSettings{}}})
	}

	return p
}

// BenchmarkTick110 measures a whole tick, from files to plan, of a node with 110 pods of a container and a sandbox each.
func BenchmarkTick110(b *testing.B) {
	observer, s := snapshot(b, 106)
	known := pods(s)
	rules := policy()
	var builder SignalBuilder
	var state qos.State
	now := s.At
	b.ReportAllocs()

	for b.Loop() {
		now = now.Add(time.Second)
		o := builder.Build(observer.Collect(now), known, false)
		if plan := qos.Decide(&rules, o, &state); len(plan.Rules) != len(rules.Rules) {
			b.Fatalf("the plan has %d rules, want %d", len(plan.Rules), len(rules.Rules))
		}
	}
}
