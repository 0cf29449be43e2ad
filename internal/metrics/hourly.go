// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"time"
)

// HourlyMetric is a metric that is read with one value per hour.
type HourlyMetric string

// Hourly metrics. Those of pods include pods that no longer exist.
const (
	// PodCPU is the mean CPU usage of all containers of a pod, in cores.
	PodCPU HourlyMetric = "cpu of pods"
	// PodReceived and PodSent are the mean traffic of a pod over all its interfaces, in bytes per second.
	PodReceived HourlyMetric = "received traffic of pods"
	PodSent     HourlyMetric = "sent traffic of pods"
	// ContainerThrottled is the ratio of CFS periods in which the kernel throttled a container, from 0 to 1.
	ContainerThrottled HourlyMetric = "throttled periods of containers"
	// GPUUse is the largest utilization of a GPU of a container, from 0 to 1.
	GPUUse HourlyMetric = "use of GPUs"
	// GPUMemory is the largest memory usage of a GPU of a container, in bytes.
	GPUMemory HourlyMetric = "memory of GPUs"
	// NodePods is the number of pods of a node that had not ended and are neither static nor of a DaemonSet.
	NodePods HourlyMetric = "pods of nodes"
	// NodeCPURequests and NodeMemoryRequests are the requests of the pods of a node at the end of the hour, in cores and bytes.
	NodeCPURequests    HourlyMetric = "requested cpu of nodes"
	NodeMemoryRequests HourlyMetric = "requested memory of nodes"
	// ServiceAddresses is the number of addresses of a Service, ready or not.
	ServiceAddresses HourlyMetric = "addresses of services"
	// ClaimMounts is the number of pods that had not ended and mounted a persistent volume claim.
	ClaimMounts HourlyMetric = "mounts of claims"
)

// HourlyRequest selects all series of a metric over the hours before End.
type HourlyRequest struct {
	Metric HourlyMetric
	// Namespaces restrict metrics of namespaced objects; empty means all.
	Namespaces []string
	End        time.Time
	// Hours is at least 1.
	Hours int
}

// HourlySeries holds the values of a metric for one object.
type HourlySeries struct {
	// Key identifies the object: metrics of pods set Workload, Pod and Container; metrics of nodes set Node alone; metrics of Services and
	// claims set Workload alone, with the kind and name of that object.
	Key ContainerKey
	// Device identifies one GPU of a container.
	Device string
	// Values has one element per hour, the oldest first; NaN where nothing is known.
	Values []float64
}

// HourlyReader reads metrics with one value per hour, each in one query as far as the limits of the server and MaxSamples allow.
type HourlyReader interface {
	// Hourly returns the series of a metric. A source without the metric returns none. The value is 0 where the source saw an object without
	// anything to count, such as a Service without addresses or a node without pods.
	Hourly(ctx context.Context, req HourlyRequest) ([]HourlySeries, error)
}
