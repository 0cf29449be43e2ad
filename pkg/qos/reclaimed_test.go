// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package qos

import (
	"strings"
	"testing"
	"time"

	"crane.io/crane/pkg/units"
)

// TestDecide_ReclaimedCapacity checks that a metric of reserved reclaimed capacity evicts only holders of that resource, one at a time, whatever they
// use.
func TestDecide_ReclaimedCapacity(t *testing.T) {
	const metricCPU, metricMemory = "ext_cpu_total_distribute", "node_elastic_memory_distributed_ratio"
	pod := func(name string, change func(*Pod)) Pod {
		p := Pod{UID: name, Namespace: "n", Name: name, Class: BestEffort, Allowed: []string{"go"}, UsedCPU: Measurement[units.MilliCPU]{Value: 500, At: at(0)}}
		p.UsedMemory = Measurement[units.Bytes]{Value: 1 << 30, At: at(0)}
		change(&p)

		return p
	}

	web := pod("web", func(*Pod) {})
	idle := pod("idle", func(p *Pod) {
		p.Elastic = true
		p.HoldsCPU = true
		p.UsedCPU.Value = 0
	})

	unmeasured := pod("unmeasured", func(p *Pod) {
		p.Elastic = true
		p.HoldsCPU = true
		p.UsedCPU = Measurement[units.MilliCPU]{}
	})

	cache := pod("cache", func(p *Pod) {
		p.Elastic = true
		p.HoldsMemory = true
	})
	kept := pod("kept", func(p *Pod) {
		p.Elastic = true
		p.HoldsCPU = true
		p.ExemptReason = "it would come back"
	})

	for name, test := range map[string]struct {
		metric string
		pods   []Pod
		want   string
	}{
		"one that uses nothing":          {metricCPU, []Pod{web, cache, idle}, "idle"},
		"one that is not measured":       {metricCPU, []Pod{web, cache, unmeasured}, "unmeasured"},
		"one at a time":                  {metricCPU, []Pod{unmeasured, idle}, "idle"},
		"of memory":                      {metricMemory, []Pod{web, idle, cache}, "cache"},
		"nobody else for one that stays": {metricCPU, []Pod{web, cache, kept}, ""},
	} {
		policy := Policy{Limits: DefaultLimits(), Rules: []Rule{{
			Name: "held", Metric: test.metric, Threshold: 100, TriggerCount: 1, RestoreCount: 1, MaxAge: time.Minute, Action: Action{Name: "go", Evict: &EvictionSettings{}},
		}}}

		o := observation(0, test.metric, 150)
		o.Pods = test.pods
		got := []string{}
		for _, e := range Decide(&policy, o, &State{}).Evictions {
			got = append(got, e.Pod.Name)
		}

		if got := strings.Join(got, ""); got != test.want {
			t.Errorf("%s: %q goes, want %q", name, got, test.want)
		}
	}
}
