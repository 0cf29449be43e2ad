// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package vertical

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"crane.io/crane/pkg/recommend/resource"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/series"
	"crane.io/crane/pkg/units"
)

// feedback is a container whose requests and limits are those of the last decision. Its CPU ends at its limit, and memory above the limit ends it.
type feedback struct {
	percentile PercentileEstimator
	oom        OOMEstimator
	// cores and bytes are the need at each ten minutes of a day.
	cores, bytes func(i int) float64
	// limitsKnown is set if the source knows the limits at each time.
	limitsKnown bool
	// template has the amounts of the pod template, and current those of pods.
	template, current rightsize.Resources
	profile           *rightsize.Profile
	kills             []rightsize.OOM
	changes           map[units.Resource]ChangeTimes
}

// live adds the usage of a day to the history.
func (f *feedback) live(from time.Time) {
	const samples = 144
	cores := series.Series{Start: from, Step: 10 * time.Minute, Values: make([]float64, samples)}
	bytes := series.Series{Start: from, Step: 10 * time.Minute, Values: make([]float64, samples)}
	cpuLimit := float64(*f.current.CPULimit) / 1000
	memoryLimit := float64(*f.current.MemoryLimit)
	killed := false
	for i := range samples {
		cores.Values[i] = min(f.cores(i), cpuLimit)
		bytes.Values[i] = f.bytes(i)
		if bytes.Values[i] > memoryLimit {
			bytes.Values[i] = 0.7 * memoryLimit
			killed = true
		}
	}

	usage := rightsize.Usage{Pod: "web-1", Series: cores}
	if f.limitsKnown {
		usage.Limit = cpuLimit
	}

	f.profile.AddCPU(usage)
	f.profile.AddMemory(rightsize.Usage{Pod: "web-1", Series: bytes})
	if killed {
		f.kills = append(f.kills, rightsize.OOM{At: from.Add(23 * time.Hour), Memory: *f.current.MemoryLimit})
	}
}

// decide applies the decisions of the next morning.
func (f *feedback) decide(now time.Time) {
	in := resource.Input{
		Now:    now,
		Policy: f.percentile.Policy(rightsize.Subject{}),
		Containers: []resource.Container{{
			Name:    "app",
			Profile: f.profile,
			Current: f.template,
			OOMs:    f.kills,
		}},
	}
	found := f.percentile.Estimate(in, 0)["app"]
	answers := map[units.Resource][]Estimate{units.CPU: {found[units.CPU]}, units.Memory: {found[units.Memory]}}
	if e, ok := f.oom.Estimate("web", in, 0)["app"]; ok {
		answers[units.Memory] = append(answers[units.Memory], e)
	}

	decide := func(r units.Resource, request, limit, current int64) Sizing {
		out := Decide(Input{
			Resource:    r,
			Now:         now,
			Policy:      DefaultPolicy(),
			Estimates:   answers[r],
			Request:     request,
			Limit:       limit,
			Current:     current,
			LastChanges: f.changes[r],
		})
		f.changes[r] = out.LastChanges
		return out
	}

	cpu := decide(units.CPU, int64(*f.template.CPURequest), int64(*f.template.CPULimit), int64(*f.current.CPURequest))
	if cpu.Request > 0 {
		f.current.CPURequest = new(units.MilliCPU(cpu.Request))
		f.current.CPULimit = new(units.MilliCPU(cpu.Limit))
	}

	memory := decide(units.Memory, int64(*f.template.MemoryRequest), int64(*f.template.MemoryLimit), int64(*f.current.MemoryRequest))
	if memory.Request > 0 {
		f.current.MemoryRequest = new(units.Bytes(memory.Request))
		f.current.MemoryLimit = new(units.Bytes(memory.Limit))
	}
}

// TestEstimates_FeedbackHasNoCycle applies the decisions of an EffectiveVPA by each policy for a hundred days. None may move its own input over its
// own threshold, so that requests settle.
func TestEstimates_FeedbackHasNoCycle(t *testing.T) {
	configs := map[string]map[string]string{
		"gocrane's": {"cpu-request-percentile": "0.95", "mem-request-percentile": "0.99", "cpu-model-history-length": "48h"},
	}
	for _, name := range rightsize.PolicyNames() {
		configs[name] = map[string]string{"policy": name}
	}

	loads := map[string]func(i int) float64{
		"flat":  func(int) float64 { return 0.3 },
		"waves": func(i int) float64 { return 0.5 + 0.3*math.Sin(2*math.Pi*float64(i)/144) },
	}
	resources := func(cpu, cpuLimit units.MilliCPU, memory, memoryLimit units.Bytes) rightsize.Resources {
		return rightsize.Resources{CPURequest: &cpu, CPULimit: &cpuLimit, MemoryRequest: &memory, MemoryLimit: &memoryLimit}
	}
	starts := map[string]rightsize.Resources{
		"guaranteed, far above":  resources(2500, 2500, 3<<30, 3<<30),
		"guaranteed, in between": resources(306, 306, 400<<20, 400<<20),
		"burstable":              resources(100, 400, 128<<20, 512<<20),
	}

	for config, settings := range configs {
		percentile, err := ParsePercentileEstimator(settings)
		if err != nil {
			t.Fatal(err)
		}

		oom, err := ParseOOMEstimator(nil)
		if err != nil {
			t.Fatal(err)
		}

		for load, cores := range loads {
			for begin, template := range starts {
				for _, limitsKnown := range []bool{false, true} {
					f := &feedback{
						percentile:  percentile,
						oom:         oom,
						cores:       cores,
						bytes:       func(i int) float64 { return 1e9 * cores(i) },
						limitsKnown: limitsKnown,
						template:    template,
						current:     template,
						profile:     rightsize.NewProfile(),
						changes:     map[units.Resource]ChangeTimes{},
					}
					name := fmt.Sprintf("%s, %s, %s, limits known %t", config, load, begin, limitsKnown)
					f.checkSettles(t, name)
				}
			}
		}
	}
}

// checkSettles fails if a request still changes in the last quarter of a hundred decisions: the windows of that time have no day from before the
// first one.
func (f *feedback) checkSettles(t *testing.T, name string) {
	t.Helper()

	const history, days = 14, 100
	var cpu, memory []int64
	for d := range history + days {
		from := start.Add(time.Duration(d) * 24 * time.Hour)
		f.live(from)
		if d < history {
			continue
		}

		f.decide(from.Add(24 * time.Hour))
		cpu = append(cpu, int64(*f.current.CPURequest))
		memory = append(memory, int64(*f.current.MemoryRequest))
	}

	for what, requests := range map[string][]int64{"CPU": cpu, "memory": memory} {
		rest := requests[3*days/4:]
		if len(slices.Compact(slices.Clone(rest))) > 1 {
			t.Errorf("%s, %s: requests of the last %d days are %v, want one value; all are %v", name, what, len(rest), rest, requests)
		}
	}
}
