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

// UsageKind is the quantity that a usage series measures.
type UsageKind string

// Resources that Crane sizes.
const (
	// CPU is measured in cores.
	CPU UsageKind = "cpu"
	// Memory is the working set in bytes.
	Memory UsageKind = "memory"
	// UnreclaimableMemory is the largest working set minus page cache within each hour, in bytes: memory that the kernel could not reclaim.
	UnreclaimableMemory UsageKind = "held-memory"
	// AnonymousMemory is the largest RSS within each hour, in bytes. It excludes shared memory, tmpfs and kernel memory.
	AnonymousMemory UsageKind = "anonymous-memory"
)

// IsHourly reports whether a source returns one value per hour for the resource, whatever step is requested. Such resources explain the
// peaks of Memory, for which one value per hour is enough.
func (r UsageKind) IsHourly() bool { return r == UnreclaimableMemory || r == AnonymousMemory }

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
	Resource   UsageKind
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
	Step(ctx context.Context, resource UsageKind, end time.Time) (time.Duration, error)
	// CountPods returns how many of the named pods have usage in [start, end), at most a day.
	CountPods(ctx context.Context, pods []string, start, end time.Time) (int, error)
	// Stats returns the statistics so far, including warnings of the server that answers are partial.
	Stats() Stats
}

// Labels identify a series of a source.
type Labels map[string]string

// Sample is one value of one series.
type Sample struct {
	Labels Labels
	Time   time.Time
	Value  float64
}

// LabeledSeries is a series with the labels that the source returned.
type LabeledSeries struct {
	Labels Labels
	series.Series
}

// Window is a time range on a grid: Start, Start+Step, ... before End.
type Window struct {
	Start, End time.Time
	Step       time.Duration
}

// Querier evaluates queries in the language of its source (PromQL). The usage of containers is read through UsageReader, which batches.
type Querier interface {
	// Instant evaluates a query at one time. It leaves out samples that are NaN or infinite.
	Instant(ctx context.Context, query string, at time.Time) ([]Sample, error)
	// Range evaluates a query on the grid of the window. Values that are missing, NaN or infinite are gaps.
	Range(ctx context.Context, query string, w Window) ([]LabeledSeries, error)
}

// Stats are statistics of a source since its creation. All counts only increase.
type Stats struct {
	// Queries sent, Retries after a failure, and Splits of queries that the server rejected as too large.
	Queries, Retries, Splits int64
	// Bytes received, after decompression.
	Bytes int64
	// Series and Samples received.
	Series, Samples int64
	// Gaps are the missing values between the first and last sample of each chunk.
	Gaps int64
	// Invalid counts samples that became gaps or were dropped: NaN, infinite, negative, duplicate or off the grid.
	Invalid int64
	// QueryTime is the sum over all queries of the time from the request to the last byte. Parallel queries count separately.
	QueryTime time.Duration
	// Warnings are the first few distinct warnings of the server and about it. A warning usually means that part of the data was unavailable.
	Warnings []string
}

// PublicError is an error whose text names what only administrators may know, such as the address of a server.
type PublicError interface {
	error
	// PublicMessage describes the failure without that.
	PublicMessage() string
}

// WorkloadsRequest selects workloads of one namespace and kind.
type WorkloadsRequest struct {
	Resource  UsageKind
	Namespace string
	// Kind is the kind of the workload: Deployment, StatefulSet, Pod, a custom kind, and so on.
	Kind   string
	Names  []string
	Window Window
}

// NodesRequest selects nodes. Their usage includes everything that runs there, such as system processes.
type NodesRequest struct {
	Resource UsageKind
	Names    []string
	Window   Window
}

// AggregateReader reads usage that the source sums itself, so that one query serves several workloads. Names without data are absent from
// the result. The value at t covers [t, t+Step), as with UsageReader.
type AggregateReader interface {
	// WorkloadUsage returns the usage of all containers of each workload, by the name of the workload.
	WorkloadUsage(ctx context.Context, req WorkloadsRequest) (map[string]series.Series, error)
	// NodeUsage returns the usage of each node, by its name.
	NodeUsage(ctx context.Context, req NodesRequest) (map[string]series.Series, error)
}

// WithPublicMessage returns err with a text for readers of one namespace.
func WithPublicMessage(err error, message string) error { return &redactedError{err, message} }

type redactedError struct {
	error
	public string
}

// Unwrap returns the whole error.
func (e *redactedError) Unwrap() error { return e.error }

// PublicMessage implements PublicError.
func (e *redactedError) PublicMessage() string { return e.public }
