// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package rightsize

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"crane.io/crane/pkg/series"
	"crane.io/crane/pkg/units"
)

func ptr[T any](v T) *T { return new(v) }

// constant is an input of a number of days with the same use at every minute.
func constant(days int, cores, bytes float64) Input {
	p := NewProfile()
	p.AddCPU(Usage{Pod: "a", Series: minutes(days*1440, func(int) float64 { return cores })})
	p.AddMemory(Usage{Pod: "a", Series: minutes(days*1440, func(int) float64 { return bytes })})

	return Input{Container: "app", Profile: p, Now: start.Add(time.Duration(days) * day)}
}

// detail returns the text of the first step or flag of a code.
func detail(s Sizing, code string) string {
	for _, step := range s.Steps {
		if string(step.Code) == code {
			return step.Detail
		}
	}

	for _, f := range s.Flags {
		if string(f.Code) == code {
			return f.Detail
		}
	}

	return ""
}

func TestLeakingReplica(t *testing.T) {
	build := func(odd func(i int) float64) Input {
		in := Input{Container: "app", Profile: NewProfile(), Now: start.Add(10 * day)}
		for pod := range 50 {
			rng := rand.New(rand.NewPCG(1, uint64(pod)))
			use := func(int) float64 { return 200e6 * (1 + 0.05*rng.Float64()) }
			if pod == 17 {
				use = odd
			}

			s := minutes(10*1440, use)
			s, err := s.Resample(10*time.Minute, series.Max)
			if err != nil {
				t.Fatal(err)
			}

			in.Profile.AddMemory(Usage{Pod: fmt.Sprint("api-", pod), Series: s})
		}

		return in
	}

	policy := mustPolicy(t, DefaultPolicy)
	leak := Recommend(build(func(i int) float64 { return 200e6 + 1e9*float64(i)/14400 }), policy)
	checkRecommendation(t, leak)

	if got := *leak.Target.MemoryRequest; got > 260e6 || !strings.Contains(detail(leak.Memory, string(FlagLeak)), "1 of 50 replicas") {
		t.Errorf("a leaking replica: request %d with the finding %q, want at most 260e6 and 1 of 50 replicas", got, detail(leak.Memory, string(FlagLeak)))
	}

	// A leader is large from its start on; the template must hold it.
	leader := Recommend(build(func(int) float64 { return 900e6 }), policy)
	if got := *leader.Target.MemoryRequest; got < 900e6 || hasFlag(leader.Memory, FlagLeak) {
		t.Errorf("a large leader: request %d with the flags %v, want at least 900e6 without %s", got, leader.Memory.Flags, FlagLeak)
	}
}

func TestOneSpikeInTwoWeeks(t *testing.T) {
	spike := func(i int) float64 {
		if i >= 5*1440+600 && i < 5*1440+660 {
			return 10
		}

		return 1
	}

	p := NewProfile()
	p.AddCPU(Usage{Series: minutes(14*1440, spike)})
	p.AddMemory(Usage{Series: minutes(14*1440, func(i int) float64 { return 1e8 * spike(i) })})
	r := Recommend(Input{Profile: p, Now: start.Add(14 * day)}, mustPolicy(t, DefaultPolicy))
	checkRecommendation(t, r)

	if got := *r.Target.CPURequest; got > 1200 {
		t.Errorf("one hour in two weeks: CPU request %d, want at most 1200", got)
	}
	if got := *r.Target.MemoryRequest; got < 1e9 {
		t.Errorf("one spike: memory request %d, want at least 1e9, which holds it", got)
	}
	if !hasFlag(r.Memory, FlagSpike) || !hasFlag(r.CPU, FlagSpike) {
		t.Errorf("one spike: flags %v and %v, want %s in both", r.CPU.Flags, r.Memory.Flags, FlagSpike)
	}
}

func TestMemoryThatOnlyGrows(t *testing.T) {
	p := NewProfile()
	p.AddMemory(Usage{Series: minutes(10*1440, func(i int) float64 { return 1e9 * (1 + 0.1*float64(i)/1440) })})
	r := Recommend(Input{Profile: p, Now: start.Add(10 * day)}, mustPolicy(t, DefaultPolicy))
	checkRecommendation(t, r)

	// The last day reached 2 GB; three more days lead to 2.3.
	if got := float64(*r.Target.MemoryRequest); got < 2.3e9 || got > 3e9 || !hasFlag(r.Memory, FlagGrowing) {
		t.Errorf("growing memory: request %.3g with the flags %v, want 2.3e9 to 3e9 and %s", got, r.Memory.Flags, FlagGrowing)
	}
	if r.Memory.Confidence > 0.5 {
		t.Errorf("growing memory: confidence %v, want at most 0.5", r.Memory.Confidence)
	}
}

func TestCPUAlwaysAtItsLimit(t *testing.T) {
	in := constant(10, 0.499, 1e8)
	in.Current = Resources{CPURequest: ptr(units.MilliCPU(250)), CPULimit: ptr(units.MilliCPU(500))}
	r := Recommend(in, mustPolicy(t, DefaultPolicy))
	checkRecommendation(t, r)

	if got := *r.Target.CPURequest; got < 600 || !hasFlag(r.CPU, FlagThrottled) || !hasStep(r.CPU, StepThrottled) || r.CPU.Confidence > 0.5 {
		t.Errorf("throttled: request %d of %+v, want at least 600 with flag, step and low confidence", got, r.CPU)
	}
	// The ratio of limit to request is kept, so the limit rises too.
	if got := *r.Target.CPULimit; got < 1200 {
		t.Errorf("throttled: limit %d, want at least 1200", got)
	}
}

func TestRecommend_LittleOrNoUsage(t *testing.T) {
	policy := mustPolicy(t, DefaultPolicy)
	t.Run("younger than a day", func(t *testing.T) {
		in := constant(1, 1, 1e8)
		in.Profile = NewProfile()
		in.Profile.AddCPU(Usage{Series: minutes(300, func(int) float64 { return 1 })})
		r := Recommend(in, policy)
		checkRecommendation(t, r)

		if r.CPU.Status != Learning || r.CPU.Message != "learning, 0.2 of 7 days" || r.Memory.Status != NoData {
			t.Errorf("four hours of CPU: %+v and %+v, want CPU learning, 0.2 of 7 days, and no data of memory", r.CPU, r.Memory)
		}
	})

	t.Run("zero use", func(t *testing.T) {
		r := Recommend(constant(14, 0, 0), policy)
		checkRecommendation(t, r)

		if *r.Target.CPURequest != policy.CPU.Floor || *r.Target.MemoryRequest != policy.Memory.Floor {
			t.Errorf("idle: Target %s, want the floors %d and %d", jsonText(r.Target), policy.CPU.Floor, policy.Memory.Floor)
		}
		if !hasFlag(r.CPU, FlagIdle) || !hasStep(r.CPU, StepFloor) || !hasStep(r.Memory, StepFloor) {
			t.Errorf("idle: CPU %+v, memory %+v; want the flag %s and a step for each floor", r.CPU, r.Memory, FlagIdle)
		}
	})

	t.Run("no requests today", func(t *testing.T) {
		r := Recommend(constant(14, 0.4, 2e8), policy)
		checkRecommendation(t, r)

		if r.Target.CPULimit != nil || r.Target.MemoryLimit != nil || *r.Target.CPURequest < 400 || !hasFlag(r.CPU, FlagNoRequest) {
			t.Errorf("no requests: Target %s with the flags %v, want 400m or more without limits, and %s", jsonText(r.Target), r.CPU.Flags, FlagNoRequest)
		}
	})

	t.Run("request of 1m", func(t *testing.T) {
		in := constant(14, 0.4, 2e8)
		in.Current = Resources{CPURequest: ptr(units.MilliCPU(1)), CPULimit: ptr(units.MilliCPU(2000)), MemoryRequest: ptr(units.Bytes(1))}
		r := Recommend(in, policy)
		checkRecommendation(t, r)

		// Keeping a ratio of 2000 would be absurd: see LimitKeepRatio.
		if got := *r.Target.CPULimit; got > 2000*10 {
			t.Errorf("a limit of 2000 times the request: limit %d, want at most 20000", got)
		}
	})

	t.Run("zero and negative requests", func(t *testing.T) {
		in := constant(14, 0.4, 2e8)
		in.Current = Resources{CPURequest: ptr(units.MilliCPU(0)), CPULimit: ptr(units.MilliCPU(-5)), MemoryLimit: ptr(units.Bytes(0))}
		in.HPA = &HPA{CPUUtilization: 0.5}
		checkRecommendation(t, Recommend(in, policy))
	})
}

func TestProfile_IgnoresInvalidSamples(t *testing.T) {
	in := constant(14, 0.4, 2e8)
	before := Recommend(in, mustPolicy(t, DefaultPolicy))

	for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), -3, math.MaxFloat64} {
		s := minutes(1440, func(int) float64 { return v })
		if n := in.Profile.AddCPU(Usage{Pod: "b", Series: s}); n != 0 {
			t.Errorf("AddCPU(%v) counted %d samples, want 0", v, n)
		}
		if n := in.Profile.AddMemory(Usage{Pod: "b", Series: s}); n != 0 {
			t.Errorf("AddMemory(%v) counted %d samples, want 0", v, n)
		}
	}

	after := Recommend(in, mustPolicy(t, DefaultPolicy))
	if *before.Target.CPURequest != *after.Target.CPURequest || *before.Target.MemoryRequest != *after.Target.MemoryRequest {
		t.Errorf("Recommend after invalid samples = %s, want %s as before", jsonText(after.Target), jsonText(before.Target))
	}
}

func TestLargerThanAnyNode(t *testing.T) {
	in := constant(14, 7, 40e9)
	in.MaxCPU = 4000
	in.MaxMemory = 16 << 30
	r := Recommend(in, mustPolicy(t, DefaultPolicy))
	checkRecommendation(t, r)

	if *r.Target.CPURequest != 4000 || *r.Target.MemoryRequest != 16<<30 || !hasFlag(r.CPU, FlagTooLarge) || !hasStep(r.Memory, StepNode) {
		t.Errorf("larger than any node: Target %s, CPU flags %v; want 4 cores and 16Gi with flag and step", jsonText(r.Target), r.CPU.Flags)
	}
}

func TestScalePointIsKept(t *testing.T) {
	in := constant(14, 0.4, 2e8)
	in.Current = Resources{CPURequest: ptr(units.MilliCPU(1000))}
	in.HPA = &HPA{CPUUtilization: 0.4}
	r := Recommend(in, mustPolicy(t, DefaultPolicy))
	checkRecommendation(t, r)

	if r.HPA == nil {
		t.Fatalf("with an autoscaler: HPA = nil of %+v, want a target that moves with the request", r)
	}

	point := float64(*r.Target.CPURequest) * float64(r.HPA.CPUUtilization)
	if math.Abs(point-400) > 8 || r.HPA.CPUUtilization > 0.9 {
		t.Errorf("request %d at %v scales at %.0fm, want 400m as before with a target of at most 0.9", *r.Target.CPURequest, r.HPA.CPUUtilization, point)
	}
}

func TestOutOfMemoryKills(t *testing.T) {
	policy := mustPolicy(t, DefaultPolicy)
	quiet := *Recommend(constant(14, 0.1, 3e8), policy).Target.MemoryRequest
	last := units.Bytes(math.MaxInt64)
	for _, age := range []time.Duration{time.Hour, 3 * day, 7 * day, 13 * day, 15 * day} {
		in := constant(14, 0.1, 3e8)
		in.OOMs = []OOM{{At: in.Now.Add(-age), Memory: 512 << 20}, {At: in.Now.Add(time.Hour), Memory: 1 << 40}, {Memory: -1}}
		r := Recommend(in, policy)
		checkRecommendation(t, r)

		got := *r.Target.MemoryRequest
		if got > last || got < quiet {
			t.Errorf("%v after a kill: request %d, want %d (none) to %d (younger)", age, got, quiet, last)
		}

		last = got

		if age < 14*day && (got <= quiet || !hasFlag(r.Memory, FlagOOM) || !hasStep(r.Memory, StepOOM)) {
			t.Errorf("%v after a kill: request %d with the steps %v, want more than %d with flag and step", age, got, r.Memory.Steps, quiet)
		}
	}

	if last != quiet {
		t.Errorf("a kill of 15 days ago still counts: %d, want %d", last, quiet)
	}
}

// TestOOMLoopEnds feeds each recommendation back as the limit at which the container is killed: the loop of kill and bump
// must not run away.
func TestOOMLoopEnds(t *testing.T) {
	in := constant(14, 0.1, 3e8)
	policy := mustPolicy(t, DefaultPolicy)
	first := units.Bytes(400 << 20)

	limit := first
	for range 12 {
		in.OOMs = append(in.OOMs, OOM{At: in.Now.Add(-time.Hour), Memory: limit})
		r := Recommend(in, policy)
		checkRecommendation(t, r)
		limit = *r.Target.MemoryRequest
	}

	if ceiling := 2.3 * float64(first); float64(limit) > ceiling {
		t.Errorf("after twelve kills %d, want at most %.0f", limit, ceiling)
	}
	if r := Recommend(in, policy); !strings.Contains(detail(r.Memory, string(FlagOOM)), "look for a leak") {
		t.Errorf("twelve kills: flags %v, want one to look for a leak", r.Memory.Flags)
	}
}

func TestRecommend_MemoryPeakAtStart(t *testing.T) {
	in := constant(14, 0.1, 3e8)
	s := minutes(1440, func(i int) float64 {
		if i < 3 {
			return 9e8
		}

		return 3e8
	})

	in.Profile.AddMemory(Usage{Pod: "new", Started: start, Series: s})
	r := Recommend(in, mustPolicy(t, DefaultPolicy))
	checkRecommendation(t, r)

	if *r.Target.MemoryRequest < 9e8 || !hasFlag(r.Memory, FlagStartup) {
		t.Errorf("a start peak of memory: request %d with the flags %v, want at least 9e8 and %s", *r.Target.MemoryRequest, r.Memory.Flags, FlagStartup)
	}
}

func TestJVM(t *testing.T) {
	policy := mustPolicy(t, DefaultPolicy)
	in := constant(14, 0.1, 600e6)
	in.JVM = &JVM{MaxHeap: 1 << 30, PeakHeap: 500e6}
	r := Recommend(in, policy)
	checkRecommendation(t, r)

	if got := *r.Target.MemoryRequest; got < 1<<30+100e6 || !hasStep(r.Memory, StepJVM) {
		t.Errorf("-Xmx1g: request %d with the steps %v, want the heap and 100e6 with %s", got, r.Memory.Steps, StepJVM)
	}

	in.JVM = &JVM{MaxRAMPercentage: 0.5, PeakHeap: 500e6}
	if got := *Recommend(in, policy).Target.MemoryRequest; got < 1.3e9 {
		t.Errorf("MaxRAMPercentage 50 with 500e6 of live data: request %d, want at least 1.3e9", got)
	}
}

func TestStartupPeakIsApart(t *testing.T) {
	in := constant(14, 0.1, 3e8)
	s := minutes(1440, func(i int) float64 {
		if i < 4 {
			return 2
		}

		return 0.1
	})

	in.Profile.AddCPU(Usage{Pod: "new", Started: start, Series: s})
	r := Recommend(in, mustPolicy(t, DefaultPolicy))
	checkRecommendation(t, r)

	if *r.Target.CPURequest > 130 || !hasFlag(r.CPU, FlagStartup) {
		t.Errorf("a start peak of CPU: request %d with the flags %v, want at most 130 and %s", *r.Target.CPURequest, r.CPU.Flags, FlagStartup)
	}
}

func TestSpecificationsHoldBoth(t *testing.T) {
	p, err := GocranePolicy(map[string]string{"specification": "true"})
	if err != nil {
		t.Fatal(err)
	}

	for _, c := range []struct{ cores, bytes, cpu, gib float64 }{{0.05, 1e8, 250, 0.25}, {0.3, 1e9, 1000, 2}, {0.4, 3e9, 1000, 4}, {3, 100e9, 16000, 128}, {70, 1e9, 80500, 0}} {
		r := Recommend(constant(10, c.cores, c.bytes), p)
		checkRecommendation(t, r)

		if c.gib == 0 {
			if !strings.Contains(detail(r.CPU, string(StepSpecification)), "no specification is large enough") {
				t.Errorf("%v: steps %v, want one that no specification is large enough", c, r.CPU.Steps)
			}
			continue
		}

		if float64(*r.Target.CPURequest) != c.cpu || float64(*r.Target.MemoryRequest) != c.gib*(1<<30) {
			t.Errorf("%v: %s and %s, want %v millicores and %v GiB", c, units.FormatCPU(*r.Target.CPURequest), units.FormatMemory(*r.Target.MemoryRequest), c.cpu, c.gib)
		}
	}
}
