// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package evpa

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"time"

	"k8s.io/client-go/rest"
	externalv1beta1 "k8s.io/metrics/pkg/apis/external_metrics/v1beta1"

	"crane.io/crane/pkg/scaling"
)

const (
	// externalTimeout bounds one question; a look asks few.
	externalTimeout = 10 * time.Second
	// externalMaxAge is the age from which a value says nothing about today.
	externalMaxAge = 10 * time.Minute
)

// ExternalMetricReader reads one external metric.
type ExternalMetricReader interface {
	// ReadValue is the one value of a metric. Several, an old one, or none are an error.
	ReadValue(ctx context.Context, namespace, name, selector string, now time.Time) (float64, error)
}

// ExternalMetricsClient reads external metrics through the API server, as the HPA controller does.
type ExternalMetricsClient struct{ REST rest.Interface }

// ReadValue implements ExternalMetricReader.
func (m ExternalMetricsClient) ReadValue(ctx context.Context, namespace, name, selector string, now time.Time) (float64, error) {
	req := m.REST.Get().AbsPath(path.Join("/apis/external.metrics.k8s.io/v1beta1/namespaces", namespace, name))
	if selector != "" {
		req = req.Param("labelSelector", selector)
	}
	data, err := req.SetHeader("Accept", "application/json").Do(ctx).Raw()
	if err != nil {
		return 0, fmt.Errorf("%w: %w", scaling.ErrNoMetric, err)
	}
	var list externalv1beta1.ExternalMetricValueList
	if err := json.Unmarshal(data, &list); err != nil {
		return 0, fmt.Errorf("%w: the answer cannot be read: %w", scaling.ErrNoMetric, err)
	}
	return singleValue(list.Items, now)
}

// singleValue is the one value of a list. Which of several is meant nobody could say.
func singleValue(list []externalv1beta1.ExternalMetricValue, now time.Time) (float64, error) {
	switch {
	case len(list) == 0:
		return 0, fmt.Errorf("it has no value: %w", scaling.ErrNoMetric)
	case len(list) > 1:
		return 0, fmt.Errorf("it has %d values, and only one can be meant: name it with metric-selector: %w", len(list), scaling.ErrNoMetric)
	}
	if at := list[0].Timestamp; !at.IsZero() && now.Sub(at.Time) > externalMaxAge {
		return 0, fmt.Errorf("its value is older than %s: %w", externalMaxAge, scaling.ErrOutdated)
	}
	return list[0].Value.AsApproximateFloat64(), nil
}
