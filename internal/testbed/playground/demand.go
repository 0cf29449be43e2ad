// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package playground

import (
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"crane.io/crane/internal/testbed/playground/demo"
	"crane.io/crane/internal/testbed/playground/load"
	"crane.io/crane/internal/testbed/promserver"
)

// demand is the scenario's load from outside.
type demand struct {
	*demo.Load
	end time.Time // of the past that was written at the first start
}

// at is the load at a time.
func (d *demand) at(t time.Time) float64 { return d.At(t, d.end) }

func (d *demand) labels() labels.Labels { return labels.FromStrings(labels.MetricName, d.Metric) }

// demandFrom sets when the load rises: so long after the past, also where this is a later start.
func (p *playground) demandFrom(past load.Past) {
	if s := p.options.scenario; s != nil && s.Load != nil {
		p.demand = &demand{Load: s.Load, end: past.Start.AddDate(0, 0, p.options.Days)}
	}
}

// demandBefore is the history of the load.
func (p *playground) demandBefore(grid promserver.Grid) []promserver.Series {
	if p.demand == nil {
		return nil
	}
	d := p.demand
	return []promserver.Series{{Labels: d.labels(), Fill: func(dst []float64, first int) {
		for i := range dst {
			dst[i] = d.at(grid.Start.Add(time.Duration(first+i) * grid.Step))
		}
	}}}
}

// demandAt is the load as a scrape sees it.
func (p *playground) demandAt(now time.Time) []promserver.Sample {
	if p.demand == nil {
		return nil
	}
	return []promserver.Sample{{Labels: p.demand.labels(), Value: p.demand.at(now)}}
}
