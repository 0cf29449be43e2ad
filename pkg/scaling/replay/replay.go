// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package replay simulates ways of scaling on a recorded load and reports when the load exceeded the capacity of the ready pods, and
// the cost of the replicas.
//
// The model: ready pods share the load evenly and carry Capacity each; a new pod is ready Startup after it was requested and costs
// from then on; removed pods disappear at once, unready ones first.
package replay

import (
	"errors"
	"fmt"
	"math"
	"time"

	"crane.io/crane/pkg/scaling"
	"crane.io/crane/pkg/series"
	"crane.io/crane/pkg/units"
)

// Config is the configuration of one replay.
type Config struct {
	// Capacity is the load that one ready pod carries, in the unit of the series; > 0.
	Capacity float64
	// Target is the desired load of a pod as a fraction of Capacity, in (0, 1]; 0.7 is 70 % for an HPA.
	Target float64
	// Startup is the time from a new replica to a ready pod.
	Startup time.Duration
	// Delay is the age of the load that a scaler reads.
	Delay time.Duration
	// Sync is the time between two steps.
	Sync time.Duration
	// Tolerance and Behavior are those of the HPA.
	Tolerance scaling.Tolerance
	Behavior  scaling.Behavior
	Bounds    scaling.Bounds
	// Warmup is the part of the series that is observed before scoring.
	Warmup time.Duration
}

// Validate returns an error that names the invalid field.
func (c Config) Validate() error {
	switch {
	case !(c.Capacity > 0) || math.IsInf(c.Capacity, 0):
		return fmt.Errorf("capacity %v: must be a positive number", c.Capacity)
	case !(c.Target > 0 && c.Target <= 1):
		return fmt.Errorf("target %v: must be in (0, 1]", c.Target)
	case c.Startup < 0 || c.Delay < 0 || c.Warmup < 0:
		return errors.New("start-up time, metric delay and warm-up must not be negative")
	case c.Sync <= 0:
		return fmt.Errorf("sync period %v: must be positive", c.Sync)
	}

	return c.Bounds.Validate()
}

// ScalerInput is the input of a scaler in one step.
type ScalerInput struct {
	Now time.Time
	// Current is the number of replicas, Pods their samples as an HPA reads them, see amount: Pod.Request is the capacity.
	Current int32
	Pods    []scaling.Pod
}

// Scaler is a way of scaling. It gets each sample of the series once, in order, as soon as it is Delay old.
type Scaler interface {
	// Name returns the name in reports.
	Name() string
	// Observe records a sample; NaN is a gap.
	Observe(at time.Time, load float64)
	// Propose returns the proposals and the minimum number of replicas.
	Propose(v ScalerInput) (proposals []scaling.Proposal, floor int32)
}

// Score is the result of one replay.
type Score struct {
	// UnderCapacity is the time with load above the capacity of the ready pods.
	UnderCapacity time.Duration
	// ReplicaHours is the sum of replicas over time, including starting ones.
	ReplicaHours float64
	// Scalings is the number of changes of replicas.
	Scalings int
	// Scored is the scored time, without gaps of the series.
	Scored time.Duration
}

// Run replays one scaler over a series.
func Run(cfg Config, load series.Series, scaler Scaler) (Score, error) {
	sim, err := newSimulation(cfg, load, scaler)
	if err != nil {
		return Score{}, err
	}

	for sim.advance() {
	}
	return sim.score, nil
}

// runTogether replays several simulations step by step, so that scalers which share a budget decide at the same time.
func runTogether(all []*simulation) {
	for running := true; running; {
		running = false
		for _, sim := range all {
			if sim.advance() {
				running = true
			}
		}
	}
}

// newSimulation validates the configuration and passes the warm-up to the scaler.
func newSimulation(cfg Config, load series.Series, scaler Scaler) (*simulation, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}

	if load.Step <= 0 || load.End().Sub(load.Start) <= cfg.Warmup {
		return nil, fmt.Errorf("the series is shorter than %s", units.FormatDuration(cfg.Warmup))
	}

	sim := &simulation{
		cfg:    cfg,
		load:   load,
		scaler: scaler,
		bounds: cfg.Bounds,
		now:    load.Start.Add(cfg.Warmup),
	}

	sim.observe(sim.now)
	sim.replicas = min(max(scaling.ReplicasForLoad(sim.loadAt(sim.now), cfg.Capacity*cfg.Target), cfg.Bounds.Min), cfg.Bounds.Max)
	sim.ready = sim.replicas

	return sim, nil
}

// simulation is the state of a replay.
type simulation struct {
	cfg     Config
	bounds  scaling.Bounds
	load    series.Series
	scaler  Scaler
	history scaling.History
	now     time.Time

	replicas, ready int32
	starting        []startingPods // in order of time
	observed        int            // samples passed to the scaler
	pods            []scaling.Pod
	score           Score
}

// startingPods are replicas that were requested together.
type startingPods struct {
	at   time.Time
	pods int32
}

// advance runs the step that is due, and reports whether there was one.
func (s *simulation) advance() bool {
	if !s.now.Before(s.load.End()) {
		return false
	}

	s.step(s.now)
	s.now = s.now.Add(s.cfg.Sync)
	return true
}

// step runs one sync of the HPA and the time until the next one.
func (s *simulation) step(now time.Time) {
	for len(s.starting) > 0 && !now.Before(s.starting[0].at.Add(s.cfg.Startup)) {
		s.ready += s.starting[0].pods
		s.starting = s.starting[1:]
	}

	s.observe(now)
	proposals, floor := s.scaler.Propose(ScalerInput{Now: now, Current: s.replicas, Pods: s.podSamples(now)})
	bounds := s.bounds
	bounds.Min = min(max(bounds.Min, floor), bounds.Max)

	// With an error no metric has a value, and the replicas stay.
	decision, err := scaling.Decide(&s.history, s.cfg.Behavior, bounds, now, s.replicas, proposals)
	if err == nil && decision.Replicas != s.replicas {
		s.history.RecordScaling(s.cfg.Behavior, now, s.replicas, decision.Replicas)
		s.scale(now, decision.Replicas)
		s.score.Scalings++
	}

	if s.cfg.Startup == 0 {
		s.ready = s.replicas
		s.starting = nil
	}

	current := s.loadAt(now)
	if series.IsGap(current) {
		return
	}

	s.score.Scored += s.cfg.Sync
	s.score.ReplicaHours += float64(s.replicas) * s.cfg.Sync.Hours()
	if current > float64(s.ready)*s.cfg.Capacity {
		s.score.UnderCapacity += s.cfg.Sync
	}
}

func (s *simulation) scale(now time.Time, to int32) {
	if to > s.replicas {
		s.starting = append(s.starting, startingPods{now, to - s.replicas})
	}

	for gone := s.replicas - to; gone > 0; {
		if n := len(s.starting); n > 0 {
			take := min(gone, s.starting[n-1].pods)
			s.starting[n-1].pods -= take
			gone -= take

			if s.starting[n-1].pods == 0 {
				s.starting = s.starting[:n-1]
			}
			continue
		}

		s.ready -= gone
		gone = 0
	}

	s.replicas = to
}

// observe passes the samples that have become visible to the scaler.
func (s *simulation) observe(now time.Time) {
	for s.observed < len(s.load.Values) && !s.load.Time(s.observed).Add(s.cfg.Delay).After(now) {
		s.scaler.Observe(s.load.Time(s.observed), s.load.Values[s.observed])
		s.observed++
	}
}

// podSamples returns the pods as the HPA reads them: the ready ones share the load that is Delay old.
func (s *simulation) podSamples(now time.Time) []scaling.Pod {
	seen := s.loadAt(now.Add(-s.cfg.Delay))
	ready := scaling.Pod{Usage: amount(seen/float64(s.ready), s.cfg.Capacity), Request: amount(s.cfg.Capacity, s.cfg.Capacity)}
	if !(seen >= 0) {
		ready.State = scaling.Missing
	}

	s.pods = s.pods[:0]
	for range s.ready {
		s.pods = append(s.pods, ready)
	}

	for range s.replicas - s.ready {
		s.pods = append(s.pods, scaling.Pod{State: scaling.Unready, Request: ready.Request})
	}

	return s.pods
}

// amount returns a load as an HPA reads it, in thousandths. The capacity of a pod counts as a thousand, because the unit of a series may be so
// large that thousandths of it are too coarse.
func amount(load, capacity float64) int64 {
	const capacityAmount = 1000
	return scaling.Thousandths(load / capacity * capacityAmount)
}

// loadAt returns the load at a time; NaN outside of the series.
func (s *simulation) loadAt(t time.Time) float64 {
	i := int(t.Sub(s.load.Start) / s.load.Step)
	if t.Before(s.load.Start) || i >= len(s.load.Values) {
		return series.Gap()
	}

	return s.load.Values[i]
}
