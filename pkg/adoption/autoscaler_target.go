// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"fmt"
	"math"
	"slices"

	"crane.io/crane/pkg/rightsize"
)

// Target is the utilization of a request at which an autoscaler adds pods. Request times target is its scale point: if the request
// changed alone, the autoscaler would act at another use than before.
type Target struct {
	// Container is empty for the requests of the whole pod.
	Container string `json:"container,omitempty"`
	// Memory is false for CPU.
	Memory bool `json:"memory,omitempty"`
	// Percent of the request, 1 or more.
	Percent int32 `json:"percent"`
}

// sameRequest reports whether both targets concern the same request.
func (t Target) sameRequest(other Target) bool {
	return t.Container == other.Container && t.Memory == other.Memory
}

// String formats the target for messages: "cpu of app at 70 %".
func (t Target) String() string {
	text := "cpu"
	if t.Memory {
		text = "memory"
	}
	if t.Container != "" {
		text += " of " + t.Container
	}

	return fmt.Sprintf("%s at %d %%", text, t.Percent)
}

// AdjustedTarget is the stored state of a target that changes with the requests.
type AdjustedTarget struct {
	// Target is the value before adoption.
	Target
	// Set is the value written last, Previous the value before that, which stays valid when the write was lost.
	Set      int32 `json:"set"`
	Previous int32 `json:"was"`
}

// trackTargets returns the adjusted targets with those that are new at their present value.
func trackTargets(tracked []AdjustedTarget, targets []Target) []AdjustedTarget {
	tracked = slices.Clone(tracked)
	for _, t := range targets {
		if indexTarget(tracked, t) < 0 {
			tracked = append(tracked, AdjustedTarget{Target: t, Set: t.Percent, Previous: t.Percent})
		}
	}

	return tracked
}

func indexTarget(tracked []AdjustedTarget, t Target) int {
	return slices.IndexFunc(tracked, func(a AdjustedTarget) bool { return a.sameRequest(t) })
}

// findTargetDrift returns which target another client has changed, or "".
func findTargetDrift(in Input, s State) string {
	for _, t := range in.Targets {
		i := indexTarget(s.AdjustedTargets, t)
		if i < 0 {
			continue
		}

		if a := s.AdjustedTargets[i]; t.Percent != a.Percent && t.Percent != a.Set && t.Percent != a.Previous {
			return fmt.Sprintf("the target of the autoscaler was set to %s by another client, it was %d %%", t, a.Set)
		}
	}

	return ""
}

// adjustTargets returns the targets that keep the scale points of the autoscaler when the resizes are done, and those of them to
// write now. original reports whether all have the value that they had before adoption.
func adjustTargets(in Input, s State, resizes []PodResize) (adjusted []AdjustedTarget, write []Target, original bool) {
	adjusted = trackTargets(s.AdjustedTargets, in.Targets)
	original = true
	for _, t := range in.Targets {
		a := &adjusted[indexTarget(adjusted, t)]
		to := a.Target
		to.Percent = keepScalePoint(in, s, resizes, *a)
		original = original && to.Percent == a.Percent && t.Percent == a.Percent

		if to.Percent == t.Percent {
			continue
		}

		if a.Set != to.Percent {
			a.Previous = t.Percent
			a.Set = to.Percent
		}

		write = append(write, to)
	}

	return adjusted, write, original
}

// keepScalePoint returns the percentage that keeps the scale point of all pods together, since they share one target.
func keepScalePoint(in Input, s State, resizes []PodResize, a AdjustedTarget) int32 {
	resized := map[string]Size{}
	for _, r := range resizes {
		resized[r.UID] = r.To
	}

	var before, after float64
	for _, p := range in.Pods {
		now := p.size()
		original := now
		if s.isKnownSize(p) {
			original, _ = p.InPlaceSize(s.Original)
		}
		if to, ok := resized[p.UID]; ok {
			now = now.merge(to)
		}

		before += float64(original.sumRequests(a.Target))
		after += float64(now.sumRequests(a.Target))
	}

	if before <= 0 || after <= 0 {
		return a.Set // Without requests there is nothing to compare.
	}

	return int32(min(max(math.Round(float64(a.Percent)*before/after), 1), math.MaxInt32))
}

// merge returns the size with the amounts of another in place of its own.
func (s Size) merge(other Size) Size {
	out := s.Clone()
	for _, a := range other.amounts() {
		v, _ := other.get(a)
		out.set(a, v)
	}

	return out
}

// sumRequests adds up the requests that a target concerns.
func (s Size) sumRequests(t Target) int64 {
	f := cpuRequest
	if t.Memory {
		f = memoryRequest
	}
	if t.Container != "" {
		s = s.restrictTo(Size{Containers: map[string]rightsize.Resources{t.Container: {}}})
	}

	sum := int64(0)
	for _, a := range s.amounts() {
		if a.field == f {
			v, _ := s.get(a)
			sum += v
		}
	}

	return sum
}
