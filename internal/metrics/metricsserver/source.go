// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package metricsserver reads current container usage from the API metrics.k8s.io, which metrics-server serves. It has no history.
package metricsserver

import (
	"context"
	"fmt"
	"iter"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	metricsclient "k8s.io/metrics/pkg/client/clientset/versioned/typed/metrics/v1beta1"

	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics"
)

// Source reads from metrics.k8s.io. It is safe for concurrent use.
type Source struct {
	client metricsclient.MetricsV1beta1Interface
}

// New returns a source. It sends no request.
func New(config *rest.Config) (*Source, error) {
	client, err := metricsclient.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("building the client of metrics-server: %w", err)
	}

	return &Source{client: client}, nil
}

// Capabilities returns the reader of current usage.
func (s *Source) Capabilities() metrics.Capabilities { return metrics.Capabilities{Realtime: s} }

// Check returns an error if the API is not served. It reads one node.
func (s *Source) Check(ctx context.Context) error {
	if _, err := s.client.NodeMetricses().List(ctx, metav1.ListOptions{Limit: 1}); err != nil {
		return fmt.Errorf("checking metrics-server: %w", err)
	}

	return nil
}

// CurrentUsage implements metrics.RealtimeReader. The API does not contain owners, so each pod is its own workload.
func (s *Source) CurrentUsage(ctx context.Context, resource metrics.UsageKind, namespaces []string) iter.Seq2[metrics.Reading, error] {
	return func(yield func(metrics.Reading, error) bool) {
		if resource != metrics.CPU && resource != metrics.Memory {
			yield(metrics.Reading{}, fmt.Errorf("resource %s of metrics-server: %w", resource, metrics.ErrUnsupported))
			return
		}

		// One request lists one namespace or all.
		if len(namespaces) == 0 {
			namespaces = []string{metav1.NamespaceAll}
		}

		for _, namespace := range namespaces {
			list, err := s.client.PodMetricses(namespace).List(ctx, metav1.ListOptions{})
			if err != nil {
				yield(metrics.Reading{}, fmt.Errorf("listing metrics of pods: %w", err))
				return
			}

			for i := range list.Items {
				pod := &list.Items[i]
				for _, c := range pod.Containers {
					quantity, measured := c.Usage[corev1.ResourceName(resource)]
					value := quantity.AsApproximateFloat64()
					if !measured || value < 0 {
						continue
					}

					sample := metrics.Reading{
						Key: metrics.ContainerKey{
							Workload: workload.Ref{
								APIVersion: "v1",
								Kind:       "Pod",
								Namespace:  pod.Namespace,
								Name:       pod.Name,
							},
							Pod: pod.Name, Container: c.Name,
						},
						Time:   pod.Timestamp.Time,
						Window: pod.Window.Duration,
						Value:  value,
					}

					if !yield(sample, nil) {
						return
					}
				}
			}
		}
	}
}
