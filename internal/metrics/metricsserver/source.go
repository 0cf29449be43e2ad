// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package metricsserver reads what containers use now from the API metrics.k8s.io, which metrics-server serves. It keeps
// no history and has none.
package metricsserver

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"
	metricsclient "k8s.io/metrics/pkg/client/clientset/versioned/typed/metrics/v1beta1"

	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics"
)

// Source reads from metrics.k8s.io. It is safe for concurrent use.
type Source struct {
	client metricsclient.MetricsV1beta1Interface
}

var _ metrics.RealtimeReader = (*Source)(nil)

// New returns a source. It sends nothing yet.
func New(config *rest.Config) (*Source, error) {
	client, err := metricsclient.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("building the client of metrics-server: %w", err)
	}
	return &Source{client: client}, nil
}

// Check is a cheap question: whether the API is served and has nodes to tell of.
func (s *Source) Check(ctx context.Context) error {
	if _, err := s.client.NodeMetricses().List(ctx, metav1.ListOptions{Limit: 1}); err != nil {
		return fmt.Errorf("asking metrics-server: %w", err)
	}
	return nil
}

// CurrentUsage implements metrics.RealtimeReader. Owners of pods are not known to metrics-server: each pod is its own workload.
func (s *Source) CurrentUsage(
	ctx context.Context, resource metrics.Resource, namespaces []string, visit func(metrics.Reading) error,
) error {
	if resource != metrics.CPU && resource != metrics.Memory {
		return fmt.Errorf("resource %s of metrics-server: %w", resource, metrics.ErrUnsupported)
	}
	if len(namespaces) == 0 {
		namespaces = []string{metav1.NamespaceAll}
	}
	for _, namespace := range namespaces {
		list, err := s.client.PodMetricses(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return fmt.Errorf("listing metrics of pods: %w", err)
		}
		for i := range list.Items {
			if err := visitPod(&list.Items[i], resource, visit); err != nil {
				return err
			}
		}
	}
	return nil
}

func visitPod(pod *metricsv1beta1.PodMetrics, resource metrics.Resource, visit func(metrics.Reading) error) error {
	for _, c := range pod.Containers {
		quantity, known := c.Usage["cpu"]
		if resource == metrics.Memory {
			quantity, known = c.Usage["memory"]
		}
		value := quantity.AsApproximateFloat64()
		if !known || value < 0 {
			continue
		}
		err := visit(metrics.Reading{
			Key: metrics.ContainerKey{
				Workload: workload.Ref{APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name},
				Pod:      pod.Name, Container: c.Name,
			},
			Time: pod.Timestamp.Time, Window: pod.Window.Duration, Value: value,
		})
		if err != nil {
			return err
		}
	}
	return nil
}
