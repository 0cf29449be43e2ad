// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeletapi

import (
	"bytes"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
)

// exposition collects metric families in the text format.
type exposition struct{ out bytes.Buffer }

// add writes a family with the samples that samples emits; without samples it writes nothing. kind is counter or gauge,
// labels are alternating names and values.
func (e *exposition) add(name, kind, help string, samples func(emit func(value float64, at time.Time, labels ...string))) {
	family := &dto.MetricFamily{Name: &name, Help: &help, Type: dto.MetricType_GAUGE.Enum()}
	if kind == "counter" {
		family.Type = dto.MetricType_COUNTER.Enum()
	}
	samples(func(value float64, at time.Time, labels ...string) {
		m := &dto.Metric{Label: make([]*dto.LabelPair, 0, len(labels)/2)}
		for i := 0; i+1 < len(labels); i += 2 {
			m.Label = append(m.Label, &dto.LabelPair{Name: &labels[i], Value: &labels[i+1]})
		}
		if !at.IsZero() {
			m.TimestampMs = new(at.UnixMilli())
		}
		if kind == "counter" {
			m.Counter = &dto.Counter{Value: &value}
		} else {
			m.Gauge = &dto.Gauge{Value: &value}
		}
		family.Metric = append(family.Metric, m)
	})
	if len(family.Metric) > 0 {
		_, _ = expfmt.MetricFamilyToText(&e.out, family) // a family with samples in a buffer cannot fail
	}
}
