// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package scaling

import (
	"fmt"
	"math"
	"time"
)

// Basis is what a Level computes replicas from.
type Basis string

const (
	// BasisLoad is the forecast of the load of each step.
	BasisLoad Basis = "load"
	// BasisHighs are the quantiles over the past days of the highest load of a quarter of an hour. With the quantile 0.5 and full pods
	// it is the plain plan that every forecast has to beat.
	BasisHighs Basis = "highs"
	// BasisTarget is the current load with a lower target of the HPA. It is compared with the others and never selected, because the
	// target is the user's.
	BasisTarget Basis = "target"
)

// Level converts a forecast to replicas: the Quantile of the coming load, on pods that are filled to Utilization of their capacity.
type Level struct {
	Basis Basis
	// Quantile of the forecast, in [0.5, 0.99]; 0 for BasisTarget.
	Quantile float64
	// Utilization is the fraction of a pod's capacity that the forecast may fill, in (0, 1]. For BasisTarget it is the fraction of the
	// HPA's own target.
	Utilization float64
}

const (
	// levelCount is the number of levels, of which the first targetLevels are of BasisTarget.
	levelCount   = 27
	targetLevels = 2
)

// Levels returns the levels that a Ledger compares.
func Levels() [levelCount]Level {
	return [levelCount]Level{
		{BasisTarget, 0, 0.85},
		{BasisTarget, 0, 0.7},
		{BasisHighs, 0.5, 1},
		{BasisHighs, 0.5, 0.85},
		{BasisHighs, 0.5, 0.7},
		{BasisHighs, 0.5, 0.6},
		{BasisHighs, 0.5, 0.5},
		{BasisHighs, 0.7, 1},
		{BasisHighs, 0.7, 0.85},
		{BasisHighs, 0.7, 0.7},
		{BasisHighs, 0.7, 0.6},
		{BasisHighs, 0.9, 1},
		{BasisHighs, 0.9, 0.85},
		{BasisHighs, 0.9, 0.7},
		{BasisLoad, 0.5, 1},
		{BasisLoad, 0.5, 0.85},
		{BasisLoad, 0.5, 0.7},
		{BasisLoad, 0.5, 0.6},
		{BasisLoad, 0.75, 1},
		{BasisLoad, 0.75, 0.85},
		{BasisLoad, 0.75, 0.7},
		{BasisLoad, 0.9, 1},
		{BasisLoad, 0.9, 0.85},
		{BasisLoad, 0.9, 0.7},
		{BasisLoad, 0.95, 1},
		{BasisLoad, 0.95, 0.85},
		{BasisLoad, 0.95, 0.7},
	}
}

// PlainPlan returns the level of the plain plan: the median over the past days of the highest load of each quarter of an hour.
func PlainPlan() Level { return Level{BasisHighs, 0.5, 1} }

// Replicas returns the replicas of a level for a forecast with a peak load.
func (l Level) Replicas(peak, capacity float64) int32 {
	return ReplicasForLoad(peak, capacity*l.Utilization)
}

// String describes the level for users.
func (l Level) String() string {
	switch l.Basis {
	case BasisTarget:
		return fmt.Sprintf("a target of the HPA at %.0f %% of the present one", 100*l.Utilization)
	case BasisHighs:
		return fmt.Sprintf("the %g quantile of the quarter-hour highs of past days at %.0f %% of capacity", l.Quantile, 100*l.Utilization)
	}

	return fmt.Sprintf("the %g quantile at %.0f %% of capacity", l.Quantile, 100*l.Utilization)
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
	// maxAccrual is the longest time that is accounted with the same ready replicas.
	maxAccrual = time.Minute
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
	actual     scalingCost // of the levels that were in use at the time
	inUse      int         // index of the level in use; -1 for none
	observed   time.Duration
	lastSample time.Time
	lastLoad   float64
	requests   []replicaRequest // as far back as stabilization window and lag
}

// SetPlant changes the plant. The accounts stay, because durations and ratios of replicas are comparable between plants. An invalid
// plant leaves the old one.
func (l *Ledger) SetPlant(plant Plant) error {
	if err := plant.validate(); err != nil {
		return err
	}

	if plant != l.plant {
		l.plant = plant
		l.requests = l.requests[:0]
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
	actual   int32
}

// NewLedger returns an empty ledger.
func NewLedger(plant Plant) (*Ledger, error) {
	if err := plant.validate(); err != nil {
		return nil, err
	}

	return &Ledger{plant: plant, inUse: -1}, nil
}

func (p Plant) validate() error {
	switch {
	case !(p.Capacity > 0) || math.IsInf(p.Capacity, 0):
		return fmt.Errorf("capacity %v: must be a positive number", p.Capacity)
	case !(p.Target > 0 && p.Target <= 1):
		return fmt.Errorf("target %v: must be in (0, 1]", p.Target)
	case p.Lag < 0 || p.StabilizationWindow < 0 || p.Lag+p.StabilizationWindow > maxLookback:
		return fmt.Errorf("lag %s and stabilization %s: must be neither negative nor more than %s together", p.Lag, p.StabilizationWindow, maxLookback)
	}

	return nil
}

// Observe records the load at a time. peak returns the maximum of a level's quantile of the forecast over its lead, as known at that
// time; ok is false without a forecast. Samples that are not newer than the last one or no valid load are ignored.
func (l *Ledger) Observe(now time.Time, load float64, peak func(Level) (value float64, ok bool)) {
	if !(load >= 0) || math.IsInf(load, 0) || !now.After(l.lastSample) {
		return
	}

	if span := now.Sub(l.lastSample); !l.lastSample.IsZero() && span <= maxSampleGap {
		l.accrueSpan(now, span)
	}

	l.lastSample = now
	l.lastLoad = load

	hpa := l.plant.Capacity * l.plant.Target
	r := replicaRequest{at: now, reactive: ReplicasForLoad(load, hpa)}
	for i, level := range Levels() {
		if level.Basis == BasisTarget {
			r.levels[i] = level.Replicas(load, hpa)
		} else if v, ok := peak(level); ok {
			r.levels[i] = level.Replicas(v, l.plant.Capacity)
		}
	}

	// Without a level in use the HPA alone decides.
	if l.inUse >= 0 {
		r.actual = r.levels[l.inUse]
	}

	l.requests = append(l.requests, r)
}

// accrueSpan accounts the time since the last sample, whose load was valid until now, in parts of maxAccrual.
func (l *Ledger) accrueSpan(now time.Time, span time.Duration) {
	for span > 0 {
		part := min(span, maxAccrual)
		span -= part
		l.accrue(now.Add(-span-part/2), l.lastLoad, part)
	}
}

// accrue accounts a span around now: replicas requested between stabilization window plus lag and lag ago are ready now.
func (l *Ledger) accrue(now time.Time, load float64, span time.Duration) {
	from := now.Add(-l.plant.Lag - l.plant.StabilizationWindow)
	to := now.Add(-l.plant.Lag)

	old := 0
	for old+1 < len(l.requests) && !l.requests[old+1].at.After(from) { // A request is valid until the next sample.
		old++
	}

	l.requests = append(l.requests[:0], l.requests[old:]...)
	if len(l.requests) == 0 || l.requests[0].at.After(to) {
		return // no observed request could be ready by now
	}

	ready := replicaRequest{reactive: 1}
	for i := range l.requests {
		r := &l.requests[i]
		if r.at.After(to) {
			break
		}

		ready.reactive = max(ready.reactive, r.reactive)
		ready.actual = max(ready.actual, r.actual)
		for i, n := range r.levels {
			ready.levels[i] = max(ready.levels[i], n)
		}
	}

	l.observed += span
	keep := math.Exp2(-span.Seconds() / ledgerHalfLife.Seconds())
	short := func(n int32) bool { return load > float64(n)*l.plant.Capacity }
	l.reactive.add(keep, span, ready.reactive, short(ready.reactive))
	n := max(ready.actual, ready.reactive)
	l.actual.add(keep, span, n, short(n))

	for i, n := range ready.levels {
		n = max(n, ready.reactive)
		l.levels[i].add(keep, span, n, short(n))
	}
}

func (c *scalingCost) add(keep float64, span time.Duration, replicas int32, short bool) {
	c.replicaSeconds = c.replicaSeconds*keep + span.Seconds()*float64(replicas)
	c.shortageSeconds *= keep
	if short {
		c.shortageSeconds += span.Seconds()
	}
}
