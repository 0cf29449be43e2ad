// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package evpa

import (
	"context"
	"fmt"
	"time"

	externalv1beta1 "k8s.io/metrics/pkg/apis/external_metrics/v1beta1"

	"crane.io/crane/internal/autoscaling/hpametrics"
	"crane.io/crane/pkg/scaling"
)

const (
	// externalTimeout bounds one request.
	externalTimeout = 10 * time.Second
	// externalMaxAge is the maximum age of a value.
	externalMaxAge = 10 * time.Minute
)

// ExternalMetricReader reads one external metric.
type ExternalMetricReader interface {
	// ReadValue returns the only value of a metric. No value, several, and an outdated one are errors.
	ReadValue(ctx context.Context, namespace, name, selector string, now time.Time) (float64, error)
}

// ExternalMetricsClient reads external metrics through the API server.
type ExternalMetricsClient struct{ API *hpametrics.Client }

// ReadValue implements ExternalMetricReader.
func (c ExternalMetricsClient) ReadValue(ctx context.Context, namespace, name, selector string, now time.Time) (float64, error) {
	values, err := c.API.ExternalValues(ctx, namespace, name, selector)
	if err != nil {
		return 0, err
	}

	return singleValue(values, now)
}

// singleValue returns the only value of a list.
func singleValue(list []externalv1beta1.ExternalMetricValue, now time.Time) (float64, error) {
	switch {
	case len(list) == 0:
		return 0, fmt.Errorf("it has no value: %w", scaling.ErrNoMetric)
	case len(list) > 1:
		return 0, fmt.Errorf("it has %d values: select one with metric-selector: %w", len(list), scaling.ErrNoMetric)
	}

	if at := list[0].Timestamp; !at.IsZero() && now.Sub(at.Time) > externalMaxAge {
		return 0, fmt.Errorf("its value is older than %s: %w", externalMaxAge, scaling.ErrOutdated)
	}

	return list[0].Value.AsApproximateFloat64(), nil
}
