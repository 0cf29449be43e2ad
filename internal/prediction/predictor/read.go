// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package predictor

import (
	"context"
	"fmt"
	"slices"

	"crane.io/crane/internal/metrics"
	"crane.io/crane/pkg/series"
)

// read queries the source for a batch and adds the answer to its entries.
func (p *Predictor) read(ctx context.Context, b batch) error {
	ctx, cancel := context.WithTimeout(ctx, p.config.ReadTimeout)
	defer cancel()
	found, err := p.querySource(ctx, b)
	if err != nil {
		return err
	}
	now := p.config.Clock.Now()
	for _, e := range b.plans {
		p.mu.Lock()
		allowance := p.seriesAllowance(e)
		p.mu.Unlock()
		n, next := e.addSamples(found(e), b.window.End, now, min(p.config.MaxSeriesPerQuery, allowance))
		p.mu.Lock()
		e.read = next
		p.setModels(e, n)
		p.mu.Unlock()
	}
	return nil
}

// querySource returns the answer as a function of the entry.
func (p *Predictor) querySource(ctx context.Context, b batch) (func(*entry) []metrics.LabelledSeries, error) {
	if b.group.expression != "" {
		all, err := p.config.Source.Range(ctx, b.group.expression, b.window)
		if err != nil {
			return nil, err
		}
		return func(*entry) []metrics.LabelledSeries { return all }, nil
	}
	var names []string
	for _, e := range b.plans {
		names = append(names, e.plan.query.Target.Name)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	var byName map[string]series.Series
	var err error
	if b.group.kind == kindNode {
		byName, err = p.config.Source.NodeUsage(ctx, metrics.NodesRequest{Resource: b.group.resource, Names: names, Window: b.window})
	} else {
		byName, err = p.config.Source.WorkloadUsage(ctx, metrics.WorkloadsRequest{
			Resource: b.group.resource, Namespace: b.group.namespace, Kind: b.group.kind, Names: names, Window: b.window,
		})
	}
	if err != nil {
		return nil, fmt.Errorf("reading from %s: %w", b.window.Start.Format("2006-01-02T15:04"), err)
	}
	return func(e *entry) []metrics.LabelledSeries {
		one, ok := byName[e.plan.query.Target.Name]
		if !ok {
			return nil
		}
		return []metrics.LabelledSeries{{Series: one}}
	}, nil
}
