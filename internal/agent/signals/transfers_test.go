// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package signals

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"crane.io/crane/internal/agent/observe"
	"crane.io/crane/pkg/qos"
	"crane.io/crane/pkg/units"
)

// TestTransfers checks the disk metrics of pods with the time of their sample.
func TestTransfers(t *testing.T) {
	_, s := snapshot(t, 0)
	p := at(t, s, burstable)
	when := s.At.Add(-3 * time.Second)
	p.DiskIO = known(observe.DiskIORate{At: when, Reads: 10, Writes: 20, ReadBytes: 64 << 10, WriteBytes: 128 << 10})
	p.StallShares = observe.StallShares{IO: known(units.Ratio(0.3))}
	s.Node.DiskIOUnsupported = "not by this kernel"
	s.Node.DiskIOPartial = true
	p.Cycles = known(observe.Cycles{At: when, PerInstruction: 1.5})
	var builder SignalBuilder

	o := builder.Build(s, pods(s), false)
	for name, want := range map[string]float64{
		"pod_cycles_per_instruction": 1.5, "pod_disk_reads_per_second": 10, "pod_disk_writes_per_second": 20, "pod_disk_read_bytes_per_second": 64 << 10, "pod_disk_write_bytes_per_second": 128 << 10,
	} {
		if got := value(t, o, name, "PodUid", burstable); got != want {
			t.Errorf("%s is %g, want %g", name, got, want)
		}
		if list := o.Samples[name]; len(list) != 1 || !list[0].At.Equal(when) {
			t.Errorf("%s: %+v, want one sample of %s", name, list, when)
		}
		if _, ok := qos.Lookup(name); !ok {
			t.Errorf("Lookup(%s) = false, want a metric that rules can name", name)
		}
	}

	if q := judged(t, o, burstable); q.UsedDisks.Value != 33 || !q.UsedDisks.At.Equal(when) || q.StalledDisks.Value != 0.3 || !q.StalledDisks.At.Equal(s.At) ||
		q.DiskRates != (qos.DiskRates{Reads: 10, Writes: 20, ReadBytes: 64 << 10, WriteBytes: 128 << 10}) {
		t.Errorf("the pod is %+v, want disk work 33 of the sample and a stall of 0.3", q)
	}
	if o.Node.DiskUsageUnavailable != "not by this kernel" || !o.Node.DiskUsagePartial {
		t.Errorf("the node is %+v, want the reason and partial usage", o.Node)
	}
}

func TestTransfersEvery(t *testing.T) {
	for metric, want := range map[string]time.Duration{
		"pod_interference_io_ratio": 5 * time.Second, "pod_disk_reads_per_second": 5 * time.Second, "pod_interference_cpu_ratio": 0, "node_disk_busy_ratio": 0, "pod_disk_": 0,
	} {
		rules := []qos.Rule{{Metric: "cpu_load_1_min"}, {Metric: metric}}
		if got := TransferInterval(rules, false); got != want {
			t.Errorf("%s: every %s, want %s", metric, got, want)
		}
		if got := TransferInterval(rules, true); got != max(want, 5*time.Second) && got != 15*time.Second {
			t.Errorf("%s, exported: every %s, want %s, or 15s without rules", metric, got, max(want, 5*time.Second))
		}
	}

	// Rules on the node's disks need pod disk use for the order of victims.
	for metric, want := range map[string]time.Duration{"node_disk_busy_ratio": 5 * time.Second, "disk_write_kibps": 5 * time.Second, "node_pressure_io_full_avg10_ratio": 5 * time.Second, "node_pressure_cpu_full_avg10_ratio": 0} {
		if got := TransferInterval([]qos.Rule{{Metric: metric, Action: qos.Action{Evict: &qos.EvictionSettings{}}}}, false); got != want {
			t.Errorf("%s, evicting: every %s, want %s", metric, got, want)
		}
	}

	if got := TransferInterval(nil, true); got != 15*time.Second {
		t.Errorf("TransferInterval(nil, true) = %s, want 15s", got)
	}
}

// BenchmarkTransfers110 is BenchmarkTick110 without disk use of pods, with it exported, and with it used by a rule.
func BenchmarkTransfers110(b *testing.B) {
	dir, observer, s := recorded(b, 106)
	groups, err := filepath.Glob(filepath.Join(dir, "sys/fs/cgroup/kubepods.slice/kubepods-burstable.slice/*.slice"))
	if err != nil || len(groups) < 100 {
		b.Fatal(len(groups), err)
	}

	for _, group := range groups {
		if err := os.WriteFile(filepath.Join(group, "io.stat"), []byte("259:0 rbytes=1459200 wbytes=314773504 rios=192 wios=353 dbytes=0 dios=0\n"), 0o600); err != nil {
			b.Fatal(err)
		}
	}

	known := pods(s)
	rules := policy()
	now := s.At
	for name, every := range map[string]time.Duration{"never": 0, "shown": transfersForMetrics, "rule": transfersForRules} {
		b.Run(name, func(b *testing.B) {
			observer.SetDiskIOInterval(every)
			var builder SignalBuilder
			var state qos.State
			b.ReportAllocs()

			for b.Loop() {
				now = now.Add(time.Second)
				o := builder.Build(observer.Collect(now), known, false)
				if plan := qos.Decide(&rules, o, &state); len(plan.Rules) != len(rules.Rules) {
					b.Fatalf("the plan has %d rules, want %d", len(plan.Rules), len(rules.Rules))
				}
			}

			if s := observer.Collect(now); every > 0 && len(s.Problems) > 0 {
				b.Fatalf("problems are %v, want none", s.Problems)
			}
		})
	}
}
