// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"math"
	"slices"
	"time"

	"k8s.io/utils/clock"

	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/internal/prediction/predictor"
	"crane.io/crane/pkg/units"
)

const (
	// horizon is how far ahead the peak is searched.
	horizon = time.Hour
	// caller is the name of this controller at the predictor.
	caller = "nodeload"
)

// Predictor computes forecasts. *predictor.Predictor implements it.
type Predictor interface {
	Set(caller string, requests []predictor.Request) []predictor.RequestResult
	Status(key predictor.Key) predictor.Status
	Forecast(key predictor.Key, horizon time.Duration) ([]predictor.SeriesForecast, error)
}

// Peaks reads the peaks of the coming hour from forecasts of nodes. It is not safe for concurrent use.
type Peaks struct {
	predictor Predictor
	clock     clock.PassiveClock

	nodes     []string
	resources []units.Resource
	keys      map[nodeResource]predictor.Key
}

type nodeResource struct {
	node     string
	resource units.Resource
}

var _ Forecaster = (*Peaks)(nil)

// NewPeaks returns a Forecaster without forecasts until Request.
func NewPeaks(p Predictor, clk clock.PassiveClock) *Peaks {
	return &Peaks{predictor: p, clock: clk}
}

// Request implements Forecaster. Refused requests, for instance beyond the limit of series, have no peak.
func (p *Peaks) Request(nodes []string, resources []units.Resource) {
	nodes = slices.Sorted(slices.Values(nodes))
	resources = slices.Compact(slices.Sorted(slices.Values(resources)))
	if slices.Equal(nodes, p.nodes) && slices.Equal(resources, p.resources) {
		return
	}

	p.nodes = nodes
	p.resources = resources

	// The predictor answers in the order of the requests.
	var wanted []nodeResource
	var requests []predictor.Request
	for _, r := range resources {
		for _, n := range nodes {
			wanted = append(wanted, nodeResource{n, r})
			requests = append(requests, predictor.Request{
				Query: predictor.Query{Target: workload.Ref{Kind: "Node", Name: n}, Resource: metrics.UsageKind(r)},
			})
		}
	}

	p.keys = make(map[nodeResource]predictor.Key, len(wanted))
	for i, ticket := range p.predictor.Set(caller, requests) {
		if ticket.Err == nil {
			p.keys[wanted[i]] = ticket.Key
		}
	}
}

// Peak implements Forecaster: the highest published value of the coming hour, for auto the 0.95 quantile of each
// minute.
func (p *Peaks) Peak(node string, resource units.Resource) (float64, bool) {
	key, ok := p.keys[nodeResource{node, resource}]
	if !ok {
		return 0, false
	}

	if s := p.predictor.Status(key); s.State != predictor.Ready || s.Stale {
		return 0, false
	}

	all, err := p.predictor.Forecast(key, horizon)
	if err != nil || len(all) != 1 {
		return 0, false
	}

	now := p.clock.Now()
	f := all[0]
	peak := math.Inf(-1)
	found := false
	// A value stands for its whole step, so that one that began before now counts until it ends.
	for i, q := range f.Values {
		at := f.Start.Add(time.Duration(i) * f.Step)
		if at.Add(f.Step).After(now) && at.Before(now.Add(horizon)) {
			peak = max(peak, f.Published(q))
			found = true
		}
	}

	return peak, found
}
