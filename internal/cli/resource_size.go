// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strconv"

	"crane.io/crane/internal/metrics"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/units"
)

// resourceSize is the current and the recommended request of one resource of a container, in cores or bytes; 0 if not
// set.
type resourceSize struct {
	resource        metrics.UsageKind
	status          rightsize.Status
	current, target float64
	sizing          rightsize.Sizing
	// policy is the name of the policy that computed the recommendation.
	policy string
}

// resourceSizes returns the sizes of the container for the resources of the report.
func (r *report) resourceSizes(c rightsize.Recommendation) []resourceSize {
	out := make([]resourceSize, 0, len(r.Resources))
	for _, resource := range r.Resources {
		out = append(out, newResourceSize(c, resource))
	}

	return out
}

func newResourceSize(c rightsize.Recommendation, resource metrics.UsageKind) resourceSize {
	if resource == metrics.CPU {
		return resourceSize{resource, c.CPU.Status, floatValue(c.Current.CPURequest, 1000), floatValue(c.Target.CPURequest, 1000), c.CPU, c.Policy}
	}

	return resourceSize{resource, c.Memory.Status, floatValue(c.Current.MemoryRequest, 1), floatValue(c.Target.MemoryRequest, 1), c.Memory, c.Policy}
}

// reduction returns current minus target; known is false unless both are set.
func (s resourceSize) reduction() (less float64, ok bool) {
	if s.status != rightsize.Ready || s.current <= 0 || s.target <= 0 {
		return 0, false
	}

	return s.current - s.target, true
}

// format returns v as an exact quantity.
func (s resourceSize) format(v float64) string {
	if v <= 0 {
		return emptyCell
	}

	if s.resource == metrics.CPU {
		return units.FormatCPU(units.MilliCPU(v*1000 + 0.5))
	}

	return units.FormatMemory(units.Bytes(v + 0.5))
}

// formatMeasured returns a measured value rounded to its significant digits.
func (s resourceSize) formatMeasured(v float64) string {
	unit, suffix := 1e-3, "m"
	if s.resource == metrics.Memory {
		unit = 1 << 20
		suffix = "Mi"
	}

	decimals := 0
	if v < 100*unit {
		decimals = 1
	}

	return strconv.FormatFloat(v/unit, 'f', decimals, 64) + suffix
}

func floatValue[T units.MilliCPU | units.Bytes](v *T, perUnit float64) float64 {
	if v == nil {
		return 0
	}

	return float64(*v) / perUnit
}
