// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"fmt"
	"time"

	"crane.io/crane/pkg/units"
)

// Signals are the measurements, beside the pods themselves, by which a step is judged.
type Signals struct {
	// KilledAt is the last OOM kill of any pod of the workload, deleted pods included; zero for none.
	KilledAt time.Time
	// Throttled is the share of CFS periods in which the most throttled container was throttled, 0 to 1; nil when unknown, which
	// counts neither for nor against a step.
	Throttled *units.Ratio
}

// findRegression returns the degradation since the last step, or "". During a step every signal counts; afterward,
// for Policy.BreakerWindow, only OOM kills.
func findRegression(in Input, s State) string {
	onlyKills := s.Phase == Resting && s.Steps > 0 && in.Now.Sub(s.StepAt) < in.Policy.BreakerWindow && !s.Current.Equal(s.Previous)
	// If one step back did not help, the original size may.
	stillReduced := s.Phase == Held && reduces(s.Original, s.Current)
	if !s.UnderWay() && !onlyKills && !stillReduced {
		return ""
	}

	// Kubernetes reports ends of containers in whole seconds.
	since := s.StepAt.Truncate(time.Second)
	if stillReduced {
		since = s.PhaseSince.Truncate(time.Second).Add(time.Second)
		onlyKills = true
	}

	if notBefore(in.Signals.KilledAt, since) {
		return "a container was OOM-killed at " + formatClock(in.Signals.KilledAt)
	}

	for _, p := range in.Pods {
		if reason := findPodRegression(in, p, since, onlyKills); reason != "" {
			return reason
		}
	}

	now := in.Signals.Throttled
	before := s.Throttled
	if !onlyKills && now != nil && before != nil && *now >= in.Policy.Throttled && *now-*before >= in.Policy.ThrottledIncrease {
		return fmt.Sprintf("throttled in %.0f %% of CPU periods, %.0f %% before", 100*float64(*now), 100*float64(*before))
	}

	return ""
}

// notBefore reports whether something happened, and not before since.
func notBefore(t, since time.Time) bool { return !t.IsZero() && !t.Before(since) }

func findPodRegression(in Input, p Pod, since time.Time, onlyKills bool) string {
	for _, c := range p.Containers {
		if notBefore(c.KilledAt, since) {
			return fmt.Sprintf("container %s of pod %s was OOM-killed at %s", c.Name, p.Name, formatClock(c.KilledAt))
		}

		// A container that restarts for a resize ends because of it.
		if !onlyKills && notBefore(c.EndedAt, since) && !c.RestartsForCPU && !c.RestartsForMemory {
			return fmt.Sprintf("container %s of pod %s restarted at %s", c.Name, p.Name, formatClock(c.EndedAt))
		}
	}

	if onlyKills || p.Ready {
		return ""
	}

	older := p.Created.Before(since)
	switch {
	case older && p.NotResizable == "" && notBefore(p.UnreadySince, since) && in.Now.Sub(p.UnreadySince) >= in.Policy.ReadyGrace:
		return fmt.Sprintf("pod %s is not ready since %s", p.Name, formatClock(p.UnreadySince))
	case !older && in.Reach == Recreate && in.Now.Sub(p.Created) >= in.Policy.Settle:
		return fmt.Sprintf("pod %s, which replaced another, is not ready after %s", p.Name, in.Policy.Settle)
	}

	return ""
}

// unhealthyReason returns why nothing should be lowered now, because a regression could not be recognized, or "".
func unhealthyReason(in Input) string {
	recent := in.Now.Add(-in.Policy.Watch)
	if in.Signals.KilledAt.After(recent) {
		return "a container was OOM-killed at " + formatClock(in.Signals.KilledAt)
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
