// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strconv"

	"crane.io/crane/internal/metrics"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/series"
)

// size is the request of one resource of a container in plain numbers, cores or bytes; 0 where there is none.
type size struct {
	resource    metrics.Resource
	status      rightsize.Status
	now, target float64
	sizing      rightsize.Sizing
	// policy names the policy that it was found by.
	policy string
}

// sizes returns those of the resources that the report is about.
func (r *report) sizes(c rightsize.Recommendation) []size {
	out := make([]size, 0, len(r.resources))
	for _, resource := range r.resources {
		out = append(out, sizeOf(c, resource))
	}
	return out
}

func sizeOf(c rightsize.Recommendation, of metrics.Resource) size {
	if of == metrics.CPU {
		return size{of, c.CPU.Status, plain(c.Current.CPURequest, 1000), plain(c.Target.CPURequest, 1000), c.CPU, c.Policy}
	}
	return size{of, c.Memory.Status, plain(c.Current.MemoryRequest, 1), plain(c.Target.MemoryRequest, 1), c.Memory, c.Policy}
}

// difference is how much less than now is recommended; it is known where there are both.
func (s size) difference() (less float64, known bool) {
	if s.status != rightsize.Ready || s.now <= 0 || s.target <= 0 {
		return 0, false
	}
	return s.now - s.target, true
}

// format writes an amount of the resource exactly.
func (s size) format(v float64) string {
	if v <= 0 {
		return nothing
	}
	if s.resource == metrics.CPU {
		return rightsize.FormatCPU(series.MilliCPU(v*1000 + 0.5))
	}
	return rightsize.FormatMemory(series.Bytes(v + 0.5))
}

// about writes an amount that was measured to the digits that matter.
func (s size) about(v float64) string {
	unit, suffix := 1e-3, "m"
	if s.resource == metrics.Memory {
		unit, suffix = 1<<20, "Mi"
	}
	decimals := 0
	if v < 100*unit {
		decimals = 1
	}
	return strconv.FormatFloat(v/unit, 'f', decimals, 64) + suffix
}

func plain[T series.MilliCPU | series.Bytes](v *T, perUnit float64) float64 {
	if v == nil {
		return 0
	}
	return float64(*v) / perUnit
}
