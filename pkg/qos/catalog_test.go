// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package qos

import (
	"math"
	"testing"
	"time"

	"crane.io/crane/pkg/units"
)

// TestCatalog checks for each of gocrane's metrics the order of victims, the resource of its water mark, the gap per unit above the
// threshold (0: unknown, one victim at a time) and the possible victims.
func TestCatalog(t *testing.T) {
	const anybody, elastic, own, holders, none = "any", "elastic", "own", "holders", "none"
	const gap = 1.1 // a tenth more than the excess
	node := Node{CPUs: 8000, Memory: 1 << 30}
	for name, want := range map[string]struct {
		by  Criterion
		of  units.Resource
		gap float64
		who string
	}{
		"cpu_total_usage":                   {ByCPU, units.CPU, gap, anybody},
		"cpu_total_utilization":             {ByCPU, units.CPU, 80 * gap, anybody},
		"cpu_load_1_min":                    {ByCPU, NoResource, 0, anybody},
		"cpu_load_5_min":                    {ByCPU, NoResource, 0, anybody},
		"cpu_load_15_min":                   {ByCPU, NoResource, 0, anybody},
		"cpu_core_numbers":                  {ByCPU, NoResource, 0, none},
		"exclusive_cpu_idle":                {ByCPU, NoResource, 0, none},
		"memory_total_usage":                {ByMemory, units.Memory, gap, anybody},
		"memory_total_utilization":          {ByMemory, units.Memory, (1 << 30) * gap / 100, anybody},
		"memory_total":                      {ByCPU, NoResource, 0, none},
		"disk_read_kibps":                   {ByDiskReadBytes, NoResource, 0, anybody},
		"disk_write_kibps":                  {ByDiskWriteBytes, NoResource, 0, anybody},
		"disk_read_iops":                    {ByDiskReads, NoResource, 0, anybody},
		"disk_read_utilization":             {ByDiskWork, NoResource, 0, anybody},
		"network_receive_kibps":             {ByCPU, NoResource, 0, anybody},
		"network_sent_kibps":                {ByCPU, NoResource, 0, anybody},
		"network_receive_pckps":             {ByCPU, NoResource, 0, anybody},
		"network_sent_pckps":                {ByCPU, NoResource, 0, anybody},
		"network_drop_in":                   {ByCPU, NoResource, 0, anybody},
		"network_drop_out":                  {ByCPU, NoResource, 0, anybody},
		"container_cpu_total_usage":         {ByCPU, NoResource, 0, own},
		"container_cpu_limit":               {ByCPU, NoResource, 0, none},
		"container_cpu_quota":               {ByCPU, NoResource, 0, none},
		"container_cpu_period":              {ByCPU, NoResource, 0, none},
		"container_sched_run_queue_time":    {ByCPU, NoResource, 0, anybody},
		"container_mem_total_usage":         {ByMemory, NoResource, 0, own},
		"ext_res_container_cpu_total_usage": {ByCPU, units.CPU, 1000 * gap, elastic},
		"ext_res_container_mem_total_usage": {ByMemory, units.Memory, gap, elastic},
		"ext_cpu_total_distribute":          {ByCPU, NoResource, 0, holders},
	} {
		m, ok := Lookup(name)
		if !ok || m.victimCriterion() != want.by || m.Resource != want.of {
			t.Errorf("%s: by %s of %q, want %s of %q (%t)", name, m.victimCriterion(), m.Resource, want.by, want.of, ok)
		}

		o := &Observation{At: at(0), Node: node}
		o.Node.UsedCPU = Measurement[units.MilliCPU]{8000, at(0)}
		o.Node.UsedMemory = Measurement[units.Bytes]{1 << 30, at(0)}
		for i, who := range []string{anybody, elastic, own, holders} {
			p := Pod{
				UID: who, Name: who, Class: BestEffort, Priority: int32(i), Allowed: []string{"act"}, Elastic: who == elastic, HoldsCPU: who == holders,
				UsedCPU: Measurement[units.MilliCPU]{2000, at(0)}, UsedMemory: Measurement[units.Bytes]{200 << 20, at(0)},
				DiskRates: DiskRates{1000, 1000, 1 << 20, 1 << 20}, UsedDisks: Measurement[DiskWork]{2032, at(0)},
			}

			o.Pods = append(o.Pods, p)
		}

		// Elastic pods come first, so any selects the elastic one.
		o.Samples = map[string][]Sample{name: {
			{Value: 1.5, At: at(0), Labels: map[string]string{labelPod: anybody}}, {Value: 3, At: at(0), Labels: map[string]string{labelPod: own}},
		}}
		policy := Policy{Limits: DefaultLimits(), Rules: []Rule{{
			Name: "r", Metric: name, Threshold: 2, TriggerCount: 1, RestoreCount: 1, MaxAge: time.Minute, Action: Action{Name: "act", Evict: &EvictionSettings{}},
		}}}
		plan := Decide(&policy, o, &State{})

		f := plan.Rules[0]
		if f.Phase != Firing || math.Abs(f.Gap-want.gap) > 1e-6*want.gap {
			t.Errorf("%s: %s, %g has to go, want %g", name, f.Phase, f.Gap, want.gap)
		}

		who := want.who
		if who == anybody {
			who = elastic // the first of all
		}

		got := none
		if len(plan.Evictions) > 0 {
			got = plan.Evictions[0].Pod.Name
		}
		if len(plan.Evictions) > 1 || got != who {
			t.Errorf("%s: %d evictions, the first of %s, want only %s: %s", name, len(plan.Evictions), got, who, f.Reason)
		}

		// A water mark applies only to the metric's resource.
		policy.WaterMarks = map[units.Resource]units.Ratio{units.CPU: 1, units.Memory: 1}

		held := Decide(&policy, o, &State{}).Rules[0].Withheld == WithheldByWaterMark
		if held != (want.of != NoResource) {
			t.Errorf("%s: withheld by a water mark %t, want %t", name, held, want.of != NoResource)
		}
	}
}

// TestOrderVictims_OwnUse checks that a rule on the own use of pods evicts the selected pod above the threshold even if others come first in order, and
// falls back to the order if that pod is exempt.
func TestOrderVictims_OwnUse(t *testing.T) {
	o := &Observation{At: at(0), Node: Node{CPUs: 8000, Memory: 32 << 30}}
	for i, name := range []string{"small", "large", "largest"} {
		o.Pods = append(o.Pods, Pod{
			UID: name, Name: name, Class: BestEffort, Priority: int32(i), Allowed: []string{"act"}, UsedMemory: Measurement[units.Bytes]{units.Bytes(1+i) << 30, at(0)},
		})
	}

	o.Pods = append(o.Pods, Pod{UID: "static", Name: "static", UsedMemory: Measurement[units.Bytes]{4 << 30, at(0)}})
	o.Samples = map[string][]Sample{}
	for i := range o.Pods {
		p := &o.Pods[i]
		o.Samples["container_mem_total_usage"] = append(o.Samples["container_mem_total_usage"], Sample{Value: float64(p.UsedMemory.Value), At: at(0), Labels: map[string]string{labelPod: p.UID}})
	}

	for name, test := range map[string]struct {
		above   float64
		selects func(map[string]string) bool
		want    string
	}{
		"the first above":  {1.5 * (1 << 30), nil, "large"},
		"the largest":      {2.5 * (1 << 30), nil, "largest"},
		"a selected one":   {0.5 * (1 << 30), func(l map[string]string) bool { return l[labelPod] == "largest" }, "largest"},
		"one that may not": {0.5 * (1 << 30), func(l map[string]string) bool { return l[labelPod] == "static" }, "small"},
	} {
		policy := Policy{Limits: DefaultLimits(), Rules: []Rule{{
			Name: "r", Metric: "container_mem_total_usage", Threshold: test.above, Matches: test.selects, TriggerCount: 1, RestoreCount: 1, MaxAge: time.Minute, Action: Action{Name: "act", Evict: &EvictionSettings{}},
		}}}

		if plan := Decide(&policy, o, &State{}); len(plan.Evictions) != 1 || plan.Evictions[0].Pod.Name != test.want {
			t.Errorf("%s: %+v, want %s", name, plan.Evictions, test.want)
		}
	}
}

// TestRestore_ElasticRule checks that a rule on elastic use close to its threshold does not delay the restore of other pods.
func TestRestore_ElasticRule(t *testing.T) {
	for _, elastic := range []bool{false, true} {
		policy := Policy{Limits: DefaultLimits(), Rules: []Rule{
			{Name: "cpu", Metric: "cpu_total_usage", Threshold: 6000, TriggerCount: 1, RestoreCount: 1, MaxAge: time.Minute, Action: Action{Name: "act", Throttle: &CPUThrottling{Step: 0.5}}},
			{Name: "elastic", Metric: "ext_res_container_cpu_total_usage", Threshold: 2, TriggerCount: 1, RestoreCount: 1, MaxAge: time.Minute, Action: Action{Name: "act", Throttle: &CPUThrottling{Step: 0.5}}},
		}}

		var state State
		quota := Unlimited
		look := func(second int, cpu float64) Plan {
			used := Measurement[units.MilliCPU]{1000, at(second)}
			o := &Observation{At: at(second), Node: Node{CPUs: 8000, Memory: 1 << 30}, Pods: []Pod{{
				UID: "p", Name: "p", Class: BestEffort, Elastic: elastic, HoldsCPU: elastic, Allowed: []string{"act"}, UsedCPU: used,
				Containers: []Container{{ID: "c", Quota: quota, UsedCPU: used}},
			}}}
			o.Samples = map[string][]Sample{"cpu_total_usage": {{Value: cpu, At: o.At}}, "ext_res_container_cpu_total_usage": {{Value: 1.95, At: o.At}}}

			plan := Decide(&policy, o, &state)
			for _, step := range plan.Throttles {
				state.RecordThrottle(step)
				quota = step.To
			}

			return plan
		}

		look(0, 7000)

		if quota == Unlimited {
			t.Fatal("the pod has no quota, want it throttled")
		}

		for i := range 20 {
			look(1+i, 1000)
		}

		if (quota != Unlimited) != elastic {
			t.Errorf("elastic %t: quota %s after calm times, want a quota only for an elastic pod", elastic, quota)
		}
	}
}
