// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package metrics is the source of history: it reads what containers used from Prometheus (or anything that speaks its
// HTTP API) or from CSV files, behind one small interface. It returns typed values with explicit gaps and never a zero
// that was not measured.
package metrics

import (
	"context"
	"time"

	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/pkg/series"
)

// Resource is what a usage series measures.
type Resource string

// The resources that Crane sizes.
const (
	// CPU is measured in cores.
	CPU Resource = "cpu"
	// Memory is measured in bytes (working set).
	Memory Resource = "memory"
	// HeldMemory is the working set without the page cache in it, in bytes: the most within an hour that the kernel could
	// not have taken back.
	HeldMemory Resource = "held-memory"
	// AnonymousMemory is rss, in bytes: the most within an hour. It lacks shared memory, tmpfs and the kernel's own.
	AnonymousMemory Resource = "anonymous-memory"
)

// Rereader is a UsageReader of which several resources of the same containers can be asked with less work.
type Rereader interface {
	UsageReader
	// Rereading returns a reader that keeps what it finds out about the containers, bounded, until it is dropped. It can do
	// all that the one can that it is made of, and is for one reading after the other.
	Rereading() UsageReader
}

// MemoryTeller is a UsageReader that can tell what memory is made of.
type MemoryTeller interface {
	UsageReader
	// MemoryDetails are the resources beside Memory that it may have, the most telling first: the first one of which there
	// are data is enough.
	MemoryDetails() []Resource
}

// IsHourly tells resources of which a source gives one value for each hour, whatever step it is asked for: beside
// Memory, whose peaks they explain, that is enough, and a small part of its samples.
func (r Resource) IsHourly() bool { return r == HeldMemory || r == AnonymousMemory }

// ContainerKey names one container of one pod and the workload that owns it.
type ContainerKey struct {
	Workload  workload.Ref
	Pod       string
	Container string
	// Node is the node the pod ran on, where the source knows it.
	Node string
}

// UsageRequest asks for the use of every container of some namespaces.
type UsageRequest struct {
	// Namespaces to read; empty means all.
	Namespaces []string
	Resource   Resource
	// Start is inclusive, End exclusive. What lies after now is left out by sources that have a clock; sources of files
	// take a zero time for no bound.
	Start, End time.Time
	// Step between samples; 0 lets the source derive it from its scrape interval. A source whose samples are further
	// apart returns its own step: Chunk.Series.Step says which.
	Step time.Duration
}

// Chunk is a piece of one container's usage, at most a day long and never across midnight UTC. The value at t stands for
// the use in [t, t+Step). It begins and ends with a sample; gaps lie in between.
type Chunk struct {
	Key    ContainerKey
	Series series.Series
}

// UsageReader streams usage. Chunks of one container arrive in time order; chunks of different containers in any
// order; visit is never called from two goroutines at once, must not keep Chunk.Series.Values (the buffer is reused),
// and an error that it returns ends the reading and is returned. A source that has no data, or does not know the
// resource, calls visit never and returns nil: "no data" is the caller's to report.
type UsageReader interface {
	Usage(ctx context.Context, req UsageRequest, visit func(Chunk) error) error
}
