// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"time"

	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/pkg/series"
)

// Inventory lists workloads where no Kubernetes API is at hand.
type Inventory interface {
	// Inventory returns the workloads that have pods now. Empty namespaces mean all. What the source does not know
	// (labels, UID) is empty; Replicas is the number of pods that have not ended.
	Inventory(ctx context.Context, namespaces []string) ([]workload.Workload, error)
}

// Autoscaler is a HorizontalPodAutoscaler as far as requests matter to it.
type Autoscaler struct {
	Name string
	// Target is what it scales.
	Target workload.Ref
	// CPU and Memory are the use that it aims at as a share of the request, 0 where it does not look at that resource.
	CPU, Memory series.Ratio
}

// OOMKill is the end of a container for lack of memory.
type OOMKill struct {
	Key ContainerKey
	// Time is the begin of the step within which the container was killed, or the very time where the source knows it.
	Time time.Time
	// Memory is what the container had then: its limit, else its request; 0 where the source does not know.
	Memory series.Bytes
}

// OOMReader streams OOM kills of the past, day by day. A source that does not see them calls visit never. A window
// without a step is read by the hour.
type OOMReader interface {
	OOMKills(ctx context.Context, w Window, namespaces []string, visit func(OOMKill) error) error
}

// Heap is what a Java runtime says of the heap of one container.
type Heap struct {
	Key ContainerKey
	// Max is the largest that the heap may become, as of the last day; Live the largest that was in use after a collection,
	// within the window; 0 where not known.
	Max, Live series.Bytes
}

// HeapReader streams what Java runtimes say of their heaps, once for each container of a pod, in any order. A source
// that does not see them calls visit never.
type HeapReader interface {
	Heaps(ctx context.Context, w Window, namespaces []string, visit func(Heap) error) error
}
