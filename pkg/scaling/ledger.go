// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package scaling

import (
	"fmt"
	"math"
	"time"
)

// Level converts a forecast to replicas: the Quantile of the coming load, on pods that are filled to Utilization of their capacity.
type Level struct {
	// Quantile of the forecast, in [0.5, 0.99].
	Quantile float64
	// Utilization is the fraction of a pod's capacity that the forecast may fill, in (0, 1].
	Utilization float64
}

// levelCount is the number of levels.
const levelCount = 11

// Levels returns the levels that a Ledger compares, roughly from the cheapest to the most cautious.
func Levels() [levelCount]Level {
	return [levelCount]Level{
		{0.5, 1}, {0.5, 0.85}, {0.5, 0.7}, {0.7, 1}, {0.7, 0.85}, {0.8, 1}, {0.8, 0.85}, {0.9, 1}, {0.9, 0.85}, {0.95, 1}, {0.95, 0.85},
	}
}

// Replicas returns the replicas of a level for a forecast with a peak load.
func (l Level) Replicas(peak, capacity float64) int32 {
	return ReplicasForLoad(peak, capacity*l.Utilization)
}

// Plant describes the scaled workload to a Ledger.
type Plant struct {
	// Capacity is the load that one ready pod carries; > 0.
	Capacity float64
	// Target is the fraction of Capacity that the HPA targets, in (0, 1].
	Target float64
	// Lag is the time from a change of load to ready pods: metric delay, a sync period and the start-up time of the pods.
	Lag time.Duration
	// StabilizationWindow is how long the HPA keeps replicas after the load has fallen.
	StabilizationWindow time.Duration
}

// TargetPerPod returns the load that the HPA targets for each pod.
func (p Plant) TargetPerPod() float64 { return p.Capacity * p.Target }

// EquivalentLoad returns the load at which an HPA with TargetPerPod asks for as many replicas as a level does for a peak load.
func (p Plant) EquivalentLoad(l Level, peak float64) float64 { return peak * p.Target / l.Utilization }

const (
	// maxSampleGap is the longest time between two samples that is accounted; the load in a longer gap is unknown.
	maxSampleGap = 10 * time.Minute
	// maxLookback bounds how long replica requests are kept.
	maxLookback = 3 * time.Hour
	// ledgerHalfLife is the half-life of the accounts: a week counts less than half as much a week later.
	ledgerHalfLife = 4 * 24 * time.Hour
	// ledgerMinHistory is the minimum observed time before a level is chosen.
	ledgerMinHistory = 24 * time.Hour
)

// scalingCost is the cost and the shortage of one way of scaling, exponentially decayed.
type scalingCost struct {
	replicaSeconds  float64 // replicas times seconds
	shortageSeconds float64 // seconds with load above capacity
}

// Ledger accounts, on the history of a workload, what scaling by each Level would have cost and how much time under capacity it
// would have avoided. Its size does not depend on the length of the history. It is not safe for concurrent use.
type Ledger struct {
	plant      Plant
	reactive   scalingCost
	levels     [levelCount]scalingCost
	observed   time.Duration
	lastSample time.Time
	requests   []replicaRequest // as far back as stabilization window and lag
}

// SetPlant changes the plant. The accounts stay, because durations and ratios of replicas are comparable between plants. An invalid
// plant leaves the old one.
func (l *Ledger) SetPlant(plant Plant) error {
	if err := plant.validate(); err != nil {
		return err
	}
	if plant != l.plant {
		l.plant, l.requests = plant, l.requests[:0]
	}
	return nil
}

// LastSample returns the time of the newest sample; zero before the first.
func (l *Ledger) LastSample() time.Time { return l.lastSample }

// replicaRequest is the replicas that the HPA asked for at a time, and those of each level.
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

// Observe records the load at a time. peak returns the maximum of a quantile of the forecast over the coming Lag, as known at that
// time; ok is false without a forecast. Samples that are not newer than the last one or no valid load are ignored.
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
		if level.Quantile != last { // neighbours share a quantile, and peak is expensive
			last = level.Quantile
			v, ok = peak(last)
		}
		if ok {
			r.levels[i] = level.Replicas(v, l.plant.Capacity)
		}
	}
	l.requests = append(l.requests, r)
}

// accrue accounts the time since the last sample: replicas requested between stabilization window plus lag and lag ago are ready
// now.
func (l *Ledger) accrue(now time.Time, load float64, span time.Duration) {
	from, to := now.Add(-l.plant.Lag-l.plant.StabilizationWindow), now.Add(-l.plant.Lag)
	old := 0
	for old+1 < len(l.requests) && !l.requests[old+1].at.After(from) { // A request is valid until the next sample.
		old++
	}
	l.requests = append(l.requests[:0], l.requests[old:]...)
	if len(l.requests) == 0 || l.requests[0].at.After(to) {
		return // no observed request could be ready by now
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

// Choice is the level that a Ledger recommends.
type Choice struct {
	// Use is false where the forecast should be ignored.
	Use   bool
	Level Level
	// ExtraCost is the additional cost of the level as a fraction of the replica hours without it; SparedShortage is the fraction of
	// the time under capacity that it avoids.
	ExtraCost, SparedShortage float64
	Reason                    string
}

// Budgets of additional replica hours, as fractions of those of the HPA alone.
const (
	// SeasonalBudget applies to series whose forecast follows a season.
	SeasonalBudget = 0.10
	// NonSeasonalBudget applies to all other series, whose forecasts are right mostly by chance.
	NonSeasonalBudget = 0.02
)

const (
	// minSparedPerCost is the minimum ratio of SparedShortage to ExtraCost.
	minSparedPerCost = 4.0
	// minSparedShortage is the minimum SparedShortage.
	minSparedShortage = 0.05
)

// Choose returns the level that avoids most shortage within a budget of additional replica hours (a fraction), and none without a
// shortage or with too short a history.
func (l *Ledger) Choose(budget float64) Choice {
	if l.observed < ledgerMinHistory {
		// The observed hours are omitted, because each change of the text would cause a status update.
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
