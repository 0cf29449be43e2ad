// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package rightsize

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"crane.io/crane/pkg/series"
	"crane.io/crane/pkg/units"
)

// feedback applies each recommendation and asks again on the next day, with the usage that the container then has: CPU ends at
// its limit, and memory above its limit ends the container.
type feedback struct {
	policy Policy
	// limitsKnown is set if the source knows the limits at each time.
	limitsKnown bool
	// cores and bytes are the need at each five minutes of a day.
	cores, bytes func(i int) float64
	current      Resources
	// throttled returns the share of throttled periods at a limit, in cores; nil where it is not counted.
	throttled func(limit float64) units.Ratio
	// killsAt changes kills as a source that knows less about them; nil for all known.
	killsAt func(OOM) OOM
	// change changes other inputs of each decision; nil for none.
	change func(in *Input)
}

// run returns the requests of a number of days.
func (f feedback) run(t *testing.T, days int) (cpu, memory []float64) {
	t.Helper()

	const history = 14
	p := NewProfile()
	var kills []OOM
	var hpa *HPA
	for d := range history + days {
		from := start.Add(time.Duration(d) * day)
		limit := math.Inf(1)
		if l := f.current.CPULimit; l != nil {
			limit = float64(*l) / 1000
		}

		memoryLimit := math.Inf(1)
		if l := f.current.MemoryLimit; l != nil {
			memoryLimit = float64(*l)
		}

		cores := series.Series{Start: from, Step: 5 * time.Minute, Values: make([]float64, 288)}
		bytes := series.Series{Start: from, Step: 5 * time.Minute, Values: make([]float64, 288)}
		killed := false
		for i := range cores.Values {
			cores.Values[i] = min(f.cores(i), limit)
			bytes.Values[i] = f.bytes(i)
			if bytes.Values[i] > memoryLimit {
				bytes.Values[i] = 0.7 * memoryLimit
				killed = true
			}
		}

		u := Usage{Pod: "a", Series: cores}
		if f.limitsKnown && !math.IsInf(limit, 1) {
			u.Limit = limit
			if f.throttled != nil {
				u.Throttling = &Throttling{Share: f.throttled(limit)}
			}
		}

		p.AddCPU(u)
		p.AddMemory(Usage{Pod: "a", Series: bytes})
		if killed {
			kill := OOM{At: from.Add(23 * time.Hour), Memory: units.Bytes(memoryLimit)}
			if f.killsAt != nil {
				kill = f.killsAt(kill)
			}

			kills = append(kills, kill)
		}

		if d < history {
			continue
		}

		in := Input{Container: "app", Profile: p, Now: from.Add(day), Current: f.current, OOMs: kills}
		if f.change != nil {
			f.change(&in)
		}
		if hpa != nil {
			in.HPA = hpa // As adopted with the last recommendation.
		}

		r := Recommend(in, f.policy)
		checkRecommendation(t, r)
		if r.HPA != nil {
			hpa = r.HPA
		}

		f.current = r.Target
		cpu = append(cpu, floatOf(r.Target.CPURequest))
		memory = append(memory, floatOf(r.Target.MemoryRequest))
	}

	return cpu, memory
}

// feedbackPolicies returns all policies, and variants with each kind of limit, specification and utilization.
func feedbackPolicies(t *testing.T) map[string]Policy {
	t.Helper()

	policies := map[string]Policy{}
	for _, name := range PolicyNames() {
		policies[name] = mustPolicy(t, name)
	}

	gocrane, err := GocranePolicy(nil)
	if err != nil {
		t.Fatal(err)
	}

	policies["gocrane"] = gocrane
	for _, mode := range []LimitMode{LimitEqual, LimitKeep, LimitNone} {
		p := mustPolicy(t, DefaultPolicy)
		p.CPU.Limit = LimitPolicy{Mode: mode}
		p.Memory.Limit = LimitPolicy{Mode: mode}
		policies["default with "+string(mode)] = p
	}

	headroom := mustPolicy(t, BatchPolicy)
	headroom.CPU.Limit = LimitPolicy{Mode: LimitHeadroom, Headroom: 0.02}
	policies["batch with headroom"] = headroom

	specified, err := GocranePolicy(map[string]string{"specification": "true"})
	if err != nil {
		t.Fatal(err)
	}

	policies["gocrane with specifications"] = specified
	utilized := mustPolicy(t, DefaultPolicy)
	utilized.CPU.TargetUtilization = 0.7
	utilized.Memory.TargetUtilization = 0.7
	policies["default with a utilization"] = utilized
	return policies
}

// TestRecommend_FeedbackHasNoCycle applies a hundred recommendations of each policy, one after the other. None may move its own
// input over its own threshold, so that requests settle.
func TestRecommend_FeedbackHasNoCycle(t *testing.T) {
	policies := feedbackPolicies(t)
	loads := map[string]func(i int) float64{
		"flat": same(0.3),
		"busy nights": func(i int) float64 {
			if i < 96 {
				return 0.29 + 0.01*float64(i%12)/12
			}

			return 0.1
		},
		"waves":          func(i int) float64 { return 0.5 + 0.3*math.Sin(2*math.Pi*float64(i)/288) },
		"an hour's peak": func(i int) float64 { return 0.2 + 0.8*float64(min(1, 12/(i+1))) },
	}

	starts := map[string]Resources{
		"guaranteed, far above":  guaranteed(1000, 1<<30),
		"guaranteed, in between": guaranteed(306, 500<<20),
		"guaranteed, far below":  guaranteed(100, 64<<20),
		"burstable":              {CPURequest: ptr(units.MilliCPU(250)), CPULimit: ptr(units.MilliCPU(500)), MemoryRequest: ptr(units.Bytes(256 << 20)), MemoryLimit: ptr(units.Bytes(512 << 20))},
		"a limit alone":          {CPULimit: ptr(units.MilliCPU(310)), MemoryLimit: ptr(units.Bytes(310 << 20))},
	}

	for policy, p := range policies {
		for load, cores := range loads {
			for begin, current := range starts {
				for _, limitsKnown := range []bool{false, true} {
					f := feedback{policy: p, limitsKnown: limitsKnown, cores: cores, current: current}
					f.bytes = func(i int) float64 { return 1e9 * cores(i) }
					cpu, memory := f.run(t, 100)
					name := fmt.Sprintf("%s, %s, %s, limits known %t", policy, load, begin, limitsKnown)
					checkSettles(t, name+", CPU", cpu)
					checkSettles(t, name+", memory", memory)
				}
			}
		}
	}
}

// TestRecommend_FeedbackOfInputsHasNoCycle is the same with each other input of a decision: throttling counters, kills of which less is known,
// the bounds of nodes, autoscalers, heaps, runs, node groups and requests that are raised within the day.
func TestRecommend_FeedbackOfInputsHasNoCycle(t *testing.T) {
	bursts := func(need float64) func(limit float64) units.Ratio {
		return func(limit float64) units.Ratio {
			return units.Ratio(min(1, max(0, (need-limit)/need)))
		}
	}
	inputs := map[string]func(*feedback){
		"no throttling by its counters": func(f *feedback) { f.throttled = func(float64) units.Ratio { return 0 } },
		"little throttling":             func(f *feedback) { f.throttled = func(float64) units.Ratio { return 0.04 } },
		"throttling at any limit":       func(f *feedback) { f.throttled = func(float64) units.Ratio { return 0.4 } },
		"bursts below the limit":        func(f *feedback) { f.throttled = bursts(0.6) },
		"bursts above the limit":        func(f *feedback) { f.throttled = bursts(3) },
		"kills at unknown limits": func(f *feedback) {
			f.killsAt = func(k OOM) OOM { return OOM{At: k.At, Memory: k.Memory / 2, LimitUnknown: true} }
		},
		"kills of nothing known": func(f *feedback) { f.killsAt = func(k OOM) OOM { return OOM{At: k.At, LimitUnknown: true} } },
		"kills of the node":      func(f *feedback) { f.killsAt = func(k OOM) OOM { return OOM{At: k.At, NoLimit: true} } },
		"a small node": func(f *feedback) {
			f.change = func(in *Input) { in.MaxCPU, in.MaxMemory = 400, 400<<20 }
		},
		"an autoscaler": func(f *feedback) {
			f.change = func(in *Input) { in.HPA = &HPA{CPUUtilization: 0.6, MemoryUtilization: 0.8} }
		},
		"a heap that follows the limit": func(f *feedback) {
			f.change = func(in *Input) {
				in.JVM = &JVM{MaxRAMPercentage: 0.75, PeakHeap: 200 << 20}
				if in.Current.MemoryLimit != nil {
					in.JVM.MaxHeap = *in.Current.MemoryLimit * 3 / 4
				}
			}
		},
		"runs":           func(f *feedback) { f.change = func(in *Input) { in.RunsToCompletion = true } },
		"fast reactions": func(f *feedback) { f.change = func(in *Input) { in.Reacts = true } },
		"node groups": func(f *feedback) {
			f.change = func(in *Input) {
				in.Groups = []NodeGroupUse{
					{NodeGroupShape: NodeGroupShape{Name: "small", PodCPU: 2000, PodMemory: 4 << 30}, Profile: in.Profile},
					{NodeGroupShape: NodeGroupShape{Name: "large", PodCPU: 16000, PodMemory: 64 << 30}, Profile: in.Profile},
				}
			}
		},
	}

	waves := func(i int) float64 { return 0.5 + 0.3*math.Sin(2*math.Pi*float64(i)/288) }
	starts := map[string]Resources{
		"guaranteed, in between": guaranteed(760, 700<<20),
		"guaranteed, far above":  guaranteed(2500, 3<<30),
		"burstable":              {CPURequest: ptr(units.MilliCPU(250)), CPULimit: ptr(units.MilliCPU(500)), MemoryRequest: ptr(units.Bytes(256 << 20)), MemoryLimit: ptr(units.Bytes(512 << 20))},
	}

	for policy, p := range feedbackPolicies(t) {
		for input, apply := range inputs {
			for begin, current := range starts {
				f := feedback{policy: p, limitsKnown: true, cores: waves, current: current}
				f.bytes = func(i int) float64 { return 1e9 * waves(i) }
				apply(&f)
				cpu, memory := f.run(t, 100)
				name := fmt.Sprintf("%s, %s, %s", policy, input, begin)
				checkSettles(t, name+", CPU", cpu)
				checkSettles(t, name+", memory", memory)
			}
		}
	}
}

func guaranteed(cpu units.MilliCPU, memory units.Bytes) Resources {
	return Resources{CPURequest: ptr(cpu), CPULimit: ptr(cpu), MemoryRequest: ptr(memory), MemoryLimit: ptr(memory)}
}

// checkSettles fails if requests still change materially after three quarters of the days: the windows of
// that time have no day from before the first recommendation.
func checkSettles(t *testing.T, name string, requests []float64) {
	t.Helper()

	rest := requests[3*len(requests)/4:]
	if lowest, highest := slices.Min(rest), slices.Max(rest); highest > (1+materialChange)*lowest {
		t.Errorf("%s: requests of %v to %v in the last %d days, want one value: %v", name, lowest, highest, len(rest), requests)
	}
}

// TestRecommend_FeedbackOnTheSameUsage applies a hundred recommendations without new usage in between: the second one is the last
// that may differ by more than the steps of the way out of a limit.
func TestRecommend_FeedbackOnTheSameUsage(t *testing.T) {
	for _, name := range PolicyNames() {
		for _, cores := range []float64{0.012, 0.3, 1.7} {
			in := constant(14, cores, 5e8)
			in.Current = guaranteed(1000, 1<<30)
			seen := map[string]int{}
			last := ""
			for i := range 100 {
				r := Recommend(in, mustPolicy(t, name))
				checkRecommendation(t, r)
				in.Current = r.Target

				text := jsonText(r.Target)
				if at, found := seen[text]; found && text != last {
					t.Fatalf("%s, %v cores: recommendation %d is that of %d again, %s; want no cycle", name, cores, i, at, text)
				}

				seen[text] = i
				last = text
			}

			if *in.Current.CPURequest < units.MilliCPU(1000*cores) || float64(*in.Current.CPURequest) > 1250*cores+10 {
				t.Errorf("%s, %v cores: settles at %s, want the usage and at most a quarter more", name, cores, last)
			}
		}
	}
}
