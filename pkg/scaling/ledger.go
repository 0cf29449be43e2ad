// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package scaling

import (
	"fmt"
	"math"
	"time"
)

// Level is a way of turning a forecast into replicas: the Quantile of the load to come, carried by pods that are used to Use of
// their capacity.
type Level struct {
	// Quantile of the forecast, in [0.5, 0.99].
	Quantile float64
	// Utilization is the share of a pod's capacity that the forecast may fill, in (0, 1].
	Utilization float64
}

// levelCount is how many there are to choose from.
const levelCount = 11

// Levels are those that a Ledger weighs, roughly from the most careful of money to the most careful of load.
func Levels() [levelCount]Level {
	return [levelCount]Level{
		{0.5, 1}, {0.5, 0.85}, {0.5, 0.7}, {0.7, 1}, {0.7, 0.85}, {0.8, 1}, {0.8, 0.85}, {0.9, 1}, {0.9, 0.85}, {0.95, 1}, {0.95, 0.85},
	}
}

// Replicas returns how many replicas a level asks for where the forecast peaks at a load.
func (l Level) Replicas(peak, capacity float64) int32 {
	return ReplicasForLoad(peak, capacity*l.Utilization)
}

// Plant is what a Ledger knows of the workload.
type Plant struct {
	// Capacity is the load that one ready pod carries; > 0.
	Capacity float64
	// Target is the share of it that the HPA aims for.
	Target float64
	// Lag is how long it takes from load to ready pods: metric delay, a sync period and the pods' start-up time.
	Lag time.Duration
	// StabilizationWindow is for how long the HPA keeps what load once asked for.
	StabilizationWindow time.Duration
}

// TargetPerPod is the load that the HPA aims for in one pod.
func (p Plant) TargetPerPod() float64 { return p.Capacity * p.Target }

// EquivalentLoad returns the load that makes an HPA, which aims for TargetPerPod in each pod, ask for what a level asks for where the forecast peaks at
// a load.
func (p Plant) EquivalentLoad(l Level, peak float64) float64 { return peak * p.Target / l.Utilization }

const (
	// maxSampleGap is the longest time between two samples that is booked; what lies in a longer gap is unknown.
	maxSampleGap = 10 * time.Minute
	// maxLookback bounds how far back requests are kept.
	maxLookback = 3 * time.Hour
	// ledgerHalfLife is how fast what happened loses weight: a week counts half a week later.
	ledgerHalfLife = 4 * 24 * time.Hour
	// ledgerMinHistory is how much must have been seen before anything is chosen.
	ledgerMinHistory = 24 * time.Hour
)

// scalingCost is what one way of scaling would have cost and missed, in decayed seconds.
type scalingCost struct {
	replicaSeconds  float64 // replica-seconds
	shortageSeconds float64 // seconds with load above capacity
}

// Ledger keeps account of what each Level would have cost, and what it would have spared, on the workload's own past. It is
// small whatever the length of the past, and not safe for concurrent use.
type Ledger struct {
	plant      Plant
	reactive   scalingCost
	levels     [levelCount]scalingCost
	observed   time.Duration
	lastSample time.Time
	requests   []replicaRequest // as far back as stabilisation and lag reach
}

// SetPlant takes another plant. The account goes on: its times and its ratios of replicas hold for any. An error leaves the old one.
func (l *Ledger) SetPlant(plant Plant) error {
	if err := plant.validate(); err != nil {
		return err
	}
	if plant != l.plant {
		l.plant, l.requests = plant, l.requests[:0]
	}
	return nil
}

// LastSample is the time of the newest sample; zero before the first.
func (l *Ledger) LastSample() time.Time { return l.lastSample }

// replicaRequest is what load asked of the HPA at a time, and what each level asked for.
type replicaRequest struct {
	at       time.Time
	reactive int32
	levels   [levelCount]int32
}

// NewLedger returns an empty ledger.
func NewLedger(plant Plant) (*Ledger, error) {
	if err := plant.validate(); err != nil {
		return nil, err
	}
	return &Ledger{plant: plant}, nil
}

func (p Plant) validate() error {
	switch {
	case !(p.Capacity > 0) || math.IsInf(p.Capacity, 0):
		return fmt.Errorf("capacity %v: must be a positive number", p.Capacity)
	case !(p.Target > 0 && p.Target <= 1):
		return fmt.Errorf("target %v: must be in (0, 1]", p.Target)
	case p.Lag < 0 || p.StabilizationWindow < 0 || p.Lag+p.StabilizationWindow > maxLookback:
		return fmt.Errorf("lag %s and stabilisation %s: must be neither negative nor more than %s together", p.Lag, p.StabilizationWindow, maxLookback)
	}
	return nil
}

// Observe takes the load at a time and what the forecast said at that time of the load to come (peak returns the highest value
// of a quantile over the coming Lag; ok is false where there is no forecast). Samples that are not newer than the last, or not a
// load, are left out.
func (l *Ledger) Observe(now time.Time, load float64, peak func(quantile float64) (value float64, ok bool)) {
	if !(load >= 0) || math.IsInf(load, 0) || !now.After(l.lastSample) {
		return
	}
	if span := now.Sub(l.lastSample); !l.lastSample.IsZero() && span <= maxSampleGap {
		l.accrue(now, load, span)
	}
	l.lastSample = now
	r := replicaRequest{at: now, reactive: ReplicasForLoad(load, l.plant.Capacity*l.plant.Target)}
	var last, v float64
	var ok bool
	for i, level := range Levels() {
		if level.Quantile != last { // neighbours share a quantile, and looking for its peak is the work
			last = level.Quantile
			v, ok = peak(last)
		}
		if ok {
			r.levels[i] = level.Replicas(v, l.plant.Capacity)
		}
	}
	l.requests = append(l.requests, r)
}

// accrue books the time since the last sample: what was asked for between stabilisation and lag ago is ready now.
func (l *Ledger) accrue(now time.Time, load float64, span time.Duration) {
	from, to := now.Add(-l.plant.Lag-l.plant.StabilizationWindow), now.Add(-l.plant.Lag)
	old := 0
	for old+1 < len(l.requests) && !l.requests[old+1].at.After(from) { // What was asked for holds until the next sample.
		old++
	}
	l.requests = append(l.requests[:0], l.requests[old:]...)
	if len(l.requests) == 0 || l.requests[0].at.After(to) {
		return // nothing that was seen could be ready by now
	}
	ready := replicaRequest{reactive: 1}
	for _, r := range l.requests {
		if r.at.After(to) {
			break
		}
		ready.reactive = max(ready.reactive, r.reactive)
		for i, n := range r.levels {
			ready.levels[i] = max(ready.levels[i], n)
		}
	}
	l.observed += span
	keep := math.Exp2(-span.Seconds() / ledgerHalfLife.Seconds())
	l.reactive.add(keep, span, ready.reactive, load > float64(ready.reactive)*l.plant.Capacity)
	for i, n := range ready.levels {
		n = max(n, ready.reactive)
		l.levels[i].add(keep, span, n, load > float64(n)*l.plant.Capacity)
	}
}

func (a *scalingCost) add(keep float64, span time.Duration, replicas int32, short bool) {
	a.replicaSeconds = a.replicaSeconds*keep + span.Seconds()*float64(replicas)
	a.shortageSeconds *= keep
	if short {
		a.shortageSeconds += span.Seconds()
	}
}

// Choice is the level that a Ledger would scale by, and what speaks for it.
type Choice struct {
	// Use is false where the forecast should be ignored.
	Use   bool
	Level Level
	// ExtraCost is what the level would have cost more, as a fraction of the replica hours without it; Spared the share of the
	// time under capacity that it would have spared.
	ExtraCost, SparedShortage float64
	Reason                    string
}

// Budgets of extra replica hours, as fractions of what the HPA alone takes.
const (
	// SeasonalBudget is for series whose forecast follows a season.
	SeasonalBudget = 0.10
	// NonSeasonalBudget is for the rest: what looks like foresight there is mostly luck.
	NonSeasonalBudget = 0.02
)

const (
	// minSparedPerCost is how much of the time under capacity a level must spare for each fraction of replica hours that it costs.
	minSparedPerCost = 4.0
	// minSparedShortage is the least that is worth acting for.
	minSparedShortage = 0.05
)

// Choose returns the level that spares most within a budget of extra replica hours (a fraction); none where nothing was to be
// spared or the past is too short.
func (l *Ledger) Choose(budget float64) Choice {
	if l.observed < ledgerMinHistory {
		// Without the hours: the text stands in statuses, which are not to be written for it alone.
		return Choice{Reason: fmt.Sprintf("learning: less than %d hours of the past are known", int(ledgerMinHistory.Hours()))}
	}
	if l.reactive.shortageSeconds < 1 {
		return Choice{Reason: "the HPA alone was never under capacity"}
	}
	best := Choice{Reason: fmt.Sprintf("on the past days no level of the forecast was worth its replica hours (at most %.0f %% more)", 100*budget)}
	for i, level := range Levels() {
		extra := l.levels[i].replicaSeconds/l.reactive.replicaSeconds - 1
		spared := 1 - l.levels[i].shortageSeconds/l.reactive.shortageSeconds
		if extra > budget || spared < minSparedPerCost*extra || spared < minSparedShortage {
			continue
		}
		if !best.Use || spared-minSparedPerCost/2*extra > best.SparedShortage-minSparedPerCost/2*best.ExtraCost {
			best = Choice{Use: true, Level: level, ExtraCost: extra, SparedShortage: spared}
			best.Reason = fmt.Sprintf("on the past days the %g quantile at %.0f %% of capacity would have spared %.0f %% of the time under capacity for %.1f %% more replica hours",
				level.Quantile, 100*level.Utilization, 100*spared, 100*extra)
		}
	}
	return best
}
