// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package scaling

import (
	"errors"
	"fmt"
	"time"

	"crane.io/crane/pkg/units"
)

// Proposal is the number of replicas that one metric asks for.
type Proposal struct {
	// Metric names the metric, for instance "cpu" or "prediction of cpu".
	Metric string
	// Replicas is unused where Err is set.
	Replicas int32
	// Reason contains the values that Replicas is computed from.
	Reason string
	// Err is the reason why the metric asks for nothing.
	Err error
}

// Bounds are the minimum and maximum replicas of an HPA.
type Bounds struct {
	Min, Max int32
}

// Validate returns an error that names the invalid field.
func (b Bounds) Validate() error {
	switch {
	case b.Min < 0:
		return fmt.Errorf("minReplicas %d: must not be negative", b.Min)
	case b.Max < 1:
		return fmt.Errorf("maxReplicas %d: must be at least 1", b.Max)
	case b.Max < b.Min:
		return fmt.Errorf("maxReplicas %d: must not be below minReplicas %d", b.Max, b.Min)
	}

	return nil
}

// Decision is the number of replicas that an HPA sets.
type Decision struct {
	// Replicas is the number to set.
	Replicas int32
	// Desired is the highest proposal, before stabilization, rate limits and bounds.
	Desired int32
	// Winner is the metric with the highest proposal, empty for none.
	Winner string
	// Reason describes how Replicas was computed.
	Reason string
}

// ErrDisabled means that the target has no replicas, which disables an HPA that has not removed them itself.
var ErrDisabled = errors.New("scaling is disabled: the target has no replicas")

// Decide selects the highest proposal, like an HPA. While a metric has no value, the others may scale up but not down. Without any
// value nothing changes, and the error is the reason. It updates the history; the caller records a change with
// History.RecordScaling.
func Decide(h *History, b Behavior, bounds Bounds, now time.Time, current int32, proposals []Proposal) (Decision, error) {
	if err := bounds.Validate(); err != nil {
		return Decision{Replicas: current}, err
	}

	h.start(now, current)
	switch {
	case current == 0 && !h.scaledToZero:
		return Decision{}, ErrDisabled
	case current > bounds.Max:
		return Decision{Replicas: bounds.Max, Desired: bounds.Max, Reason: fmt.Sprintf("%s, more than maxReplicas %d", units.FormatCount(int(current), "replica"), bounds.Max)}, nil
	case current < bounds.Min && current > 0:
		return Decision{Replicas: bounds.Min, Desired: bounds.Min, Reason: fmt.Sprintf("%s, less than minReplicas %d", units.FormatCount(int(current), "replica"), bounds.Min)}, nil
	}

	var d Decision
	var failed []error
	hasValue := false
	for _, p := range proposals {
		switch {
		case p.Err != nil:
			failed = append(failed, fmt.Errorf("%s: %w", p.Metric, p.Err))
		case !hasValue || p.Replicas > d.Desired:
			d.Desired = p.Replicas
			d.Winner = p.Metric
			d.Reason = p.Reason
			hasValue = true
		}
	}

	// A metric without a value might ask for more, so that the others may not scale down.
	missing := errors.Join(failed...)
	if !hasValue || missing != nil && d.Desired < current {
		if missing == nil {
			missing = ErrNoMetric
		}

		return Decision{Replicas: current, Desired: current}, missing
	}

	d.Desired = max(0, d.Desired) // A negative value asks for less than nothing.
	d.Replicas = h.Limit(b, now, current, d.Desired, bounds.Min, bounds.Max)
	if current == 0 {
		d.Replicas = max(d.Replicas, bounds.Min) // Whatever the rates are.
	}

	if d.Replicas != d.Desired {
		d.Reason = fmt.Sprintf("%s; limited to %d by stabilization, rates and [%d, %d]", d.Reason, d.Replicas, bounds.Min, bounds.Max)
	}

	return d, nil
}
