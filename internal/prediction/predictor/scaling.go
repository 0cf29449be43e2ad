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

// Scaling requests an evaluation of what scaling by the forecast of a series would have cost and saved. It is kept
// per caller and does not affect other callers of the series.
type Scaling struct {
	// Name distinguishes the evaluations of one caller.
	Name  string
	Plant scaling.Plant
	// Window is the interval between published forecasts; > 0.
	Window time.Duration
	// State is the saved state of an earlier process; nil for none.
	State []byte
}

// accountWindows is how long an account counts for the budget without a new forecast, in windows.
const accountWindows = 3

// evaluatorKey identifies an evaluator of an entry.
type evaluatorKey struct{ caller, name string }

// Advice is the result of an evaluation.
type Advice struct {
	scaling.Choice
	// Lead is how far ahead the forecast is used.
	Lead time.Duration
	// State is the current state of the evaluation.
	State []byte
}

// newEvaluator validates the request. An unusable state starts the evaluation anew. Errors are written for users.
func newEvaluator(s *Scaling) (*forecastvalue.Evaluator, error) {
	f, err := forecastvalue.New(s.Plant, s.Window)
	if err != nil {
		return nil, fmt.Errorf("scaling: %w", err)
	}

	if len(s.State) > 0 {
		_ = f.Restore(s.State) // A state that cannot be restored starts the evaluation anew; the status reports that it is learning.
	}

	return f, nil
}

// syncEvaluators adds, updates and removes the evaluators of an entry for a caller. Only auto is evaluated, because
// only it can forecast from any time in the past.
func (e *entry) syncEvaluators(caller string, wanted []*Scaling) error {
	e.mu.Lock()
	defer e.mu.Unlock()

	requested := map[evaluatorKey]bool{}
	for _, request := range wanted {
		if request == nil || e.plan.name != registry.Auto {
			continue
		}

		id := evaluatorKey{caller, request.Name}
		requested[id] = true

		// A changed request keeps what its evaluator has learned.
		if f := e.evaluators[id]; f != nil {
			if err := f.Reconfigure(request.Plant, request.Window); err != nil {
				return fmt.Errorf("scaling: %w", err)
			}

			continue
		}

		f, err := newEvaluator(request)
		if err != nil {
			return err
		}

		if e.evaluators == nil {
			e.evaluators = map[evaluatorKey]*forecastvalue.Evaluator{}
		}
		e.evaluators[id] = f
	}

	maps.DeleteFunc(e.evaluators, func(id evaluatorKey, _ *forecastvalue.Evaluator) bool { return id.caller == caller && !requested[id] })
	return nil
}

// syncAllEvaluators syncs the evaluators of all requests, by entry; errors are stored in the results.
func syncAllEvaluators(caller string, accounts map[*entry][]int, requests []Request, tickets []RequestResult) {
	for e, which := range accounts {
		wanted := make([]*Scaling, len(which))
		for n, i := range which {
			wanted[n] = requests[i].Scaling
		}

		if err := e.syncEvaluators(caller, wanted); err != nil {
			for _, i := range which {
				tickets[i].Err = err
			}
		}
	}
}

// updateEvaluators passes a sample to the evaluators of an entry after the model has observed it. Samples older than
// since are skipped: replaying a whole history at once is expensive.
func (e *entry) updateEvaluators(t *labeled, at, since time.Time, value float64, price func(caller string) float64) {
	for id, f := range e.evaluators {
		if f.Recorded(at) || at.Before(since) {
			continue
		}

		if f.ForecastDue(at) {
			prediction, err := t.model.forecast(forecastvalue.ForecastWindows * f.Window())
			if err != nil {
				prediction = forecast.Forecast{}
			}

			f.SetForecast(prediction, at, price(id.caller))
		}

		f.Observe(at, value)
	}
}

// Advise returns how much of a published forecast is worth its replicas, according to the caller's evaluator and at the
// price of the fleet; false if there is none.
func (p *Predictor) Advise(key Key, caller, name string, published forecast.Forecast) (Advice, bool) {
	e, err := p.find(key)
	if err != nil {
		return Advice{}, false
	}

	p.mu.Lock()
	namespace := e.callers[caller]
	p.mu.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()

	f := e.evaluators[evaluatorKey{caller, name}]
	if f == nil {
		return Advice{}, false
	}

	now := p.config.Clock.Now()
	price := p.fleet.Update(namespace, caller+"/"+name, f.Account(), now, now.Add(accountWindows*f.Window()))
	choice := f.SetForecast(published, now, price)

	return Advice{Choice: choice, Lead: f.Lead(choice.Level), State: f.State()}, true
}
