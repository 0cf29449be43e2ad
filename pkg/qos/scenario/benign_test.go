// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"crane.io/crane/pkg/qos"
	"crane.io/crane/pkg/units"
)

// benign holds typical rules and ten pods, eight of which may be evicted.
const benign = `
node cpus=16 memory=64Gi
system cpu=500m memory=2Gi
mark cpu 0.85
mark memory 0.9
action calm-down cooldown=1m step=20% floor=10%
action evict cooldown=5m evict grace=30s
rule throttle metric=cpu_total_utilization above=80 action=calm-down trigger=5 restore=10
rule cpu metric=cpu_total_utilization above=90 action=evict trigger=30 restore=10
rule memory metric=memory_total_utilization above=90 action=evict trigger=10 restore=10
rule waits metric=pod_interference_cpu_ratio above=0.1 action=calm-down trigger=5 restore=10
rule stalls metric=pod_interference_memory_ratio above=0.2 action=evict trigger=10 restore=10
run 24h
`

// load returns the demands of pods over a day: common cycles to just below the water marks, noise, and occasional bursts above them of the
// given length.
func load(burst time.Duration) func(*run, time.Duration) {
	rng := rand.New(rand.NewPCG(1, 1))
	until := time.Duration(0)
	next := time.Hour

	return func(r *run, elapsed time.Duration) {
		if elapsed >= next {
			until = elapsed + burst
			next = elapsed + 30*time.Minute + time.Duration(rng.Int64N(int64(time.Hour)))
		}

		for i, p := range r.pods {
			phase := 2 * math.Pi * (float64(elapsed)/float64(24*time.Hour) + float64(i)/40)
			day := 0.5 - 0.5*math.Cos(phase) // 0 to 1
			noise := 1 + 0.02*rng.NormFloat64()

			p.demand.cpu = units.MilliCPU((200 + 900*day) * noise)
			p.demand.memory = units.Bytes((2 + 3.2*day) * noise * (1 << 30))
			if elapsed < until && i < 4 {
				p.demand.cpu += 2500
				p.demand.memory += 3 << 30
			}
		}
	}
}

func play(t *testing.T, from, length, burst time.Duration) (out Outcome, peakCPU, peakMemory float64) {
	t.Helper()

	var text strings.Builder
	text.WriteString(benign)

	for i := range 10 {
		fmt.Fprintf(&text, "pod day/pod-%d class=Burstable priority=%d cpu=1 memory=1Gi allow=calm-down,evict ends=10s\n", i, i-3)
	}

	s, err := Parse(strings.Replace(text.String(), "priority=6 cpu=1 memory=1Gi allow=calm-down,evict", "priority=6 cpu=1 memory=1Gi sensitive stall=1% noise=3%", 1))
	if err != nil {
		t.Fatal(err)
	}

	s.length = length
	drive := load(burst)
	s.drive = func(r *run, elapsed time.Duration) {
		drive(r, from+elapsed)
		peakCPU = max(peakCPU, float64(r.used.cpu)/float64(r.scenario.node.CPUs))
		peakMemory = max(peakMemory, float64(r.used.memory)/float64(r.scenario.node.Memory))
	}

	out, err = s.Run()
	if err != nil {
		t.Fatal(err)
	}

	return out, peakCPU, peakMemory
}

// TestBenignDay checks that a day with daily cycles and bursts shorter than the thresholds evicts no pod.
func TestBenignDay(t *testing.T) {
	t.Parallel()

	out, cpu, memory := play(t, 0, 24*time.Hour, 8*time.Second)
	if len(out.Evicted) > 0 {
		t.Errorf("evictions %v, want none", out.Evicted)
	}
	// Otherwise the day would test nothing.
	if cpu < 0.9 || memory < 0.9 {
		t.Errorf("the node used %.0f %% of its CPU and %.0f %% of its memory at most, want 90 %% or more", 100*cpu, 100*memory)
	}
}

// TestCalmDay checks that cycles and noise without bursts are not taken for interference in the six hours around the peak.
func TestCalmDay(t *testing.T) {
	t.Parallel()

	out, _, _ := play(t, 8*time.Hour, 6*time.Hour, 0)
	known := false
	for _, e := range out.Log {
		known = known || strings.HasPrefix(e.Text, "rule waits: calm")
		if strings.HasPrefix(e.Text, "rule waits: firing") || strings.HasPrefix(e.Text, "rule stalls: firing") {
			t.Errorf("%s: %s, want no rule to fire", e.At, e.Text)
		}
	}

	if !known {
		t.Error("the rule was never calm, want it evaluated")
	}
}

// TestDayWithLongBursts checks that longer bursts do evict, so that TestBenignDay can fail.
func TestDayWithLongBursts(t *testing.T) {
	t.Parallel()

	if out, _, _ := play(t, 11*time.Hour, 2*time.Hour, 3*time.Minute); len(out.Evicted) == 0 {
		t.Error("no pod was evicted, want evictions in long bursts")
	}
}

// TestPropertiesOfPlans checks invariants of the plans of random nodes.
func TestPropertiesOfPlans(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	acted := map[string]int{}
	for range 2000 {
		policy, o := random(rng)
		var state qos.State
		for range 4 {
			plan := qos.Decide(&policy, &o, &state)
			checkPlan(t, &policy, &o, plan, acted)

			for _, th := range plan.Throttles {
				state.RecordThrottle(th)
				setQuota(&o, th)
			}

			for _, e := range plan.Evictions {
				state.RecordEviction(e.Pod, o.At, 0)
			}

			o.At = o.At.Add(time.Second)
			refresh(&o)
		}
	}

	if acted["throttle"] < 100 || acted["evict"] < 100 || acted["restore"] < 10 {
		t.Errorf("actions %v, want 100 throttles, 100 evictions and 10 restores or more", acted)
	}
}

func random(rng *rand.Rand) (qos.Policy, qos.Observation) {
	now := startTime()
	fresh := func() time.Time {
		switch rng.IntN(6) {
		case 0:
			return time.Time{}
		case 1:
			return now.Add(-time.Hour)
		}

		return now
	}

	o := qos.Observation{At: now, Node: qos.Node{CPUs: 8000, Memory: 32 << 30}, Samples: map[string][]qos.Sample{}}
	for i := range 1 + rng.IntN(8) {
		p := qos.Pod{
			UID: fmt.Sprint("uid-", i), Namespace: "n", Name: fmt.Sprint("pod-", i), Priority: int32(rng.IntN(7)) - 3, Class: qos.Burstable,
			Elastic: rng.IntN(3) == 0, Terminating: rng.IntN(8) == 0, Allowed: []string{"throttle", "evict"}[:rng.IntN(3)],
			UsedCPU:    qos.Measurement[units.MilliCPU]{Value: units.MilliCPU(rng.IntN(4000)), At: fresh()},
			UsedMemory: qos.Measurement[units.Bytes]{Value: units.Bytes(rng.Int64N(8 << 30)), At: fresh()},
		}

		if rng.IntN(8) == 0 {
			p.ExemptReason = "static"
		}

		q := []qos.Quota{qos.Unlimited, 0, qos.Quota(rng.IntN(4000))}[rng.IntN(3)]
		p.Containers = []qos.Container{{ID: "c-" + p.UID, Request: units.MilliCPU(rng.IntN(500)), Limit: units.MilliCPU(rng.IntN(4000)), Quota: q, UsedCPU: p.UsedCPU}}
		o.Pods = append(o.Pods, p)
		if p.UsedCPU.At.Equal(now) {
			o.Node.UsedCPU = qos.Measurement[units.MilliCPU]{Value: min(o.Node.UsedCPU.Value+p.UsedCPU.Value, 8000), At: now}
		}
	}

	for _, m := range []string{"cpu_total_usage", "memory_total_usage", "node_pressure_cpu_some_avg10_ratio"} {
		v := []float64{rng.Float64() * 8000, rng.Float64() * (32 << 30), rng.Float64()}[len(o.Samples)%3]
		if rng.IntN(10) == 0 {
			v = []float64{math.NaN(), math.Inf(1), -1}[rng.IntN(3)]
		}
		if at := fresh(); !at.IsZero() {
			o.Samples[m] = []qos.Sample{{Value: v, At: at}}
		}
	}

	policy := qos.Policy{Limits: qos.DefaultLimits()}
	if rng.IntN(2) == 0 {
		policy.WaterMarks = map[units.Resource]units.Ratio{units.CPU: 0.5}
	}

	for i, m := range []string{"cpu_total_usage", "memory_total_usage", "node_pressure_cpu_some_avg10_ratio"} {
		r := qos.Rule{Name: m, Metric: m, Threshold: []float64{4000, 16 << 30, 0.3}[i], TriggerCount: 1, RestoreCount: 1, MaxAge: time.Minute, Preview: rng.IntN(6) == 0}
		r.Action = qos.Action{Name: "evict", Evict: &qos.EvictionSettings{}}
		if rng.IntN(2) == 0 {
			r.Action = qos.Action{Name: "throttle", Throttle: &qos.CPUThrottling{Step: units.Ratio(rng.Float64()), Floor: units.Ratio(rng.Float64())}}
		}

		policy.Rules = append(policy.Rules, r)
	}

	return policy, o
}

// checkPlan checks that only permitted and measured pods are affected, once each, and never below their floors.
func checkPlan(t *testing.T, policy *qos.Policy, o *qos.Observation, plan qos.Plan, acted map[string]int) {
	t.Helper()

	byUID := map[string]*qos.Pod{}
	for i := range o.Pods {
		byUID[o.Pods[i].UID] = &o.Pods[i]
	}

	seen := map[string]bool{}
	if len(plan.Evictions) > policy.Limits.MaxEvictions {
		t.Errorf("%d evictions, want at most %d", len(plan.Evictions), policy.Limits.MaxEvictions)
	}

	for _, e := range plan.Evictions {
		p := byUID[e.Pod.UID]
		if seen[e.Pod.UID] || p.ExemptReason != "" || p.Terminating || !contains(p.Allowed, "evict") || e.Freed < 0 {
			t.Errorf("eviction %+v of %+v, want one of a permitted pod that is not terminating, once", e, p)
		}

		seen[e.Pod.UID] = true
		at := p.UsedMemory.At
		if e.Resource == units.CPU {
			at = p.UsedCPU.At
		}
		if o.At.Sub(at) > time.Minute {
			t.Errorf("eviction %+v of %+v, measured at %s, want a measurement of the last minute", e, p, at)
		}

		samples := o.Samples[e.Rule]
		if len(samples) == 0 || !(samples[0].Value > 0) || math.IsInf(samples[0].Value, 0) || o.At.Sub(samples[0].At) > time.Minute {
			t.Errorf("eviction %+v with samples %+v, want a finite value of the last minute", e, samples)
		}
		if mark, ok := policy.WaterMarks[e.Resource]; ok && e.Rule != "node_pressure_cpu_some_avg10_ratio" && float64(o.Node.UsedCPU.Value) <= float64(mark)*8000 {
			t.Errorf("eviction %+v, want none below the water mark", e)
		}

		acted["evict"]++
	}

	for _, th := range plan.Throttles {
		p := byUID[th.Pod.UID]
		c := p.Containers[0]
		if seen[th.ContainerID] || th.To <= 0 || th.From == th.To || th.From != c.Quota {
			t.Errorf("throttle %+v of %+v, want one change from the quota in force", th, p)
		}

		seen[th.ContainerID] = true
		if th.Rule == "" { // a restore
			acted["restore"]++
			if th.To < th.From || th.To > th.Original {
				t.Errorf("restore %+v of %+v, want a higher quota, at most the original", th, p)
			}

			continue
		}

		acted["throttle"]++
		if th.To > th.From || th.To < qos.Quota(c.Request) || th.Freed <= 0 || !contains(p.Allowed, "throttle") || p.Terminating || o.At.Sub(c.UsedCPU.At) > time.Minute {
			t.Errorf("throttle %+v of %+v, want a lower quota, at least the request, of a permitted pod", th, p)
		}
	}
}

func contains(list []string, s string) bool { return strings.Contains(strings.Join(list, " "), s) }

func setQuota(o *qos.Observation, th qos.Throttle) {
	for i := range o.Pods {
		if c := &o.Pods[i].Containers[0]; c.ID == th.ContainerID {
			c.Quota = th.To
			c.UsedCPU.Value = min(c.UsedCPU.Value, units.MilliCPU(th.To))
		}
	}
}

// refresh renews the measurements and lowers the use, so that limits are restored.
func refresh(o *qos.Observation) {
	for m, s := range o.Samples {
		if o.At.Sub(s[0].At) < time.Minute {
			s[0].At = o.At
			s[0].Value *= 0.5
		}

		o.Samples[m] = s
	}

	if !o.Node.UsedCPU.At.IsZero() {
		o.Node.UsedCPU.At = o.At
	}
}

// FuzzParse checks that any file is rejected or can be run.
func FuzzParse(f *testing.F) {
	f.Add(benign)
	f.Add("node cpus=1 memory=1Gi\naction a step=10% evict grace=1s\nrule r metric=cpu_total_usage above=1 action=a\npod n/p cpu=1 allow=a\nat 1s pod n/p cpu=2\nexpect 1s quota n/p none\nexpect evicted none\nrun 10s\n")
	f.Fuzz(func(_ *testing.T, text string) {
		s, err := Parse(text)
		if err != nil || len(text) > 4096 {
			return
		}

		s.length = min(s.length, 100*s.interval)
		_, _ = s.Run()
	})
}
