// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"iter"
	"time"

	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/pkg/series"
)

// Autoscaler is a HorizontalPodAutoscaler with the targets that depend on requests.
type Autoscaler struct {
	Name string
	// Target is the workload that it scales.
	Target workload.Ref
	// CPU and Memory are the target utilization as a ratio of the request; 0 where it has no target for the resource.
	CPU, Memory series.Ratio
}

// OOMKill is a container that was killed for lack of memory.
type OOMKill struct {
	Key ContainerKey
	// Time is the exact time of the kill where the source knows it, else the start of the step that contains it.
	Time time.Time
	// Memory is the limit of the container at that time, else its request; 0 where the source does not know it.
	Memory series.Bytes
}

// OOMReader reads OOM kills of the past.
type OOMReader interface {
	// OOMKills returns the kills in the window, day by day. A window without a step is read by the hour. An error is the last element.
	OOMKills(ctx context.Context, w Window, namespaces []string) iter.Seq2[OOMKill, error]
}

// Heap is the Java heap of one container.
type Heap struct {
	Key ContainerKey
	// Max is the maximum heap size within the last day; Live is the largest heap in use after a garbage collection within the window. Both
	// are 0 where unknown.
	Max, Live series.Bytes
}

// HeapReader reads the sizes of Java heaps.
type HeapReader interface {
	// Heaps returns one element for each container of a pod, in any order. An error is the last element.
	Heaps(ctx context.Context, w Window, namespaces []string) iter.Seq2[Heap, error]
}

// Reading is the current usage of one container.
type Reading struct {
	Key ContainerKey
	// Time is when the usage was measured, over Window before that.
	Time   time.Time
	Window time.Duration
	// Value is in the unit of the resource, finite and not negative.
	Value float64
}

// RealtimeReader reads current usage from a source that need not keep history.
type RealtimeReader interface {
	// CurrentUsage returns the usage of the containers in some namespaces; empty means all. Containers without a valid value are left out.
	// An error is the last element.
	CurrentUsage(ctx context.Context, resource Resource, namespaces []string) iter.Seq2[Reading, error]
}
