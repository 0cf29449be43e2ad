// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package gpu finds GPUs that containers request and do not use: all of them, or some of several. Measuring their usage does
// not belong here.
package gpu

import (
	"fmt"
	"strings"

	"crane.io/crane/pkg/recommend"
	"crane.io/crane/pkg/recommend/observation"
	"crane.io/crane/pkg/settings"
	"crane.io/crane/pkg/units"
)

// Reasons of plans.
const (
	// ReasonIdle means that a container uses none of its GPUs.
	ReasonIdle = "IdleGPU"
	// ReasonOversized means that a container uses some of its GPUs and never all.
	ReasonOversized = "OversizedGPU"
)

// Settings define when a GPU counts as idle.
type Settings struct {
	// Use is the utilization, the maximum of each hour, up to which a GPU is idle.
	Use units.Ratio
	// Memory is the amount of memory up to which no process uses the GPU.
	Memory units.Bytes
	// Percentile selects the hour that is compared with Use; 1 is the busiest.
	Percentile units.Ratio
	// Hours is the length of the window.
	Hours int
}

// ParseSettings parses the settings; the defaults are
//
//	gpu-usage-utilization 0.02, gpu-memory-bytes 67108864, percentile 1, history-length 168h
//
// A process that uses a GPU holds some hundred MiB of its memory; a driver alone a few.
func ParseSettings(config map[string]string) (Settings, error) {
	r := settings.Read(config)
	s := Settings{
		Use:        r.Share("gpu-usage-utilization", 0.02),
		Memory:     units.Bytes(r.Number("gpu-memory-bytes", 64<<20, 0, 1<<50)),
		Percentile: r.Share("percentile", 1),
		Hours:      r.Hours("history-length", 168, 1, 90*24),
	}

	return s, r.Err()
}

// Input describes one workload.
type Input struct {
	Containers []Container
	// Replicas is the desired number of pods.
	Replicas int
}

// Container is a container of the workload that requests GPUs.
type Container struct {
	Name string
	// Resource is the name of the requested resource, such as nvidia.com/gpu.
	Resource string
	// Requested is the number of requested GPUs.
	Requested int64
	// Pods are the pods of the window, including deleted ones; each has the devices for which it has metrics.
	Pods [][]Device
}

// Device is one GPU of one pod.
type Device struct {
	// Use is the utilization from 0 to 1, Memory the used memory in bytes, the maximum of each hour.
	Use, Memory observation.Hours
}

// Request is a changed number of GPUs of a container.
type Request struct {
	Container, Resource string
	From, To            int64
}

// Plan is the recommendation for one workload.
type Plan struct {
	recommend.Plan
	// Requests are the changed requests.
	Requests []Request
}

// Decide returns the unused GPUs. GPUs without data count as used.
func Decide(in Input, s Settings) Plan {
	var plan Plan
	if in.Replicas <= 0 {
		plan.State = recommend.Clear
		plan.Description = "It is scaled to zero."
		return plan
	}

	var found, missing []string
	missingState := recommend.Learning
	for _, c := range in.Containers {
		if c.Requested <= 0 {
			continue
		}

		// What is known of one container counts, whatever is unknown about the others.
		v := evaluate(c, s)
		switch {
		case v.state != recommend.Ready:
			missing = append(missing, v.why)
			if v.state == recommend.NoData {
				missingState = v.state
			}

		case v.found != "":
			found = append(found, v.found)
			plan.Evidence = append(plan.Evidence, v.evidence...)
			if plan.Reason == "" || v.reason == ReasonIdle {
				plan.Reason = v.reason
			}
			if v.request != nil {
				plan.Requests = append(plan.Requests, *v.request)
			}
		}
	}

	switch {
	case len(found) == 0 && len(missing) > 0:
		plan.State = missingState
		plan.Description = strings.Join(missing, " ")

	case len(found) == 0:
		plan.State = recommend.Clear
		plan.Description = "It has no GPU that it does not use."

	default:
		plan.State = recommend.Ready
		plan.Action = recommend.NoAction
		plan.Incomplete = len(missing) > 0
		if len(plan.Requests) > 0 {
			plan.Action = recommend.Patch
		}

		plan.Description = strings.Join(append(found, missing...), " ")
	}

	return plan
}

// finding is the result for one container.
type finding struct {
	state      recommend.State
	why, found string
	reason     string
	evidence   []recommend.Evidence
	request    *Request
}

func evaluate(c Container, s Settings) finding {
	need := observation.DefaultRequirement(s.Hours)
	need.PartTime = true
	busiest := observation.Unknown(s.Hours)
	memory := observation.Unknown(s.Hours)

	// busy is the number of used devices of a pod, seen its number of devices; the maxima over all pods.
	busy, seen := 0, 0
	for _, devices := range c.Pods {
		used := 0
		for _, d := range devices {
			busiest.Max(d.Use)
			memory.Max(d.Memory)

			if need.Quantile(d.Use, s.Percentile) > float64(s.Use) {
				used++
			}
		}

		busy = max(busy, used)
		seen = max(seen, len(devices))
	}

	what := "use of the GPUs of " + c.Name
	if busy >= seen && seen > 0 || int64(busy) >= c.Requested {
		return finding{state: recommend.Ready} // All observed devices are used.
	}

	if state, why := need.Check(what, busiest); state != recommend.Ready {
		return finding{state: state, why: why}
	}

	if int64(seen) < c.Requested {
		return finding{state: recommend.NoData, why: fmt.Sprintf("%s asks for %d GPUs, and the use of only %d is known.", c.Name, c.Requested, seen)}
	}

	limit := 100 * float64(s.Use)
	out := finding{state: recommend.Ready, evidence: []recommend.Evidence{
		{
			Name:  fmt.Sprintf("%s of the use of the busiest GPU of %s by the hour over %s", units.FormatPercentile(s.Percentile), c.Name, units.FormatHours(s.Hours)),
			Value: 100 * min(need.Quantile(busiest, s.Percentile), 1), Unit: "%", Limit: &limit,
		},
		{Name: "GPUs that a pod uses", Value: float64(busy)},
		{Name: "GPUs that it asks for", Value: float64(c.Requested)},
	}}

	if busy > 0 {
		out.reason = ReasonOversized
		out.request = &Request{c.Name, c.Resource, c.Requested, int64(busy)}
		out.found = fmt.Sprintf("%s asks for %d GPUs, and for %s none of its pods has used more than %d.", c.Name, c.Requested, units.FormatHours(s.Hours), busy)

		return out
	}

	out.reason = ReasonIdle
	out.found = fmt.Sprintf("%s holds %d GPUs and has not used one for %s", c.Name, c.Requested, units.FormatHours(s.Hours))
	largest := need.Quantile(memory, 1)
	switch {
	case !observation.IsKnown(largest):
		out.found += "; whether a process has it open is not known."
	case largest > float64(s.Memory):
		out.found += fmt.Sprintf("; a process keeps %.3g GiB of its memory, so the GPU cannot just be taken away: scale the workload down, or let it share one.", largest/(1<<30))
		out.evidence = append(out.evidence, recommend.Evidence{Name: "most memory in use on one GPU", Value: largest, Unit: "bytes"})
	default:
		out.request = &Request{c.Name, c.Resource, c.Requested, 0}
		out.found += ", nor opened one."
	}

	return out
}
