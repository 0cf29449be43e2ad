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
		t.Errorf("leak: request %d, %q", got, detail(leak.Memory, string(FlagLeak)))
	}

	// A leader is large from its start on; the template must hold it.
	leader := Recommend(build(func(int) float64 { return 900e6 }), policy)
	if got := *leader.Target.MemoryRequest; got < 900e6 || hasFlag(leader.Memory, FlagLeak) {
		t.Errorf("leader: request %d, flags %v", got, leader.Memory.Flags)
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
		t.Errorf("one hour in two weeks sizes CPU: %d", got)
	}
	if got := *r.Target.MemoryRequest; got < 1e9 {
		t.Errorf("memory request %d does not hold the spike, which would kill", got)
	}
	if !hasFlag(r.Memory, FlagSpike) || !hasFlag(r.CPU, FlagSpike) {
		t.Errorf("the spike is not told: %v, %v", r.CPU.Flags, r.Memory.Flags)
	}
}

func TestMemoryThatOnlyGrows(t *testing.T) {
	p := NewProfile()
	p.AddMemory(Usage{Series: minutes(10*1440, func(i int) float64 { return 1e9 * (1 + 0.1*float64(i)/1440) })})
	r := Recommend(Input{Profile: p, Now: start.Add(10 * day)}, mustPolicy(t, DefaultPolicy))
	checkRecommendation(t, r)

	// The last day reached 2 GB; three more days lead to 2.3.
	if got := float64(*r.Target.MemoryRequest); got < 2.3e9 || got > 3e9 || !hasFlag(r.Memory, FlagGrowing) {
		t.Errorf("request %.3g, flags %v", got, r.Memory.Flags)
	}
	if r.Memory.Confidence > 0.5 {
		t.Errorf("confidence %v in a need that grows", r.Memory.Confidence)
	}
}

func TestCPUAlwaysAtItsLimit(t *testing.T) {
	in := constant(10, 0.499, 1e8)
	in.Current = Resources{CPURequest: ptr(series.MilliCPU(250)), CPULimit: ptr(series.MilliCPU(500))}
	r := Recommend(in, mustPolicy(t, DefaultPolicy))
	checkRecommendation(t, r)

	if got := *r.Target.CPURequest; got < 600 || !hasFlag(r.CPU, FlagThrottled) || !hasStep(r.CPU, StepThrottled) || r.CPU.Confidence > 0.5 {
		t.Errorf("request %d, %+v", got, r.CPU)
	}
	// The ratio of limit to request is kept, so the limit rises too.
	if got := *r.Target.CPULimit; got < 1200 {
		t.Errorf("limit %d", got)
	}
}

func TestSmallAndMissing(t *testing.T) {
	policy := mustPolicy(t, DefaultPolicy)
	t.Run("younger than a day", func(t *testing.T) {
		in := constant(1, 1, 1e8)
		in.Profile = NewProfile()
		in.Profile.AddCPU(Usage{Series: minutes(300, func(int) float64 { return 1 })})
		r := Recommend(in, policy)
		checkRecommendation(t, r)

		if r.CPU.Status != Learning || r.CPU.Message != "learning, 0.2 of 7 days" || r.Memory.Status != NoData {
			t.Errorf("%+v", r)
		}
	})

	t.Run("zero use", func(t *testing.T) {
		r := Recommend(constant(14, 0, 0), policy)
		checkRecommendation(t, r)

		if *r.Target.CPURequest != policy.CPU.Floor || *r.Target.MemoryRequest != policy.Memory.Floor {
			t.Errorf("%+v", r.Target)
		}
		if !hasFlag(r.CPU, FlagIdle) || !hasStep(r.CPU, StepFloor) || !hasStep(r.Memory, StepFloor) {
			t.Errorf("the floor has no reason: %+v", r.CPU)
		}
	})

	t.Run("no requests today", func(t *testing.T) {
		r := Recommend(constant(14, 0.4, 2e8), policy)
		checkRecommendation(t, r)

		if r.Target.CPULimit != nil || r.Target.MemoryLimit != nil || *r.Target.CPURequest < 400 || !hasFlag(r.CPU, FlagNoRequest) {
			t.Errorf("%+v, %v", r.Target, r.CPU.Flags)
		}
	})

	t.Run("request of 1m", func(t *testing.T) {
		in := constant(14, 0.4, 2e8)
		in.Current = Resources{CPURequest: ptr(series.MilliCPU(1)), CPULimit: ptr(series.MilliCPU(2000)), MemoryRequest: ptr(series.Bytes(1))}
		r := Recommend(in, policy)
		checkRecommendation(t, r)

		// Keeping a ratio of 2000 would be absurd: see LimitKeepRatio.
		if got := *r.Target.CPULimit; got > 2000*10 {
			t.Errorf("limit %d", got)
		}
	})

	t.Run("zero and negative requests", func(t *testing.T) {
		in := constant(14, 0.4, 2e8)
		in.Current = Resources{CPURequest: ptr(series.MilliCPU(0)), CPULimit: ptr(series.MilliCPU(-5)), MemoryLimit: ptr(series.Bytes(0))}
		in.HPA = &HPA{CPUUtilization: 0.5}
		checkRecommendation(t, Recommend(in, policy))
	})
}

func TestHostileSamples(t *testing.T) {
	in := constant(14, 0.4, 2e8)
	before := Recommend(in, mustPolicy(t, DefaultPolicy))

	for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), -3, math.MaxFloat64} {
		s := minutes(1440, func(int) float64 { return v })
		if n := in.Profile.AddCPU(Usage{Pod: "b", Series: s}); n != 0 {
			t.Errorf("%v: %d samples counted", v, n)
		}
		if n := in.Profile.AddMemory(Usage{Pod: "b", Series: s}); n != 0 {
			t.Errorf("%v: %d memory samples counted", v, n)
		}
	}

	after := Recommend(in, mustPolicy(t, DefaultPolicy))
	if *before.Target.CPURequest != *after.Target.CPURequest || *before.Target.MemoryRequest != *after.Target.MemoryRequest {
		t.Errorf("%+v became %+v", before.Target, after.Target)
	}
}

func TestLargerThanAnyNode(t *testing.T) {
	in := constant(14, 7, 40e9)
	in.MaxCPU = 4000
	in.MaxMemory = 16 << 30
	r := Recommend(in, mustPolicy(t, DefaultPolicy))
	checkRecommendation(t, r)

	if *r.Target.CPURequest != 4000 || *r.Target.MemoryRequest != 16<<30 || !hasFlag(r.CPU, FlagTooLarge) || !hasStep(r.Memory, StepNode) {
		t.Errorf("%+v", r)
	}
}

func TestScalePointIsKept(t *testing.T) {
	in := constant(14, 0.4, 2e8)
	in.Current = Resources{CPURequest: ptr(series.MilliCPU(1000))}
	in.HPA = &HPA{CPUUtilization: 0.4}
	r := Recommend(in, mustPolicy(t, DefaultPolicy))
	checkRecommendation(t, r)

	if r.HPA == nil {
		t.Fatalf("the request moves without the target: %+v", r)
	}

	point := float64(*r.Target.CPURequest) * float64(r.HPA.CPUUtilization)
	if math.Abs(point-400) > 8 || r.HPA.CPUUtilization > 0.9 {
		t.Errorf("request %d at %v: it would scale at %.0fm, today at 400m", *r.Target.CPURequest, r.HPA.CPUUtilization, point)
	}
}

func TestOutOfMemoryKills(t *testing.T) {
	policy := mustPolicy(t, DefaultPolicy)
	quiet := *Recommend(constant(14, 0.1, 3e8), policy).Target.MemoryRequest
	last := series.Bytes(math.MaxInt64)
	for _, age := range []time.Duration{time.Hour, 3 * day, 7 * day, 13 * day, 15 * day} {
		in := constant(14, 0.1, 3e8)
		in.OOMs = []OOM{{At: in.Now.Add(-age), Memory: 512 << 20}, {At: in.Now.Add(time.Hour), Memory: 1 << 40}, {Memory: -1}}
		r := Recommend(in, policy)
		checkRecommendation(t, r)

		got := *r.Target.MemoryRequest
		if got > last || got < quiet {
			t.Errorf("after %v: %d, before that %d, without a kill %d", age, got, last, quiet)
		}

		last = got

		if age < 14*day && (got <= quiet || !hasFlag(r.Memory, FlagOOM) || !hasStep(r.Memory, StepOOM)) {
			t.Errorf("after %v: no trace of the kill: %d, %+v", age, got, r.Memory.Steps)
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
	first := series.Bytes(400 << 20)

	limit := first
	for range 12 {
		in.OOMs = append(in.OOMs, OOM{At: in.Now.Add(-time.Hour), Memory: limit})
		r := Recommend(in, policy)
		checkRecommendation(t, r)
		limit = *r.Target.MemoryRequest
	}

	if most := 2.3 * float64(first); float64(limit) > most {
		t.Errorf("after twelve kills %d, want at most %.0f", limit, most)
	}
	if r := Recommend(in, policy); !strings.Contains(detail(r.Memory, string(FlagOOM)), "look for a leak") {
		t.Errorf("the cap is not told: %v", r.Memory.Flags)
	}
}

func TestMemoryOfStarting(t *testing.T) {
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
		t.Errorf("request %d, flags %v", *r.Target.MemoryRequest, r.Memory.Flags)
	}
}

func TestJVM(t *testing.T) {
	policy := mustPolicy(t, DefaultPolicy)
	in := constant(14, 0.1, 600e6)
	in.JVM = &JVM{MaxHeap: 1 << 30, PeakHeap: 500e6}
	r := Recommend(in, policy)
	checkRecommendation(t, r)

	if got := *r.Target.MemoryRequest; got < 1<<30+100e6 || !hasStep(r.Memory, StepJVM) {
		t.Errorf("-Xmx1g: request %d does not hold the heap", got)
	}

	in.JVM = &JVM{MaxRAMPercentage: 0.5, PeakHeap: 500e6}
	if got := *Recommend(in, policy).Target.MemoryRequest; got < 1.3e9 {
		t.Errorf("MaxRAMPercentage: request %d leaves the heap too little", got)
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
		t.Errorf("request %d, flags %v", *r.Target.CPURequest, r.CPU.Flags)
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
				t.Errorf("%v: %v", c, r.CPU.Steps)
			}
			continue
		}

		if float64(*r.Target.CPURequest) != c.cpu || float64(*r.Target.MemoryRequest) != c.gib*(1<<30) {
			t.Errorf("%v: %s and %s", c, FormatCPU(*r.Target.CPURequest), FormatMemory(*r.Target.MemoryRequest))
		}
	}
}
