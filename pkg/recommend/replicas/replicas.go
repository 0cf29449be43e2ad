// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package replicas recommends the number of pods of a workload: enough for its usage of CPU and memory at a target
// utilization of the requests, most of the time. Counting pods and autoscaling do not belong here.
package replicas

import (
	"fmt"
	"math"
	"time"

	"crane.io/crane/pkg/recommend"
	"crane.io/crane/pkg/recommend/observation"
	"crane.io/crane/pkg/series"
	"crane.io/crane/pkg/settings"
	"crane.io/crane/pkg/units"
)

// Input describes one workload.
type Input struct {
	// Replicas is the desired number of pods.
	Replicas int32
	// Available is the number of available pods; below 0 if it is unknown.
	Available int32
	// CPU (cores) and Memory (bytes, working set) are the usage of all pods together, on one grid.
	CPU, Memory series.Series
	// CPURequest and MemoryRequest are the requests of one pod; 0 if it has none.
	CPURequest    units.MilliCPU
	MemoryRequest units.Bytes
	// Unrequested is a container without a request of CPU or memory; empty if all have both.
	Unrequested string
	// Now is the time of the decision.
	Now time.Time
}

// Plan is the recommended number of pods.
type Plan struct {
	recommend.Plan
	// Replicas is 1 or more if the state is Ready.
	Replicas int32
	// ByCPU and ByMemory are the pods that each resource needs; 0 if it needs none.
	ByCPU, ByMemory int32
	// Missing describes the unknown history of an Incomplete plan.
	Missing string
}

// Reasons of plans without a number.
const (
	ReasonScaledDown  = "ScaledDown"
	ReasonUnavailable = "PodsNotAvailable"
	ReasonNoRequest   = "NoRequest"
)

// Decide computes the number of pods for the usage of the window. Each resource needs
//
//	ceil(P(usage of all pods) / (target x request of a pod))
//
// pods; the larger number counts, and at least the minimum of the settings. Source of the formula: gocrane's Replicas
// recommender, which uses CPU for memory by mistake.
//
// There is no forecast: the window represents the time after it. If less of it is known than required, and at least a day,
// the plan is Incomplete and never recommends fewer pods than there are.
func Decide(in Input, s Settings) Plan {
	if plan, refused := checkEligible(in, s); refused {
		return plan
	}

	state, why := checkHistory(in, s)
	if state != recommend.Ready && state != recommend.Learning {
		return Plan{Plan: recommend.Plan{State: state, Description: why}}
	}

	// A short history of at least a day may lead to more pods, but not to fewer.
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
		plan.Incomplete = true
		plan.Missing = why
		plan.Replicas = max(plan.Replicas, in.Replicas)
	}

	plan.State = recommend.Ready
	plan.Action = recommend.Patch
	if plan.Replicas == in.Replicas {
		plan.Action = recommend.NoAction
	}

	plan.Evidence = []recommend.Evidence{
		{Name: fmt.Sprintf("p%g of cpu of all pods over %s", 100*float64(s.CPUPercentile), units.FormatDuration(s.Window)), Value: cpu, Unit: "cores"},
		{Name: fmt.Sprintf("p%g of memory of all pods over %s", 100*float64(s.MemoryPercentile), units.FormatDuration(s.Window)), Value: memory, Unit: "bytes"},
	}

	plan.Description = describe(in, s, plan)
	if short {
		plan.Description += " " + why + " No forecast stands in for the rest, so fewer pods than run now are not recommended before it is known."
	}

	return plan
}

// minHistory is the shortest history for a number: a day contains its busy hours.
const minHistory = 24 * time.Hour

// withWindow returns the settings with a window of at most the given length.
func (s Settings) withWindow(window time.Duration) Settings {
	s.Window = min(s.Window, window)
	return s
}

// checkHistory returns whether the usage in the window is sufficiently known: the worse of CPU and memory.
func checkHistory(in Input, s Settings) (recommend.State, string) {
	hours := int(s.Window / time.Hour)
	worst := recommend.Ready
	because := ""
	for _, quantity := range []struct {
		name string
		use  series.Series
	}{{"cpu use", in.CPU}, {"memory use", in.Memory}} {
		required := observation.DefaultRequirement(hours)
		required.PartTime = true
		state, why := required.Check(quantity.name, observation.HourlyMax(quantity.use, in.Now, hours))
		if state == recommend.NoData || state == recommend.Learning && worst == recommend.Ready {
			worst = state
			because = why
		}

		if worst == recommend.NoData {
			break
		}
	}

	return worst, because
}

// checkEligible returns a Refused plan if the workload cannot be evaluated.
func checkEligible(in Input, s Settings) (Plan, bool) {
	refuse := func(reason, format string, args ...any) (Plan, bool) {
		return Plan{Plan: recommend.Plan{State: recommend.Refused, Reason: reason, Description: fmt.Sprintf(format, args...)}}, true
	}

	switch {
	case in.Replicas < max(1, s.WorkloadMin):
		return refuse(ReasonScaledDown, "The workload has %s; it is evaluated from %d on.", units.FormatCount(in.Replicas, "replica"), max(1, s.WorkloadMin))
	case in.Available >= 0 && (in.Available == 0 || float64(in.Available) < float64(s.Available)*float64(in.Replicas)):
		return refuse(ReasonUnavailable, "%d of %d pods are available; at least %.0f %% have to be, or their use says little.",
			in.Available, in.Replicas, 100*float64(s.Available))
	case in.Unrequested != "":
		return refuse(ReasonNoRequest, "Container %s lacks a request for cpu or memory: what a pod is meant to use is not known.", in.Unrequested)
	case in.CPURequest <= 0 || in.MemoryRequest <= 0:
		return refuse(ReasonNoRequest, "The pods request no cpu or no memory: what a pod is meant to use is not known.")
	}

	return Plan{}, false
}

// podsFor returns the number of pods for a usage if each carries so much of it; at least 0.
func podsFor(use, each float64) int32 {
	if math.IsNaN(use) || use <= 0 || !(each > 0) {
		return 0
	}

	// Rounding errors must not add a pod: 2 cores at 0.5 of 1000m are four pods.
	return int32(min(math.Ceil(use/each*(1-1e-9)), math.MaxInt32))
}

func describe(in Input, s Settings, p Plan) string {
	change := fmt.Sprintf("%d -> %s", in.Replicas, units.FormatCount(p.Replicas, "pod"))
	if p.Action == recommend.NoAction {
		change = fmt.Sprintf("It stays at %s", units.FormatCount(p.Replicas, "pod"))
	}

	return fmt.Sprintf("%s: cpu needs %d pods at %.0f %% of the requested %s each, memory %d pods at %.0f %% of %s each; at least %d.",
		change, p.ByCPU, 100*float64(s.CPUTarget), units.FormatCPU(in.CPURequest),
		p.ByMemory, 100*float64(s.MemoryTarget), units.FormatMemory(in.MemoryRequest), s.DefaultMin)
}

// Settings are those of gocrane, with its keys and defaults, as far as they still apply.
type Settings struct {
	// WorkloadMin is the number of pods from which a workload is evaluated (workload-min-replicas, 1).
	WorkloadMin int32
	// Available is the share of the desired pods that must be available, 0 to 1 (pod-available-ratio, 0.5): the usage of a
	// workload that is half down is not representative.
	Available units.Ratio
	// DefaultMin is the smallest recommended number, 1 or more (default-min-replicas, 1).
	DefaultMin int32
	// CPUPercentile and MemoryPercentile are the share of the time in which the number of pods must be sufficient, 0 to 1
	// (cpu-percentile and mem-percentile, 0.95).
	CPUPercentile, MemoryPercentile units.Ratio
	// CPUTarget and MemoryTarget are the target utilization of the requests, above 0 to 1 (cpu-target-utilization and
	// mem-target-utilization, 0.5).
	CPUTarget, MemoryTarget units.Ratio
	// Window is the length of the history, in whole hours from a day to 60 days (history-length, 7d).
	Window time.Duration
}

// minTarget is the smallest target utilization; below it the number of pods depends on the setting rather than on usage.
const minTarget = 0.01

// ReadSettings reads the settings from a reader that may have further keys.
func ReadSettings(r *settings.Reader) Settings {
	const day = 24
	// The workload itself reports availability, by its own minReadySeconds; the key is only validated.
	r.Number("pod-min-ready-seconds", 0, 0, 3600)

	return Settings{
		WorkloadMin:      int32(r.Number("workload-min-replicas", 1, 0, 1<<20)),
		Available:        r.Share("pod-available-ratio", 0.5),
		DefaultMin:       int32(r.Number("default-min-replicas", 1, 1, 1<<20)),
		CPUPercentile:    r.Share("cpu-percentile", 0.95),
		MemoryPercentile: r.Share("mem-percentile", 0.95),
		CPUTarget:        units.Ratio(r.Number("cpu-target-utilization", 0.5, minTarget, 1)),
		MemoryTarget:     units.Ratio(r.Number("mem-target-utilization", 0.5, minTarget, 1)),
		Window:           time.Duration(r.Hours("history-length", 7*day, day, 60*day)) * time.Hour,
	}
}

// ParseSettings parses the settings of the recommender. Unknown keys are errors.
func ParseSettings(config map[string]string) (Settings, error) {
	r := settings.Read(config)
	s := ReadSettings(r)
	return s, r.Err()
}
