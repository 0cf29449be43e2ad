// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package qos

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// trifle is the share of a gap below which a victim is spared: it would end for nothing.
const trifle = 0.01

// evict plans the victims of a rule that fires: as many as close the gap, in victim order, without those who turn out not to be needed.
// A metric that is no amount of a resource says nothing of how much has to go: one pod goes, and the next one not before the first is
// gone and the metric shows it.
func (d *decision) evict(r *Rule, f *Finding, gap float64, quantified bool) []Eviction {
	limits := d.policy.Limits
	if quantified && gap <= 0 {
		f.withhold(ByWaterMark, "what is about to go brings the node down to the water mark")
		return nil
	}
	if why := d.s.held(d.o.At); why != "" {
		f.Short = gap
		f.withhold(ByHold, why)
		return nil
	}
	recent := d.s.recent() + len(d.plan.Evictions)
	allowed := limits.Evictions - recent
	if allowed <= 0 {
		f.Short = gap
		f.withhold(ByRate, fmt.Sprintf("%d pods were evicted within %s, the most that are", recent, limits.Window))
		return nil
	}
	if !quantified {
		if why := d.unsettled(r); why != "" {
			f.withhold(ByWaiting, why)
			return nil
		}
		gap, allowed = math.SmallestNonzeroFloat64, 1
	}
	by := d.criterion(r)
	chosen, spared := d.choose(r, f, by, gap, quantified)
	if len(chosen) > allowed {
		f.withhold(ByRate, fmt.Sprintf("%d more have to wait: at most %d pods are evicted within %s", len(chosen)-allowed, limits.Evictions, limits.Window))
		chosen = chosen[:allowed]
	}
	out, left := d.evictions(r, by, chosen, gap)
	if quantified {
		f.Short = math.Max(left, 0)
	}
	if len(out) == 0 && f.Why == "" {
		f.withhold(ByNobody, "nobody to evict"+spared)
	}
	return out
}

// evictions names the victims, and what is left of the gap without them.
func (d *decision) evictions(r *Rule, by Criterion, chosen []*Pod, gap float64) (out []Eviction, left float64) {
	left = gap
	for _, p := range chosen {
		use, _ := by.of(p, d.o.At, r.MaxAge)
		left -= use
		e := Eviction{
			Pod: p.ref(), Grace: r.Action.Evict.Grace, Takes: p.Grace, Frees: use, Of: by.resource(), By: by, Rule: r.Name,
			Why: fmt.Sprintf("%s; %s", by.says(use, &d.o.Node), p.why(d.o.At)),
		}
		if e.Grace != nil {
			e.Takes = *e.Grace
		}
		out = append(out, e)
	}
	return out, left
}

// choose takes victims in order until the gap is closed, and then lets those go free, last first, without whom it is closed as well.
func (d *decision) choose(r *Rule, f *Finding, by Criterion, gap float64, quantified bool) (chosen []*Pod, spared string) {
	left := gap
	var kept, unmeasured, trifling, refused int
	candidates, least := d.victims(r, f, by), by.least(d.o)
	// What is held is free when its holder is gone, however little that uses.
	held := d.s.rules[r.Name].metric.Held != None
	if len(candidates) == 0 {
		return nil, ": " + nobody
	}
	for _, p := range candidates {
		if left <= 0 {
			break
		}
		use, known := by.of(p, d.o.At, r.MaxAge)
		switch {
		case p.Terminating || d.s.leaving[p.UID] != nil || d.evicting[p.UID]:
		case p.Keep != "":
			kept++
		case !known && !held:
			unmeasured++
		case quantified && use < gap*trifle || use < least && !held:
			trifling++
		case !d.s.refused[p.UID].IsZero():
			refused++
		default:
			chosen = append(chosen, p)
			left -= use
			if !quantified {
				left = 0
			}
		}
	}
	for i := len(chosen) - 1; i >= 0 && quantified; i-- {
		if use, _ := by.of(chosen[i], d.o.At, r.MaxAge); left+use <= 0 {
			left += use
			chosen = slices.Delete(chosen, i, i+1)
		}
	}
	if n := kept + unmeasured + trifling + refused; n > 0 {
		spared = by.mention() + fmt.Sprintf(": %d are never evicted, %d are not measured, %d use too little, %d were refused just now", kept, unmeasured, trifling, refused)
	}
	return chosen, spared
}

// unsettled says why the metric cannot show yet what the last eviction brought.
func (d *decision) unsettled(r *Rule) string {
	if d.s.anyGoing(d.o.At, d.policy.Limits) || len(d.plan.Evictions) > 0 {
		return "waits for a pod that is ending"
	}
	settle := d.s.rules[r.Name].metric.Settle
	for _, at := range d.s.evicted {
		if since := d.o.At.Sub(at); since < settle {
			return fmt.Sprintf("waits for the metric to show the last eviction, %s ago", since.Truncate(time.Second))
		}
	}
	return ""
}
