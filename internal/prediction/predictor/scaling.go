// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package predictor

import (
	"fmt"
	"maps"
	"time"

	"crane.io/crane/pkg/forecast"
	"crane.io/crane/pkg/forecast/registry"
	"crane.io/crane/pkg/scaling"
	"crane.io/crane/pkg/scaling/forecastvalue"
)

// Scaling asks for an account of what scaling by the forecast of a series would have cost and spared. It is kept for one caller, who
// says what scales; other callers of the series are not concerned.
type Scaling struct {
	// Name tells the accounts of one caller apart.
	Name  string
	Plant scaling.Plant
	// Window is the time between two forecasts that are published; > 0.
	Window time.Duration
	// State is where the account of an earlier process stood; nil for none.
	State []byte
}

// account names a follower of an entry.
type account struct{ caller, name string }

// Advice is what an account says of a forecast.
type Advice struct {
	scaling.Choice
	// Lead is how far ahead load is looked for.
	Lead time.Duration
	// State is the account as it stands.
	State []byte
}

// newFollower checks what is asked for. A state that is of no use begins the account anew. The error is a sentence for the user.
func newFollower(s *Scaling) (*forecastvalue.Evaluator, error) {
	f, err := forecastvalue.New(s.Plant, s.Window)
	if err != nil {
		return nil, fmt.Errorf("scaling: %w", err)
	}
	if len(s.State) > 0 {
		_ = f.Restore(s.State) // As it says: then it begins anew, and the status says that it learns.
	}
	return f, nil
}

// keepAccounts follows the series of an entry for a caller, changes what is followed, and stops what is not wanted any more. Only
// auto can be asked what it would have said at any time of the past.
func (e *entry) keepAccounts(caller string, wanted []*Scaling) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	kept := map[account]bool{}
	for _, one := range wanted {
		if one == nil || e.plan.name != registry.Auto {
			continue
		}
		id := account{caller, one.Name}
		kept[id] = true
		if f := e.followers[id]; f != nil {
			if err := f.Reconfigure(one.Plant, one.Window); err != nil {
				return fmt.Errorf("scaling: %w", err)
			}
			continue
		}
		f, err := newFollower(one)
		if err != nil {
			return err
		}
		if e.followers == nil {
			e.followers = map[account]*forecastvalue.Evaluator{}
		}
		e.followers[id] = f
	}
	maps.DeleteFunc(e.followers, func(id account, _ *forecastvalue.Evaluator) bool { return id.caller == caller && !kept[id] })
	return nil
}

// keepEach keeps the accounts that requests ask for, by the entries that they are about; what cannot be kept stands in the tickets.
func keepEach(caller string, accounts map[*entry][]int, requests []Request, tickets []Ticket) {
	for e, which := range accounts {
		wanted := make([]*Scaling, len(which))
		for n, i := range which {
			wanted[n] = requests[i].Scaling
		}
		if err := e.keepAccounts(caller, wanted); err != nil {
			for _, i := range which {
				tickets[i].Err = err
			}
		}
	}
}

// follow tells the followers of an entry of a sample that its model has learnt. What is older than since is none of theirs: a past
// that is read at once is played through, and that costs.
func (e *entry) follow(t *labelled, at, since time.Time, value float64) {
	for _, f := range e.followers {
		if f.Recorded(at) || at.Before(since) {
			continue
		}
		if f.ForecastDue(at) {
			made, err := t.model.forecast(forecastvalue.ForecastWindows * f.Window())
			if err != nil {
				made = forecast.Forecast{}
			}
			f.SetForecast(made, at)
		}
		f.Observe(at, value)
	}
}

// Advise tells a caller how much of a forecast that it publishes now is worth its replicas, by the account that it asked for; false
// where none is kept.
func (p *Predictor) Advise(key Key, caller, name string, published forecast.Forecast) (Advice, bool) {
	e, err := p.find(key)
	if err != nil {
		return Advice{}, false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	f := e.followers[account{caller, name}]
	if f == nil {
		return Advice{}, false
	}
	choice := f.SetForecast(published, p.config.Clock.Now())
	return Advice{Choice: choice, Lead: f.Lead(), State: f.State()}, true
}
