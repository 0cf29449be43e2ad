// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package qos

import (
	"math"
	"testing"
	"time"

	"crane.io/crane/pkg/units"
)

// TestThrottleWeight checks that pods without a claim to CPU keep the same share of their weight as of their CPU, in both directions, and
// others keep all of it.
func TestThrottleWeight(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Pod)
		loses  bool
	}{
		"best effort": {func(*Pod) {}, true},
		"elastic": {func(p *Pod) {
			p.Class = Burstable
			p.Elastic = true
		}, true},
		"burstable": {func(p *Pod) { p.Class = Burstable }, false},
		"elastic, requests ordinary CPU": {func(p *Pod) {
			p.Class = Burstable
			p.Elastic = true
			p.Containers[0].Request = 100
		}, false},
		"guaranteed, elastic": {func(p *Pod) {
			p.Class = Guaranteed
			p.Elastic = true
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			policy := Policy{Limits: DefaultLimits(), Rules: []Rule{{
				Name: "mixed/cpu", Metric: "cpu_total_usage", Threshold: 3000, TriggerCount: 1, RestoreCount: 1, MaxAge: time.Minute,
				Action: Action{Name: "calm-down", Throttle: &CPUThrottling{Step: 0.2}},
			}}}
			pod := Pod{UID: "a", Namespace: "batch", Name: "hog", Class: BestEffort, Allowed: []string{"calm-down"}, Containers: []Container{{ID: "a", Name: "main", Quota: Unlimited}}}
			test.change(&pod)
			o := Observation{At: time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC), Node: Node{CPUs: 4000}, Pods: []Pod{pod}}
			var s State
			c := &o.Pods[0].Containers[0]

			tick := func(node float64, used units.MilliCPU) []Throttle {
				o.At = o.At.Add(time.Second)
				o.Samples = map[string][]Sample{"cpu_total_usage": {{Value: node, At: o.At}}}

				c.UsedCPU = Measurement[units.MilliCPU]{Value: used, At: o.At}
				plan := Decide(&policy, &o, &s)
				for _, th := range plan.Throttles {
					s.RecordThrottle(th)
					c.Quota = th.To
				}

				return plan.Throttles
			}

			steps := append(append(tick(4000, 2000), tick(4000, 1600)...), tick(2000, 1000)...)
			if len(steps) != 3 {
				t.Fatalf("throttles %+v, want 3", steps)
			}

			for _, th := range steps {
				want := 0.0
				if test.loses {
					want = float64(th.To) / 2000
				}
				if math.Abs(float64(th.Weight)-want) > 1e-9 {
					t.Errorf("to %s: weight %g, want %g", th.To, th.Weight, want)
				}
			}
		})
	}
}
