// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeload

import (
	"fmt"

	"crane.io/crane/pkg/series"
)

// Resource is the resource of a load.
type Resource string

// The resources that loads are measured of.
const (
	CPU    Resource = "cpu"
	Memory Resource = "memory"
)

// WaterMarks are the usage marks of one resource that scheduler, rebalancing and node agent share, as fractions of a
// node's capacity. They are in order, so that nothing is scheduled onto a node from which pods are evicted.
type WaterMarks struct {
	// Low is the mark below which a node receives pods of overloaded nodes.
	Low series.Ratio
	// Schedule is the mark above which a node takes no new pod.
	Schedule series.Ratio
	// Evict is the mark above which pods leave a node.
	Evict series.Ratio
}

// Check fails where the marks are not 0 <= low < schedule < evict <= 1. NaN is in no order.
func (w WaterMarks) Check() error {
	if 0 <= w.Low && w.Low < w.Schedule && w.Schedule < w.Evict && w.Evict <= 1 {
		return nil
	}
	return fmt.Errorf("want 0 <= low < schedule < evict <= 1, got low %v, schedule %v, evict %v", w.Low, w.Schedule, w.Evict)
}

// ClosesAt is the load above which Filter rejects a node: the lower of a predicate's limit and the mark schedule. A limit
// of 0 is switched off, and so is a mark of 0, which stands for none; 0 is returned where both are off.
func ClosesAt(limit, schedule series.Ratio) series.Ratio {
	switch {
	case limit == 0:
		return schedule
	case schedule == 0:
		return limit
	}
	return min(limit, schedule)
}
