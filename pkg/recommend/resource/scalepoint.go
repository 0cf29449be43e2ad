// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"fmt"
	"math"
	"strings"

	"crane.io/crane/pkg/rightsize"
)

// Autoscaler acts on the utilization of the requests of a workload. A horizontal autoscaler adds pods at a usage of request
// x target; that product is its scale point, which a request that changes alone would move.
type Autoscaler struct {
	Name string
	// Owned is set if Crane created the autoscaler and may change it.
	Owned   bool
	Targets []Target
}

// Target is the utilization at which the autoscaler acts.
type Target struct {
	// Memory is false for CPU.
	Memory bool
	// Container is empty if the requests of the whole pod count.
	Container string
	// Percent of the request, above 0.
	Percent int32
}

// TargetChange is a target that must change.
type TargetChange struct {
	Target
	// To is the new value of Percent.
	To int32
}

// TargetChanges returns the targets that keep the scale point when the requests of the containers change. Targets are whole
// percent, so the scale point may move by half a percent of the request.
func (a *Autoscaler) TargetChanges(containers []rightsize.Recommendation) []TargetChange {
	if a == nil {
		return nil
	}

	var out []TargetChange
	for _, t := range a.Targets {
		now, after := t.requests(containers)
		if now <= 0 || after <= 0 {
			continue // Utilization is undefined without a request.
		}

		to := max(1, math.Round(float64(t.Percent)*now/after))
		if m := (TargetChange{Target: t, To: int32(min(to, math.MaxInt32))}); m.To != t.Percent {
			out = append(out, m)
		}
	}

	return out
}

// requests returns the sums of the requests of the containers, without init containers, now and after the change; 0 if one
// of them has none now, because the autoscaler then does not act.
func (t Target) requests(all []rightsize.Recommendation) (now, after float64) {
	for _, r := range all {
		if r.Init || t.Container != "" && t.Container != r.Container {
			continue
		}

		from := floatOf(r.Current.CPURequest)
		to := floatOf(r.Target.CPURequest)
		ready := r.CPU.Status == rightsize.Ready
		if t.Memory {
			from = floatOf(r.Current.MemoryRequest)
			to = floatOf(r.Target.MemoryRequest)
			ready = r.Memory.Status == rightsize.Ready
		}

		if from <= 0 {
			return 0, 0
		}

		// A request without a number stays.
		if !ready || to <= 0 {
			to = from
		}

		now += from
		after += to
	}

	return now, after
}

func floatOf[T ~int64](v *T) float64 {
	if v == nil {
		return 0
	}

	return float64(*v)
}

// Describe returns how the autoscaler of Crane changes with the requests; empty if it does not.
func (a *Autoscaler) Describe(moves []TargetChange) string {
	if a == nil || len(moves) == 0 {
		return ""
	}

	parts := make([]string, len(moves))
	for i, m := range moves {
		request := "cpu"
		if m.Memory {
			request = "memory"
		}
		if m.Container != "" {
			request += " of " + m.Container
		}

		parts[i] = fmt.Sprintf("%s %d %% -> %d %%", request, m.Percent, m.To)
	}

	return fmt.Sprintf("The autoscaler %s acts on the utilization of these requests and gets new targets together with them (%s).",
		a.Name, strings.Join(parts, "; "))
}
