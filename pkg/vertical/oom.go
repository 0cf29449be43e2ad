// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package vertical

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"crane.io/crane/pkg/recommend/resource"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/settings"
	"crane.io/crane/pkg/units"
)

// OOMEstimator estimates from OOM kills. Without settings it computes what a rule with the same policy recommends after them. With settings
// it computes as gocrane does: for a week, a kill at m bytes asks for max(m*ratio, m+100MiB). Its answers are minimums.
type OOMEstimator struct {
	// configured is set with any setting. ratio is in [1, 10]; ratios has those of single workloads, by name.
	configured bool
	ratio      float64
	ratios     map[string]float64
	// window is how long a kill counts.
	window time.Duration
}

const (
	oomRatio           = 1.2
	minRatio, maxRatio = 1, 10
	oomWindow          = 7 * 24 * time.Hour
)

// ParseOOMEstimator parses the settings of the OOM estimator: oom-bump-ratio 1.2, oom-history-length 168h, and gocrane's
// workload.NAME, the ratio of the workload NAME. An unknown key is an error.
func ParseOOMEstimator(config map[string]string) (OOMEstimator, error) {
	const workload = "workload."
	r := settings.Read(config)
	out := OOMEstimator{
		configured: len(config) > 0,
		ratio:      r.Number("oom-bump-ratio", oomRatio, minRatio, maxRatio),
		ratios:     map[string]float64{},
		window:     oomWindow,
	}

	r.Parse("oom-history-length", func(text string) error {
		d, err := units.ParseDuration(text)
		if err != nil || d <= 0 {
			return errors.New("must be a duration above zero, for example 168h")
		}

		out.window = d
		return nil
	})

	for _, key := range r.Keys(workload) {
		out.ratios[strings.TrimPrefix(key, workload)] = r.Number(key, oomRatio, minRatio, maxRatio)
	}

	if err := r.Err(); err != nil {
		return OOMEstimator{}, err
	}

	return out, nil
}

// policy returns a policy with the rule for kills of a workload.
func (o OOMEstimator) policy(p rightsize.Policy, workload string) rightsize.Policy {
	rule := &p.Memory.OOM
	rule.Enabled = true
	if !o.configured {
		return p
	}

	ratio, ok := o.ratios[workload]
	if !ok {
		ratio = o.ratio
	}

	setRatio(&rule.Ratio, ratio)
	rule.Cap = max(rule.Cap, rule.Ratio)
	rule.Window = o.window
	rule.HalfLife = 0
	return p
}

// Estimate returns the memory required after the kills of each container of a workload; containers without a kill that bounds the need are
// left out. It is the recommendation of the policy of in if kills raise it, and else, or without enough usage, what the kills alone require.
// A kill without a limit does not count: the node was out of memory. After one whose limit is unknown, the request is kept at least.
func (o OOMEstimator) Estimate(workload string, in resource.Input, priority int) map[string]Estimate {
	in.Policy = o.policy(in.Policy, workload)
	in = withoutBounds(in)
	alone := map[string]Estimate{}
	for _, c := range in.Containers {
		request, largest := rightsize.RequestOfKills(rightsize.Input{OOMs: c.OOMs, Now: in.Now, Current: c.Current.WithDefaultRequests()}, in.Policy.Memory)
		if request > 0 {
			alone[c.Name] = Estimate{
				Estimator:      TypeOOM,
				Priority:       priority,
				LowerBoundOnly: true,
				Value:          float64(request),
				Reason:         killReason(largest),
			}
		}
	}

	if len(alone) == 0 {
		return nil
	}

	before := recommendations(withoutKills(in))
	after := recommendations(in)
	for name, e := range alone {
		decided := amountOrZero(after[name].Target.MemoryRequest)
		switch {
		case decided == 0:
		case decided > amountOrZero(before[name].Target.MemoryRequest):
			e.Value = decided
		default:
			e.Value = min(e.Value, decided)
		}

		alone[name] = e
	}

	return alone
}

// killReason describes the kill that decides. The text is constant over time.
func killReason(kill rightsize.OOM) string {
	at := kill.At.UTC().Format(time.RFC3339)
	switch {
	case kill.LimitUnknown && kill.Memory > 0:
		return fmt.Sprintf("it was killed at %s, with an unknown limit and a use of %s: its request is not lowered", at, units.FormatAmount(units.Memory, int64(kill.Memory)))
	case kill.LimitUnknown:
		return fmt.Sprintf("it was killed at %s, with an unknown limit: its request is not lowered", at)
	}

	return fmt.Sprintf("it was killed with %s at %s", units.FormatAmount(units.Memory, int64(kill.Memory)), at)
}

// withoutBounds returns the input without the bounds of nodes, which apply to the combination of all estimates.
func withoutBounds(in resource.Input) resource.Input {
	in.MaxCPU = 0
	in.MaxMemory = 0
	return in
}

// withoutKills returns the input without OOM kills.
func withoutKills(in resource.Input) resource.Input {
	in.Containers = slices.Clone(in.Containers)
	for i := range in.Containers {
		in.Containers[i].OOMs = nil
	}

	return in
}
