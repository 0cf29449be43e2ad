// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package predictor

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"crane.io/crane/internal/metrics"
	"crane.io/crane/pkg/forecast"
	"crane.io/crane/pkg/forecast/registry"
)

const autoName = registry.Auto

// State says how far a series is.
type State string

// The states of a series.
const (
	// Pending: nothing was read yet.
	Pending State = "Pending"
	// Ready: there is a forecast. It may be stale.
	Ready State = "Ready"
	// Empty: the source answered and has no sample.
	Empty State = "Empty"
	// Failed: nothing was read yet, for the reason in Status.Err.
	Failed State = "Failed"
)

// Status says how a request stands.
type Status struct {
	State State
	// Series is the number of series that are forecast, Dropped how many there are beyond the limit.
	Series, Dropped int
	// FirstSample is the oldest sample that a model has seen.
	FirstSample time.Time
	// LastSample is the newest sample; Age is how old it is. Stale says that it is older than it should be.
	LastSample time.Time
	Age        time.Duration
	Stale      bool
	// Answered is when the source last answered.
	Answered time.Time
	// Err is why reads fail, in the words of the first that did; nil where the last one succeeded.
	Err error
}

// SeriesForecast is the forecast of one series. It begins after the newest sample, which may be some time ago.
type SeriesForecast struct {
	// Labels tell series of an expression apart; nil for workloads and nodes.
	Labels metrics.Labels
	forecast.Forecast
	LastSample time.Time

	level      float64
	constant   float64
	isConstant bool
}

// Published is the one value of a step that consumers of a single number get: of auto the 0.95 quantile, of dsp the
// median with the margin of its settings, as in gocrane, or the 0.95 quantile where it fell back, and of percentile the
// percentile that was asked for with its margin.
func (s SeriesForecast) Published(q forecast.Quantiles) float64 {
	switch {
	case s.isConstant:
		return s.constant
	case s.Reason != "":
		return q.At(upperLevel)
	}
	return q.At(s.level)
}

// Ticket is what Set returns for one request: its key, or why it is refused.
type Ticket struct {
	Key Key
	Err error
}

// ErrUnknown means that nobody asked for a series of that key.
var ErrUnknown = errors.New("unknown series")

// Predictor owns models. Its methods may be called from several goroutines and do not wait for the source.
type Predictor struct {
	config  Config
	store   *store
	counts  counts
	wake    chan struct{}
	workers sync.WaitGroup
	saving  sync.Mutex // one save at a time; taken before all others

	mu      sync.Mutex
	entries map[Key]*entry
	callers map[string]map[Key]struct{}
	models  int // models of all entries
	busy    int // workers at work
	reading int // those of them that read whole histories
	// pauses counts failures of the source in a row; it is not asked before resume, and then with one query.
	pauses int
	resume time.Time
	// failure is the first error of the row.
	failure error
}

// New checks the configuration and makes the state directory. Start makes it work.
func New(c Config) (*Predictor, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	s, err := openStore(c.StateDir)
	if err != nil {
		return nil, err
	}
	return &Predictor{
		config: c, store: s, wake: make(chan struct{}, 1),
		entries: map[Key]*entry{}, callers: map[string]map[Key]struct{}{},
	}, nil
}

// Set says which series a caller wants from now on, all of them. It returns a ticket for each request. What no caller
// wants any more is forgotten, its checkpoint included.
func (p *Predictor) Set(caller string, requests []Request) []Ticket {
	tickets := make([]Ticket, len(requests))
	plans := make([]plan, len(requests))
	for i, r := range requests {
		plans[i], tickets[i].Err = newPlan(r)
		tickets[i].Key = plans[i].key
	}
	wanted := map[Key]struct{}{}
	p.mu.Lock()
	before := len(p.entries)
	for i := range plans {
		if tickets[i].Err == nil {
			if tickets[i].Err = p.want(caller, plans[i], requests[i].Scaling); tickets[i].Err == nil {
				wanted[plans[i].key] = struct{}{}
			}
		}
	}
	added := len(p.entries) > before
	gone, left := p.release(caller, wanted)
	accounts := make(map[*entry][]int, len(wanted))
	for i := range plans {
		if e := p.entries[plans[i].key]; tickets[i].Err == nil {
			accounts[e] = append(accounts[e], i)
		}
	}
	if len(wanted) > 0 {
		p.callers[caller] = wanted
	}
	p.mu.Unlock()
	p.store.remove(gone...)
	for _, e := range left {
		_ = e.keepAccounts(caller, nil) // To keep none never fails.
	}
	keepEach(caller, accounts, requests, tickets)
	if added {
		p.stir()
	}
	return tickets
}

// Forget drops a caller.
func (p *Predictor) Forget(caller string) { p.Set(caller, nil) }

// want is called with mu held. The account of a series that is new begins before anything of it is read.
func (p *Predictor) want(caller string, one plan, first *Scaling) error {
	e := p.entries[one.key]
	if e == nil {
		if len(p.entries) >= p.config.MaxSeries || p.models >= p.config.MaxSeries {
			return fmt.Errorf("the limit of %d series is reached", p.config.MaxSeries)
		}
		e = &entry{plan: one, callers: map[string]struct{}{}, due: p.config.Clock.Now()}
		if err := e.keepAccounts(caller, []*Scaling{first}); err != nil { // Nobody else has seen it yet: its lock is free.
			return err
		}
		p.entries[one.key] = e
	}
	e.callers[caller] = struct{}{}
	return nil
}

// release is called with mu held. It takes a caller off all series but those that it wants, and returns the keys of those
// that nobody is left for, and the entries that others still want.
func (p *Predictor) release(caller string, wanted map[Key]struct{}) (gone []Key, left []*entry) {
	for key := range p.callers[caller] {
		if _, kept := wanted[key]; kept {
			continue
		}
		e := p.entries[key]
		delete(e.callers, caller)
		if len(e.callers) == 0 {
			delete(p.entries, key)
			p.models -= e.models
			gone = append(gone, key)
			continue
		}
		left = append(left, e)
	}
	delete(p.callers, caller)
	return gone, left
}

func (p *Predictor) find(key Key) (*entry, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e, ok := p.entries[key]
	if !ok {
		return nil, ErrUnknown
	}
	return e, nil
}

// Status says how a request stands. A key that nobody asked for is Failed with ErrUnknown.
func (p *Predictor) Status(key Key) Status {
	e, err := p.find(key)
	if err != nil {
		return Status{State: Failed, Err: err}
	}
	s := e.status(p.config.Clock.Now(), &p.config)
	p.mu.Lock()
	failure := p.failure
	p.mu.Unlock()
	// While the source fails one read tries it for all: what it does not ask for is not answered either.
	if s.Err == nil && failure != nil {
		s.Err = failure
		if s.State == Pending {
			s.State = Failed
		}
	}
	return s
}

// Forecast returns the forecasts of a request's series, which reach to now + horizon at least. There are none before the
// state is Ready. What is returned is remembered, to be compared with what comes.
func (p *Predictor) Forecast(key Key, horizon time.Duration) ([]SeriesForecast, error) {
	e, err := p.find(key)
	if err != nil {
		return nil, err
	}
	return e.forecast(p.config.Clock.Now(), horizon, p.config.ModelUpdate)
}

// Accuracy returns how the forecasts of a request's series did, all series together.
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
		sum = sum.plus(t.score)
	}
	return sum.accuracy()
}

// stir wakes the scheduler.
func (p *Predictor) stir() {
	select {
	case p.wake <- struct{}{}:
	default: // it will look anyway
	}
}
