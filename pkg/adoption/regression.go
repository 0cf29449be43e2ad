// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"fmt"
	"time"

	"crane.io/crane/pkg/series"
)

// Signals are what a step is judged by, beside the pods themselves.
type Signals struct {
	// KilledAt is the last kill for lack of memory of any pod of the workload, gone ones too; the zero time for none.
	KilledAt time.Time
	// Throttled is the share of CFS periods in which its containers were throttled, the worst of them; nil where it is not
	// known. Unknown is neither good nor bad.
	Throttled *series.Ratio
}

// findRegression says what got worse since the last step; empty for nothing. While the step is under way everything counts; after that, for
// as long as the breaker looks back, kills for lack of memory.
func findRegression(in Input, s State) string {
	rested := s.Phase == Resting && s.Steps > 0 && in.Now.Sub(s.StepAt) < in.Policy.BreakerWindow && !s.Current.Equal(s.Previous)
	// What one step back did not heal, the way back to the beginning may.
	held := s.Phase == Held && reduces(s.Original, s.Current)
	if !s.UnderWay() && !rested && !held {
		return ""
	}
	// Ends are told to the second.
	since := s.StepAt.Truncate(time.Second)
	if held {
		since, rested = s.PhaseSince.Truncate(time.Second).Add(time.Second), true
	}
	if notBefore(in.Signals.KilledAt, since) {
		return "a container was killed for lack of memory at " + formatClock(in.Signals.KilledAt)
	}
	for _, p := range in.Pods {
		if why := findPodRegression(in, p, since, rested); why != "" {
			return why
		}
	}
	now, before := in.Signals.Throttled, s.Throttled
	if !rested && now != nil && before != nil && *now >= in.Policy.Throttled && *now-*before >= in.Policy.ThrottledIncrease {
		return fmt.Sprintf("throttled in %.0f %% of CPU periods, %.0f %% before", 100*float64(*now), 100*float64(*before))
	}
	return ""
}

// notBefore tells whether something happened at all, and not before since.
func notBefore(t, since time.Time) bool { return !t.IsZero() && !t.Before(since) }

// findPodRegression is worse for one pod; rested leaves it at kills.
func findPodRegression(in Input, p Pod, since time.Time, rested bool) string {
	after := func(t time.Time) bool { return notBefore(t, since) }
	for _, c := range p.Containers {
		if after(c.KilledAt) {
			return fmt.Sprintf("container %s of pod %s was killed for lack of memory at %s", c.Name, p.Name, formatClock(c.KilledAt))
		}
		// A container that a resize restarts has ended for that.
		if !rested && after(c.EndedAt) && !c.RestartsForCPU && !c.RestartsForMemory {
			return fmt.Sprintf("container %s of pod %s restarted at %s", c.Name, p.Name, formatClock(c.EndedAt))
		}
	}
	unready := !p.Ready && p.NotResizable == "" && after(p.UnreadySince) && in.Now.Sub(p.UnreadySince) >= in.Policy.ReadyGrace
	// A pod that the step made was never ready before it.
	if !rested && unready && p.Created.Before(since) {
		return fmt.Sprintf("pod %s is not ready since %s", p.Name, formatClock(p.UnreadySince))
	}
	// One that took the place of another has long enough to begin to serve.
	late := in.Reach == Recreate && !p.Ready && !p.Created.Before(since) && in.Now.Sub(p.Created) >= in.Policy.Settle
	if !rested && late {
		return fmt.Sprintf("pod %s, which took the place of another, is not ready after %s", p.Name, in.Policy.Settle)
	}
	return ""
}

// unhealthyReason says why nothing should be lowered now: what is not well cannot be seen to get worse.
func unhealthyReason(in Input) string {
	recent := in.Now.Add(-in.Policy.Watch)
	if in.Signals.KilledAt.After(recent) {
		return "a container was killed for lack of memory at " + formatClock(in.Signals.KilledAt)
	}
	for _, p := range in.Pods {
		if !p.Ready {
			return fmt.Sprintf("pod %s is not ready", p.Name)
		}
		for _, c := range p.Containers {
			if c.EndedAt.After(recent) || c.KilledAt.After(recent) {
				return fmt.Sprintf("container %s of pod %s restarted at %s", c.Name, p.Name, formatClock(c.EndedAt))
			}
		}
	}
	return ""
}

func formatClock(t time.Time) string { return t.UTC().Format("15:04:05Z") }
