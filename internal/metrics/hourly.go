// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"time"
)

// HourlyMetric is something that is read by the hour.
type HourlyMetric string

// The figures. Those of pods are also of pods that are gone.
const (
	// PodCPU is what all containers of a pod use, in cores, the mean of the hour.
	PodCPU HourlyMetric = "cpu of pods"
	// PodReceived and PodSent are the traffic of a pod over all its interfaces, in bytes per second, the mean of the hour.
	PodReceived HourlyMetric = "received traffic of pods"
	PodSent     HourlyMetric = "sent traffic of pods"
	// ContainerThrottled is the share of the periods with work in which the kernel held a container up, from 0 to 1.
	ContainerThrottled HourlyMetric = "throttled periods of containers"
	// GPUUse is the largest share of the time in which something ran on a GPU of a container, from 0 to 1.
	GPUUse HourlyMetric = "use of GPUs"
	// GPUMemory is the most memory in use on a GPU of a container, in bytes.
	GPUMemory HourlyMetric = "memory of GPUs"
	// NodePods is how many pods a node ran in the hour that are not of a DaemonSet, nor static, and had not ended.
	NodePods HourlyMetric = "pods of nodes"
	// NodeCPURequests and NodeMemoryRequests are what the pods of a node ask for at the end of the hour, in cores and bytes.
	NodeCPURequests    HourlyMetric = "requested cpu of nodes"
	NodeMemoryRequests HourlyMetric = "requested memory of nodes"
	// ServiceAddresses is how many addresses, ready or not, a Service had within the hour.
	ServiceAddresses HourlyMetric = "addresses of services"
	// ClaimMounts is how many pods that had not ended mounted a persistent volume claim within the hour.
	ClaimMounts HourlyMetric = "mounts of claims"
)

// HourlyRequest asks for a figure of everything there is, for so many hours before End.
type HourlyRequest struct {
	Metric HourlyMetric
	// Namespaces restrict figures of what is in a namespace; empty means all.
	Namespaces []string
	End        time.Time
	// Hours is from 1 up.
	Hours int
}

// HourlySeries is a figure of one thing.
type HourlySeries struct {
	// Key says of what, as far as that goes: Workload, Pod and Container of figures of pods; Node alone of those of nodes;
	// Workload alone, with the kind and the name of the Service or the claim, of theirs.
	Key ContainerKey
	// Device tells GPUs of a container apart.
	Device string
	// Values are one for each hour, oldest first; NaN where nothing is known.
	Values []float64
}

// HourlyReader reads figures by the hour, each in one query as long as the server and MaxSamples allow. A source without
// the metric behind a figure returns nothing; what is nothing where something could have been is 0, as long as the source
// saw the thing: a Service that had no address, a node that ran no pod.
type HourlyReader interface {
	Hourly(ctx context.Context, req HourlyRequest) ([]HourlySeries, error)
}
