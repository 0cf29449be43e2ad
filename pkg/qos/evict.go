// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package qos

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"crane.io/crane/pkg/units"
)

// minGapShare is the share of a gap below which evicting a pod is not worth it.
const minGapShare = 0.01

// evictionPlan holds planned evictions, or why there are none or too few.
type evictionPlan struct {
	evictions []Eviction
	// shortfall is the part of the gap left after them; negative if it is unknown.
	shortfall float64
	withheld  WithholdReason
	reason    string
}

// planEvictions plans the evictions of a firing rule: as many pods as close the gap, in victim order, without those that prove unnecessary.
// A metric that measures no amount of a resource does not determine the gap: one pod is evicted, and the next one only after the metric
// shows the effect.
func (d decision) planEvictions(r *Rule, gap float64, quantified bool, earlier *planned) evictionPlan {
	limits := d.policy.Limits
	if quantified && gap <= 0 {
		return evictionPlan{shortfall: -1, withheld: WithheldByWaterMark, reason: "pending releases bring the node down to the water mark"}
	}

	if reason := d.state.pauseReason(d.observation.At); reason != "" {
		return evictionPlan{shortfall: gap, withheld: WithheldByPause, reason: reason}
	}

	recent := d.state.recentEvictions() + len(earlier.Evictions)
	allowed := limits.MaxEvictions - recent
	if allowed <= 0 {
		return evictionPlan{shortfall: gap, withheld: WithheldByRate, reason: fmt.Sprintf("the limit of %s evicted within %s is reached", units.FormatCount(recent, "pod"), limits.EvictionWindow)}
	}

	// The metric alone shows whether an eviction suffices, so one pod is evicted at a time.
	if !quantified {
		if reason := d.waitReason(r, earlier); reason != "" {
			return evictionPlan{shortfall: -1, withheld: WithheldForMetric, reason: reason}
		}

		gap = math.SmallestNonzeroFloat64
		allowed = 1
	}

	criterion := d.criterion(r)
	chosen, spared := d.chooseVictims(r, criterion, gap, quantified, earlier)
	out := evictionPlan{shortfall: -1}
	if len(chosen) > allowed {
		out.withheld = WithheldByRate
		out.reason = fmt.Sprintf("%d more have to wait: at most %d pods are evicted within %s", len(chosen)-allowed, limits.MaxEvictions, limits.EvictionWindow)
		chosen = chosen[:allowed]
	}

	remaining := gap
	for _, p := range chosen {
		use, _ := criterion.valueOf(p, d.observation.At, r.MaxAge)
		remaining -= use
		e := Eviction{
			Pod:           p.ref(),
			GraceOverride: r.Action.Evict.GracePeriod,
			GracePeriod:   p.Grace,
			Freed:         use,
			Resource:      criterion.resource(),
			Criterion:     criterion,
			Rule:          r.Name,
			Reason:        fmt.Sprintf("%s; %s", criterion.describe(use, &d.observation.Node), p.describe(d.observation.At)),
		}

		if e.GraceOverride != nil {
			e.GracePeriod = *e.GraceOverride
		}
		out.evictions = append(out.evictions, e)
	}

	if quantified {
		out.shortfall = max(remaining, 0)
	}

	if len(out.evictions) == 0 && out.reason == "" {
		out.withheld = WithheldNoCandidate
		out.reason = "no pod to evict" + spared
	}

	return out
}

// chooseVictims selects victims in order until the gap is closed, and then drops unnecessary ones, the last first.
func (d decision) chooseVictims(r *Rule, criterion Criterion, gap float64, quantified bool, earlier *planned) (chosen []*Pod, spared string) {
	remaining := gap
	var exempt, unmeasured, negligible, refused int
	candidates := d.orderVictims(r, criterion)
	minimum := criterion.minimum(d.observation)

	// Reserved capacity is released with its holder, however little of it is used.
	countsHolders := d.metric(r).HolderResource != NoResource

	if len(candidates) == 0 {
		return nil, ": " + noCandidate
	}

	for _, p := range candidates {
		if remaining <= 0 {
			break
		}

		use, measured := criterion.valueOf(p, d.observation.At, r.MaxAge)
		switch {
		case p.Terminating || d.state.terminating[p.UID] != nil || earlier.pods[p.UID]:
		case p.ExemptReason != "":
			exempt++
		case !measured && !countsHolders:
			unmeasured++
		case quantified && use < gap*minGapShare || use < minimum && !countsHolders:
			negligible++
		case !d.state.refused[p.UID].IsZero():
			refused++

		default:
			chosen = append(chosen, p)
			remaining -= use
			if !quantified {
				remaining = 0
			}
		}
	}

	for i := len(chosen) - 1; i >= 0 && quantified; i-- {
		if use, _ := criterion.valueOf(chosen[i], d.observation.At, r.MaxAge); remaining+use <= 0 {
			remaining += use
			chosen = slices.Delete(chosen, i, i+1)
		}
	}

	if n := exempt + unmeasured + negligible + refused; n > 0 {
		spared = criterion.suffix() + fmt.Sprintf(": %d are never evicted, %d are unmeasured, %d use too little, %d were just refused", exempt, unmeasured, negligible, refused)
	}

	return chosen, spared
}

// waitReason returns why the metric cannot show the effect of the last eviction yet; empty if it can.
func (d decision) waitReason(r *Rule, earlier *planned) string {
	if d.state.anyTerminating(d.observation.At, d.policy.Limits) || len(earlier.Evictions) > 0 {
		return "waits for a terminating pod"
	}

	settle := d.metric(r).Settle
	for _, at := range d.state.evicted {
		if since := d.observation.At.Sub(at); since < settle {
			return fmt.Sprintf("waits for the metric to show the last eviction, %s ago", since.Truncate(time.Second))
		}
	}

	return ""
}

// rank returns the position of a QoS class among victims.
func (c Class) rank() int {
	switch c {
	case BestEffort:
		return 0
	case Burstable:
		return 1
	}

	return 2
}

// orderedVictims returns the pods an action may be taken on, the first victim first: pods on reclaimed capacity, lower priority, lower QoS
// class, larger use, younger, then by name for a stable order.
func orderedVictims(o *Observation, action string, criterion Criterion) []*Pod {
	var out []*Pod
	for i := range o.Pods {
		if p := &o.Pods[i]; slices.Contains(p.Allowed, action) {
			out = append(out, p)
		}
	}

	slices.SortFunc(out, func(a, b *Pod) int {
		return cmp.Or(
			trueFirst(a.Elastic, b.Elastic),
			cmp.Compare(a.Priority, b.Priority),
			cmp.Compare(a.Class.rank(), b.Class.rank()),
			cmp.Compare(criterion.value(b), criterion.value(a)),
			b.Started.Compare(a.Started),
			cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID),
		)
	})

	return out
}

func trueFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}

	return 1
}

// describe returns the properties by which a pod was chosen.
func (p *Pod) describe(now time.Time) string {
	kind := string(p.Class)
	if p.Elastic {
		kind = "elastic, " + kind
	}

	text := kind + ", priority " + itoa(p.Priority)
	if !p.Started.IsZero() {
		text += ", runs for " + now.Sub(p.Started).Truncate(time.Second).String()
	}

	return text
}
