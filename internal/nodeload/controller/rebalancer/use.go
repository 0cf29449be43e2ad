// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package rebalancer

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"crane.io/crane/internal/metrics"
	"crane.io/crane/internal/metrics/prometheus"
	"crane.io/crane/pkg/nodeload"
	"crane.io/crane/pkg/units"
)

// Vectors answers instant queries. *prometheus.Source implements it.
type Vectors interface {
	Vector(ctx context.Context, query string, at time.Time) ([]metrics.Sample, error)
	Selector(metric string, matchers ...prometheus.Matcher) (string, error)
}

// Queries of the usage of a pod's containers from cAdvisor's series; %s is the selector. CPU is a five-minute mean,
// like the usual gauge of nodes. Memory excludes page cache, as the load of nodes does, and shared memory, which cAdvisor does not export.
const (
	cpuQuery    = "sum by (namespace, pod) (max by (namespace, pod, container) (sum without (cpu) (rate(%s[5m]))))"
	memoryQuery = "sum by (namespace, pod) (max by (namespace, pod, container) (%s))"
)

// podName identifies a pod.
type podName struct{ namespace, pod string }

// use reads the current usage of the pods of hot nodes, with one query per resource.
func (c *Controller) use(ctx context.Context, s *snapshot, now time.Time) (func(namespace, pod string) (nodeload.Amount, bool), error) {
	var namespaces []string
	for _, pods := range s.onHot {
		for _, pod := range pods {
			namespaces = append(namespaces, pod.Namespace)
		}
	}

	slices.Sort(namespaces)
	namespaces = slices.Compact(namespaces)
	amounts := map[podName]nodeload.Amount{}
	if len(namespaces) > 0 {
		err := c.readUse(ctx, "container_cpu_usage_seconds_total", cpuQuery, namespaces, now, func(name podName, cores float64) {
			amounts[name] = nodeload.Amount{CPU: units.MilliCPU(cores * 1000)}
		})
		if err != nil {
			return nil, err
		}

		err = c.readUse(ctx, "container_memory_rss", memoryQuery, namespaces, now, func(name podName, bytes float64) {
			amount, ok := amounts[name]
			if !ok {
				return // Usage needs both resources.
			}

			amount.Memory = units.Bytes(bytes)
			amounts[name] = amount
		})
		if err != nil {
			return nil, err
		}
	}

	return func(namespace, pod string) (nodeload.Amount, bool) {
		amount, ok := amounts[podName{namespace, pod}]
		return amount, ok && amount.Memory > 0
	}, nil
}

// readUse reads one resource. Invalid values are skipped; namespace names have no characters that need escaping.
func (c *Controller) readUse(ctx context.Context, metric, query string, namespaces []string, now time.Time, store func(podName, float64)) error {
	selector, err := c.cfg.Usage.Selector(metric,
		prometheus.Matcher{Label: "container", Op: "!=", Value: ""}, prometheus.Matcher{Label: "container", Op: "!=", Value: "POD"},
		prometheus.Matcher{Label: "namespace", Op: "=~", Value: strings.Join(namespaces, "|")})
	if err != nil {
		return fmt.Errorf("selecting the usage of the pods of hot nodes: %w", err)
	}

	list, err := c.cfg.Usage.Vector(ctx, fmt.Sprintf(query, selector), now)
	if err != nil {
		return fmt.Errorf("reading the usage of the pods of hot nodes: %w", err)
	}

	const maxValue = 1 << 53 // Larger values are no counts of bytes or cores, and overflow.
	for _, sample := range list {
		if sample.Value >= 0 && sample.Value < maxValue {
			store(podName{sample.Labels["namespace"], sample.Labels["pod"]}, sample.Value)
		}
	}

	return nil
}
