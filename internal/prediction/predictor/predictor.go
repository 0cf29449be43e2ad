// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package predictor

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"crane.io/crane/internal/metrics"
	"crane.io/crane/pkg/forecast"
	"crane.io/crane/pkg/forecast/registry"
	"crane.io/crane/pkg/scaling"
)

const autoName = registry.Auto

// State is the progress of a request.
type State string

// States of a request.
const (
	// Pending means that nothing was read yet.
	Pending State = "Pending"
	// Ready means that there is a forecast, which may be stale.
	Ready State = "Ready"
	// Empty means that the source answered without samples.
	Empty State = "Empty"
	// Failed means that nothing was read yet because of Status.Err.
	Failed State = "Failed"
)

// Status is the state of a request.
type Status struct {
	State State
	// Series is the number of forecast series, Dropped the number beyond the limit.
	Series, Dropped int
	// Unusable is the number of series without a usable sample, while there are no others.
	Unusable int
	// Step is the time between two samples.
	Step time.Duration
	// FirstSample is the time of the oldest sample of a model.
	FirstSample time.Time
	// LastSample is the time of the newest sample and Age its age. Stale means that Age exceeds the expected maximum.
	LastSample time.Time
	Age        time.Duration
	Stale      bool
	// Answered is the time of the last answer of the source.
	Answered time.Time
	// Err is the first error of the current row of failed reads; nil after a successful one.
	Err error
}

// SeriesForecast is the forecast of one series. It starts after the newest sample, which may be some time ago.
type SeriesForecast struct {
	// Labels distinguish the series of an expression; nil for workloads and nodes.
	Labels metrics.Labels
	forecast.Forecast
	LastSample time.Time

	level      float64
	constant   float64
	isConstant bool
}

// Published returns the single value of a step for consumers of one number: the 0.95 quantile for auto; the median
// with the configured margin for dsp, as in gocrane, or the 0.95 quantile if dsp fell back; the configured percentile
// with its margin for percentile.
func (s SeriesForecast) Published(q forecast.Quantiles) float64 {
	switch {
	case s.isConstant:
		return s.constant
	case s.Reason != "":
		return q.At(upperLevel)
	}

	return q.At(s.level)
}

// RequestResult is the result of Set for one request: its key, or the error that refused it.
type RequestResult struct {
	Key Key
	Err error
}

// ErrUnknown means that no caller has requested a series of that key.
var ErrUnknown = errors.New("unknown series")

// Predictor owns the models. Its methods are safe for concurrent use and do not wait for the source.
type Predictor struct {
	config  Config
	fleet   *scaling.Fleet
	store   *store
	counts  counters
	wake    chan struct{}
	workers sync.WaitGroup
	saving  sync.Mutex // serializes saves; locked before all others

	mu        sync.Mutex
	requested requested
	reads     reads
}

// New validates the configuration and creates the state directory. Start starts the workers.
func New(c Config) (*Predictor, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}

	s, err := openStore(c.StateDir, c.MaxBytes*3/2)
	if err != nil {
		return nil, err
	}

	newer, err := s.newer()
	if err != nil {
		return nil, fmt.Errorf("predictor: %w", err)
	}

	if newer > 0 {
		c.Log.Info("keeping checkpoints of a newer version without using them, reading these histories instead", "directory", c.StateDir, "files", newer)
	}

	fleet, err := scaling.NewFleet(c.ScalingBudget)
	if err != nil {
		return nil, fmt.Errorf("predictor: scaling budget: %w", err)
	}

	return &Predictor{
		config: c,
		fleet:  fleet,
		store:  s,
		wake:   make(chan struct{}, 1),
		requested: requested{
			config:  &c,
			entries: map[Key]*entry{},
			callers: map[string]map[Key]struct{}{},
			budgets: budgets{byNamespace: map[string]int64{}},
		},
		reads: reads{
			workers:     c.Workers,
			refresh:     c.Refresh,
			served:      map[string]int64{},
			expressions: map[string]int{},
			histories:   map[string]int{},
		},
	}, nil
}

// Set replaces the requests of a caller and returns one result per request. Series that no caller requests any more
// are deleted, with their checkpoints.
func (p *Predictor) Set(caller string, requests []Request) []RequestResult {
	tickets := make([]RequestResult, len(requests))
	plans := make([]plan, len(requests))
	for i, r := range requests {
		plans[i], tickets[i].Err = newPlan(r, p.config.TimeZone)
		tickets[i].Key = plans[i].key
	}

	wanted := map[Key]struct{}{}
	p.mu.Lock()

	added := false
	var deletedKeys []Key
	for i := range plans {
		if tickets[i].Err != nil {
			continue
		}

		isNew := p.requested.entries[plans[i].key] == nil
		var deleted []Key
		if deleted, tickets[i].Err = p.addCaller(caller, plans[i], requests[i]); tickets[i].Err == nil {
			wanted[plans[i].key] = struct{}{}
			added = added || isNew
		}

		deletedKeys = append(deletedKeys, deleted...)
	}

	unrequested, remaining := p.removeCaller(caller, wanted)
	deletedKeys = append(deletedKeys, unrequested...)

	// Several requests of a caller may share an entry, each with an evaluator of its own.
	accounts := make(map[*entry][]int, len(wanted))
	for i := range plans {
		if tickets[i].Err != nil {
			continue
		}

		e := p.requested.entries[plans[i].key]
		accounts[e] = append(accounts[e], i)
	}

	if len(wanted) > 0 {
		p.requested.callers[caller] = wanted
	}

	p.mu.Unlock()
	p.store.remove(deletedKeys...)

	for _, e := range remaining {
		_ = e.syncEvaluators(caller, nil) // Removing evaluators cannot fail.
	}

	syncAllEvaluators(caller, accounts, requests, tickets)
	if added {
		p.wakeScheduler()
	}

	return tickets
}

// Forget removes all requests of a caller.
func (p *Predictor) Forget(caller string) { p.Set(caller, nil) }

// addCaller registers a caller for a plan and returns the keys of entries that were deleted for it; mu is held. The evaluator of a new series is
// added before the first read.
func (p *Predictor) addCaller(caller string, planned plan, first Request) ([]Key, error) {
	e := p.requested.entries[planned.key]
	var deleted []Key
	if e == nil {
		e = &entry{plan: planned, callers: map[string]string{}, due: p.config.Clock.Now()}
		err := p.requested.checkBudget(e.bytes(), first.Namespace)
		if err == nil {
			deleted, err = p.requested.makeRoom(e.bytes(), first.Namespace)
		}
		if err == nil {
			err = e.syncEvaluators(caller, []*Scaling{first.Scaling}) // The entry is not shared yet, so its lock is free.
		}

		if err != nil {
			return deleted, err
		}

		p.requested.entries[planned.key] = e
		p.requested.budgets.charge(e.bytes())
	}

	if !slices.Contains(e.namespaces(), first.Namespace) {
		if err := p.requested.checkBudget(e.bytes(), first.Namespace); err != nil {
			return deleted, err
		}

		p.requested.budgets.chargeNamespaces(e.bytes(), first.Namespace)
	}

	e.callers[caller] = first.Namespace
	e.recordOwner()
	return deleted, nil
}

// removeCaller removes a caller from all its series except wanted; mu is held. It returns the keys without callers
// and the entries that still have some.
func (p *Predictor) removeCaller(caller string, wanted map[Key]struct{}) (unrequested []Key, remaining []*entry) {
	for key := range p.requested.callers[caller] {
		if _, isWanted := wanted[key]; isWanted {
			continue
		}

		e := p.requested.entries[key]
		namespace := e.callers[caller]
		delete(e.callers, caller)
		e.recordOwner()

		// The namespace pays for an entry until its last caller leaves.
		if !slices.Contains(e.namespaces(), namespace) {
			p.requested.budgets.chargeNamespaces(-e.bytes(), namespace)
			if _, used := p.requested.budgets.byNamespace[namespace]; !used {
				delete(p.reads.served, namespace)
			}
		}

		if len(e.callers) == 0 {
			p.requested.deleteEntry(e)
			unrequested = append(unrequested, key)
			continue
		}

		remaining = append(remaining, e)
	}

	delete(p.requested.callers, caller)
	return unrequested, remaining
}

func (p *Predictor) find(key Key) (*entry, error) {
	p.mu.Lock()
	defer p.mu.Unlock()

	e, ok := p.requested.entries[key]
	if !ok {
		return nil, ErrUnknown
	}

	return e, nil
}

// Status returns the state of a request. An unknown key is Failed with ErrUnknown.
func (p *Predictor) Status(key Key) Status {
	e, err := p.find(key)
	if err != nil {
		return Status{State: Failed, Err: err}
	}

	s := e.status(p.config.Clock.Now(), &p.config)
	p.mu.Lock()
	failure := p.reads.failure
	p.mu.Unlock()

	// While the source fails, one read probes it for all entries, so the failure applies to entries that were not
	// read as well.
	if s.Err == nil && failure != nil {
		s.Err = failure
		if s.State == Pending {
			s.State = Failed
		}
	}

	return s
}

// Forecast returns forecasts of a request's series up to now + horizon at least; none before the state is Ready. They
// are recorded for comparison with later samples.
func (p *Predictor) Forecast(key Key, horizon time.Duration) ([]SeriesForecast, error) {
	e, err := p.find(key)
	if err != nil {
		return nil, err
	}

	return e.forecast(p.config.Clock.Now(), horizon, p.config.ModelUpdate)
}

// Accuracy returns the accuracy of the forecasts of a request, over all its series.
func (p *Predictor) Accuracy(key Key) Accuracy {
	e, err := p.find(key)
	if err != nil {
		return score{}.accuracy()
	}

	return e.accuracy()
}

func (e *entry) accuracy() Accuracy {
	e.mu.Lock()
	defer e.mu.Unlock()

	var sum score
	for _, t := range e.tracks {
		sum = sum.add(t.score)
	}

	return sum.accuracy()
}

// wakeScheduler makes Start check for due entries.
func (p *Predictor) wakeScheduler() {
	select {
	case p.wake <- struct{}{}:
	default: // a wake-up is pending already
	}
}
