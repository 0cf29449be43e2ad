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

// externalLoad is the scenario's external load.
type externalLoad struct {
	*demo.Load
	end time.Time // of the history that was written at the first start
}

// at returns the load at time t.
func (l *externalLoad) at(t time.Time) float64 { return l.At(t, l.end) }

func (l *externalLoad) labels() labels.Labels {
	return labels.FromStrings(labels.MetricName, l.Metric, "namespace", l.Namespace)
}

// setExternalLoad schedules the rise of the load relative to the end of the history, also after a restart.
func (h history) setExternalLoad(past load.Past) {
	if s := h.options.scenario; s != nil && s.Load != nil {
		h.externalLoad = &externalLoad{Load: s.Load, end: past.Start.AddDate(0, 0, h.options.Days)}
	}
}

// history returns the history of the external load; none without a load.
func (l *externalLoad) history(grid promserver.Grid) []promserver.Series {
	if l == nil {
		return nil
	}

	return []promserver.Series{{Labels: l.labels(), Fill: func(dst []float64, first int) {
		for i := range dst {
			dst[i] = l.at(grid.Start.Add(time.Duration(first+i) * grid.Step))
		}
	}}}
}

// samples returns the external load as samples of one scrape; none without a load.
func (l *externalLoad) samples(now time.Time) []promserver.Sample {
	if l == nil {
		return nil
	}

	return []promserver.Sample{{Labels: l.labels(), Value: l.at(now)}}
}
