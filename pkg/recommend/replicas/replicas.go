// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package replicas recommends how many pods a workload should have: as many as its use, CPU and memory, needs at a target
// utilisation of what its pods request, most of the time. It must not know who counts pods, nor what an autoscaler does.
package replicas

import (
	"fmt"
	"math"
	"time"

	"crane.io/crane/pkg/recommend"
	"crane.io/crane/pkg/recommend/observation"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/series"
)

// Input is all that is known of a workload when it is decided on.
type Input struct {
	// Replicas is how many pods the workload wants now.
	Replicas int32
	// Available is how many of them are available; below 0 where that is not known.
	Available int32
	// CPU (cores) and Memory (bytes, working set) are what all pods used together, on one grid.
	CPU, Memory series.Series
	// CPURequest and MemoryRequest are what one pod requests; 0 where it requests nothing.
	CPURequest    series.MilliCPU
	MemoryRequest series.Bytes
	// Unrequested names a container that requests no CPU or no memory; empty where all request both.
	Unrequested string
	// Now is the time of the decision.
	Now time.Time
}

// Plan is how many pods a workload should have.
type Plan struct {
	recommend.Plan
	// Replicas is from 1 up where the state is Ready.
	Replicas int32
	// ByCPU and ByMemory are what each resource needs; 0 where it has no say.
	ByCPU, ByMemory int32
	// Missing says what of the history is not known where the plan is Incomplete.
	Missing string
}

// Reasons of plans without a number.
const (
	ReasonScaledDown  = "ScaledDown"
	ReasonUnavailable = "PodsNotAvailable"
	ReasonNoRequest   = "NoRequest"
)

// Decide counts the pods that the use of the window needs. Each resource needs
//
//	ceil(P(use of all pods) / (target x request of a pod))
//
// pods; the larger counts, and never less than the setting's minimum. Source of the formula: gocrane's Replicas
// recommender, in which the memory is the CPU by mistake.
//
// No forecast is asked for: the window stands for the time after it. Where less of it is known than should be, and more than
// a day, the plan is Incomplete and has a number that is never less than the pods that there are: what the rest of a week
// would have shown can only need more.
func Decide(in Input, s Settings) Plan {
	if plan, refused := checkEligible(in, s); refused {
		return plan
	}
	state, why := checkHistory(in, s)
	if state != recommend.Ready && state != recommend.Learning {
		return Plan{Plan: recommend.Plan{State: state, Description: why}}
	}
	short := state == recommend.Learning
	if state, lately := checkHistory(in, s.withWindow(minHistory)); short && state != recommend.Ready {
		return Plan{Plan: recommend.Plan{State: recommend.Learning, Description: why + " " + lately}}
	}
	start := in.Now.Add(-s.Window)
	cpu := series.Quantile(in.CPU.Between(start, in.Now).Values, float64(s.CPUPercentile))
	memory := series.Quantile(in.Memory.Between(start, in.Now).Values, float64(s.MemoryPercentile))
	plan := Plan{
		ByCPU:    podsFor(cpu, float64(s.CPUTarget)*float64(in.CPURequest)/1000),
		ByMemory: podsFor(memory, float64(s.MemoryTarget)*float64(in.MemoryRequest)),
	}
	plan.Replicas = max(s.DefaultMin, plan.ByCPU, plan.ByMemory)
	if short {
		plan.Incomplete, plan.Missing, plan.Replicas = true, why, max(plan.Replicas, in.Replicas)
	}
	plan.State, plan.Action = recommend.Ready, recommend.Patch
	if plan.Replicas == in.Replicas {
		plan.Action = recommend.NoAction
	}
	plan.Evidence = []recommend.Evidence{
		{Name: fmt.Sprintf("p%g of cpu of all pods over %s", 100*float64(s.CPUPercentile), series.FormatDuration(s.Window)), Value: cpu, Unit: "cores"},
		{Name: fmt.Sprintf("p%g of memory of all pods over %s", 100*float64(s.MemoryPercentile), series.FormatDuration(s.Window)), Value: memory, Unit: "bytes"},
	}
	plan.Description = describe(in, s, plan)
	if short {
		plan.Description += " " + why + " No forecast stands in for the rest, so fewer pods than run now are not recommended before it is known."
	}
	return plan
}

// minHistory is the history below which nothing is said: a day has its busy hours in it.
const minHistory = 24 * time.Hour

// withWindow are the settings with another window.
func (s Settings) withWindow(window time.Duration) Settings {
	s.Window = min(s.Window, window)
	return s
}

// checkHistory tells whether the use of the window is known well enough: the worse of CPU and memory.
func checkHistory(in Input, s Settings) (recommend.State, string) {
	hours := int(s.Window / time.Hour)
	worst, because := recommend.Ready, ""
	for _, of := range []struct {
		name string
		use  series.Series
	}{{"cpu use", in.CPU}, {"memory use", in.Memory}} {
		state, why := observation.DefaultRequirement(hours).Check(of.name, hourly(of.use, in.Now, hours))
		if state == recommend.NoData || state == recommend.Learning && worst == recommend.Ready {
			worst, because = state, why
		}
		if worst == recommend.NoData {
			break
		}
	}
	return worst, because
}

// checkEligible says why a workload is not looked at.
func checkEligible(in Input, s Settings) (Plan, bool) {
	no := func(reason, format string, args ...any) (Plan, bool) {
		return Plan{Plan: recommend.Plan{State: recommend.Refused, Reason: reason, Description: fmt.Sprintf(format, args...)}}, true
	}
	switch {
	case in.Replicas < max(1, s.WorkloadMin):
		return no(ReasonScaledDown, "The workload wants %d pods; it has to want %d to be looked at.", in.Replicas, max(1, s.WorkloadMin))
	case in.Available >= 0 && (in.Available == 0 || float64(in.Available) < float64(s.Available)*float64(in.Replicas)):
		return no(ReasonUnavailable, "%d of %d pods are available; at least %.0f %% have to be, or their use says little.",
			in.Available, in.Replicas, 100*float64(s.Available))
	case in.Unrequested != "":
		return no(ReasonNoRequest, "Container %s lacks a request for cpu or memory: what a pod is meant to use is not known.", in.Unrequested)
	case in.CPURequest <= 0 || in.MemoryRequest <= 0:
		return no(ReasonNoRequest, "The pods request no cpu or no memory: what a pod is meant to use is not known.")
	}
	return Plan{}, false
}

// podsFor is how many pods carry a use where each carries so much of it; at least 0, at most what a workload can have.
func podsFor(use, each float64) int32 {
	if math.IsNaN(use) || use <= 0 || !(each > 0) {
		return 0
	}
	// A hair above a whole number is that number: 2 cores at 0.5 of 1000m are four pods, whatever the last bit says.
	return int32(min(math.Ceil(use/each*(1-1e-9)), math.MaxInt32))
}

// hourly is the largest value of each of the last so many hours.
func hourly(s series.Series, now time.Time, hours int) observation.Hours {
	out := make(observation.Hours, hours)
	for i := range out {
		out[i] = math.NaN()
	}
	start := now.Add(-time.Duration(hours) * time.Hour)
	for i, v := range s.Values {
		at := s.Time(i)
		if series.IsGap(v) || at.Before(start) || !at.Before(now) {
			continue
		}
		h := min(int(at.Sub(start)/time.Hour), hours-1)
		if !(out[h] >= v) {
			out[h] = v
		}
	}
	return out
}

func describe(in Input, s Settings, p Plan) string {
	change := fmt.Sprintf("%d -> %d pods", in.Replicas, p.Replicas)
	if p.Action == recommend.NoAction {
		change = fmt.Sprintf("It stays at %d pods", p.Replicas)
	}
	return fmt.Sprintf("%s: cpu needs %d pods at %.0f %% of the requested %s each, memory %d pods at %.0f %% of %s each; at least %d.",
		change, p.ByCPU, 100*float64(s.CPUTarget), rightsize.FormatCPU(in.CPURequest),
		p.ByMemory, 100*float64(s.MemoryTarget), rightsize.FormatMemory(in.MemoryRequest), s.DefaultMin)
}
