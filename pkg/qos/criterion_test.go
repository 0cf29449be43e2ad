// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package qos

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"crane.io/crane/pkg/units"
)

// diskRules maps the disk metrics to the order of their victims.
func diskRules() map[string]Criterion {
	return map[string]Criterion{
		"disk_read_kibps": ByDiskReadBytes, "disk_write_kibps": ByDiskWriteBytes, "disk_read_iops": ByDiskReads, "disk_read_utilization": ByDiskWork,
		"node_disk_read_bytes_per_second": ByDiskReadBytes, "node_disk_write_bytes_per_second": ByDiskWriteBytes,
		"node_disk_reads_per_second": ByDiskReads, "node_disk_writes_per_second": ByDiskWrites, "node_disk_busy_ratio": ByDiskWork,
		"pod_disk_read_bytes_per_second": ByDiskReadBytes, "pod_disk_write_bytes_per_second": ByDiskWriteBytes,
		"pod_disk_reads_per_second": ByDiskReads, "pod_disk_writes_per_second": ByDiskWrites,
		"node_pressure_io_some_avg10_ratio": ByDiskWork, "node_pressure_io_full_avg60_ratio": ByDiskWork,
		"pod_pressure_io_some_avg60_ratio": ByDiskWork, "pod_pressure_io_full_avg10_ratio": ByDiskWork, "pod_interference_io_ratio": ByDiskWork,
	}
}

// planFor returns the first plan of a rule on a metric that throttles and evicts.
func planFor(metric string, o *Observation) Plan {
	policy := Policy{Limits: DefaultLimits(), Rules: []Rule{{
		Name: "r", Metric: metric, Threshold: 0.1, TriggerCount: 1, RestoreCount: 1, MaxAge: time.Minute,
		Action: Action{Name: "act", Throttle: &CPUThrottling{Step: 0.5}, ThrottleMemory: &MemoryThrottleSettings{}, Evict: &EvictionSettings{}},
	}}}

	o.Samples = map[string][]Sample{metric: {{Value: 0.9, At: o.At}}}
	for i := range o.Pods {
		o.Samples[metric] = append(o.Samples[metric], Sample{Value: 0.9, At: o.At, Labels: map[string]string{labelPod: o.Pods[i].UID}})
	}

	return Decide(&policy, o, &State{})
}

func TestVictimCriterion(t *testing.T) {
	for name, want := range diskRules() {
		m, ok := Lookup(name)
		if !ok || m.victimCriterion() != want || !m.IsDisk() || m.IsMemory() {
			t.Errorf("%s: by %s, want %s (%t)", name, m.victimCriterion(), want, ok)
		}
	}

	for _, m := range nodeMetrics() {
		if strings.Contains(m.Name, "disk") && diskRules()[m.Name] == "" {
			t.Errorf("%s is not in diskRules, want every disk metric there", m.Name)
		}
	}
}

// TestOrderVictims_Disks checks that among equal pods the largest user of the rule's criterion is evicted, never an unmeasured pod or one with a
// negligible use, and that nothing is throttled.
func TestOrderVictims_Disks(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for metric, by := range diskRules() {
		if interferenceResource(metric) != NoResource {
			continue
		}

		for range 100 {
			o := &Observation{At: at(0), Node: Node{CPUs: 8000, Memory: 32 << 30}}
			for i := range 2 + rng.IntN(8) {
				p := Pod{
					UID: fmt.Sprint(i), Namespace: "n", Name: fmt.Sprint("p", i), Class: BestEffort, Priority: int32(rng.IntN(2)), Allowed: []string{"act"},
					UsedCPU:    Measurement[units.MilliCPU]{units.MilliCPU(rng.IntN(4000)), at(0)},
					UsedMemory: Measurement[units.Bytes]{units.Bytes(rng.IntN(4 << 30)), at(0)},
				}

				p.Containers = []Container{{ID: p.UID, Quota: Unlimited, UsedCPU: p.UsedCPU, MemoryHigh: NoMemoryHigh, MemoryUsage: p.UsedMemory, WorkingSet: Measurement[units.Bytes]{1, at(0)}}}
				p.DiskRates = DiskRates{
					Reads: float64(rng.IntN(3) * rng.IntN(5000)), Writes: float64(rng.IntN(3) * rng.IntN(5000)),
					ReadBytes: float64(rng.IntN(3) * rng.IntN(1<<28)), WriteBytes: float64(rng.IntN(3) * rng.IntN(1<<28)),
				}

				if rng.IntN(4) > 0 {
					p.UsedDisks = Measurement[DiskWork]{p.DiskRates.Work(), at(-rng.IntN(3) * 40)}
				}
				o.Pods = append(o.Pods, p)
			}

			plan := planFor(metric, o)
			if len(plan.Throttles)+len(plan.MemoryThrottles) > 0 {
				t.Fatalf("%s: plan %+v, want no throttles for disks", metric, plan)
			}

			var want *Pod
			for i := range o.Pods {
				p := &o.Pods[i]
				v, known := by.valueOf(p, o.At, time.Minute)
				if !known || v <= 0 || v < by.minimum(o) || want != nil && (p.Priority > want.Priority || p.Priority == want.Priority && v <= by.value(want)) {
					continue
				}

				want = p
			}

			switch {
			case want == nil && len(plan.Evictions) > 0, want != nil && (len(plan.Evictions) != 1 || plan.Evictions[0].Pod != want.ref()):
				t.Fatalf("%s: evictions %+v, want %+v", metric, plan.Evictions, want)
			case want == nil && plan.Rules[0].Withheld != WithheldNoCandidate:
				t.Fatalf("%s: finding %+v, want it withheld for lack of a candidate", metric, plan.Rules[0])
			case want != nil && (plan.Evictions[0].Criterion != by || plan.Evictions[0].Freed != by.value(want) || plan.Evictions[0].Resource != Disks):
				t.Fatalf("%s: eviction %+v, want %g by %s", metric, plan.Evictions[0], by.value(want), by)
			}
		}
	}
}

// TestCriterion_DisksUncounted checks that pods are ordered by their wait if the kernel does not count their disk use or their writes, and that no
// pod is evicted if the use was not read yet or is zero.
func TestCriterion_DisksUncounted(t *testing.T) {
	observation := func(rates DiskRates, measured bool) *Observation {
		o := &Observation{At: at(0), Node: Node{CPUs: 8000, Memory: 32 << 30}}
		for i, wait := range []units.Ratio{0.3, 0.9, 0.01} {
			p := Pod{UID: fmt.Sprint(i), Name: fmt.Sprint("p", i), Class: BestEffort, Allowed: []string{"act"}, StalledDisks: Measurement[units.Ratio]{wait, at(0)}}
			p.UsedCPU = Measurement[units.MilliCPU]{units.MilliCPU(1000 * i), at(0)}
			if measured {
				p.UsedDisks = Measurement[DiskWork]{Value: 0, At: at(0)}
			}

			o.Pods = append(o.Pods, p)
		}

		if measured {
			o.Pods[0].DiskRates = rates
			o.Pods[0].UsedDisks.Value = rates.Work()
		}

		return o
	}

	for name, test := range map[string]struct {
		metric     string
		rates      DiskRates
		measured   bool
		missing    string
		inPart     bool
		sensitive  bool
		victim, by string
	}{
		"not yet":                       {metric: "node_disk_busy_ratio"},
		"not yet, in part":              {metric: "node_disk_busy_ratio", inPart: true},
		"nothing is done":               {metric: "node_disk_busy_ratio", measured: true},
		"no controller":                 {metric: "node_disk_busy_ratio", missing: "no controller io", victim: "p1", by: "no controller io"},
		"no controller, reads":          {metric: "disk_read_iops", missing: "no controller io", victim: "p1", by: "90.0 % of the time"},
		"who waits may be the one":      {metric: "disk_read_iops", missing: "no controller io", sensitive: true, victim: "p0", by: "30.0 % of the time"},
		"written later":                 {metric: "disk_write_kibps", measured: true, inPart: true, rates: DiskRates{Reads: 5000}, victim: "p1", by: "none of the pods' writes"},
		"reads are counted":             {metric: "disk_read_kibps", measured: true, inPart: true},
		"some is counted, it is by it":  {metric: "disk_write_kibps", measured: true, inPart: true, rates: DiskRates{WriteBytes: 90 << 20}, victim: "p0", by: "writes 90.0 MiB/s"},
		"interference wants the counts": {metric: "pod_interference_io_ratio", missing: "no controller io"},
	} {
		o := observation(test.rates, test.measured)
		o.Node.DiskUsageUnavailable, o.Node.DiskUsagePartial = test.missing, test.inPart
		if test.sensitive {
			o.Pods[1].SensitiveReason = "cpuPriority 0"
		}

		plan := planFor(test.metric, o)
		got := ""
		why := plan.Rules[0].Reason
		if len(plan.Evictions) > 0 {
			got = plan.Evictions[0].Pod.Name
			why = plan.Evictions[0].Reason
		}

		if len(plan.Evictions) > 1 || got != test.victim || !strings.Contains(why, test.by) {
			t.Errorf("%s: %q goes, want %q: %s", name, got, test.victim, why)
		}
	}
}
