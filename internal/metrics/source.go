// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package metrics holds the interfaces and types through which Crane reads the usage history of workloads. Its subfolders hold the data
// sources (Prometheus, CSV files, gRPC, metrics-server) and the usage profiles built from them. Values are typed, gaps are explicit, and a
// value that was not measured is never zero.
package metrics

import (
	"context"
	"iter"
	"time"

	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/pkg/series"
)

// Resource is the quantity that a usage series measures.
type Resource string

// Resources that Crane sizes.
const (
	// CPU is measured in cores.
	CPU Resource = "cpu"
	// Memory is the working set in bytes.
	Memory Resource = "memory"
	// UnreclaimableMemory is the largest working set minus page cache within each hour, in bytes: memory that the kernel could not reclaim.
	UnreclaimableMemory Resource = "held-memory"
	// AnonymousMemory is the largest RSS within each hour, in bytes. It excludes shared memory, tmpfs and kernel memory.
	AnonymousMemory Resource = "anonymous-memory"
)

// IsHourly reports whether a source returns one value per hour for the resource, whatever step is requested. Such resources explain the
// peaks of Memory, for which one value per hour is enough.
func (r Resource) IsHourly() bool { return r == UnreclaimableMemory || r == AnonymousMemory }

// ContainerKey identifies one container of one pod and the workload that owns it.
type ContainerKey struct {
	Workload  workload.Ref
	Pod       string
	Container string
	// Node is the node the pod ran on; empty where the source does not know it.
	Node string
}

// UsageRequest selects the usage of every container in some namespaces.
type UsageRequest struct {
	// Namespaces to read; empty means all.
	Namespaces []string
	Resource   Resource
	// Start is inclusive, End exclusive. Sources with a clock leave out times after now; sources of files accept a zero time as unbounded.
	Start, End time.Time
	// Step between samples; 0 lets the source derive it from its scrape interval. A source whose samples are further apart returns its own
	// step in Chunk.Series.Step.
	Step time.Duration
}

// Chunk is part of one container's usage: at most one day, never across midnight UTC. The value at t covers [t, t+Step). A chunk starts
// and ends with a sample; gaps lie in between.
type Chunk struct {
	Key    ContainerKey
	Series series.Series
}

// UsageReader reads the usage history of containers.
type UsageReader interface {
	// Usage returns the chunks that match the request. Chunks of one container are in time order; chunks of different containers are in any
	// order. The caller must not keep Chunk.Series.Values after the next chunk, as the buffer may be reused. An error is the last element.
	// A source without data, or without the resource, returns no element.
	Usage(ctx context.Context, req UsageRequest) iter.Seq2[Chunk, error]
}

// DayReader is a UsageReader that completes each day before it starts the next one: no chunk follows a chunk of a later day. Its results
// can therefore be cached by day.
type DayReader interface {
	UsageReader
	// Identity describes the server and the selected part of its data, without secrets. Two servers can have the same identity, for example
	// behind a forwarded port; CountPods distinguishes them.
	Identity() string
	// Step returns the step that Usage chooses for a request that ends at the given time.
	Step(ctx context.Context, resource Resource, end time.Time) (time.Duration, error)
	// CountPods returns how many of the named pods have usage in [start, end), at most a day.
	CountPods(ctx context.Context, pods []string, start, end time.Time) (int, error)
	// Stats returns the statistics so far, including warnings of the server that answers are partial.
	Stats() Stats
}
