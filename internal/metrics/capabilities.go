// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"errors"
	"iter"
	"time"

	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/pkg/series"
	"crane.io/crane/pkg/units"
)

// ErrUnsupported means that a data source does not support a request. The source itself has not failed; another source may be used.
var ErrUnsupported = errors.New("no data source answers this")

// Capabilities lists what a data source supports. A field is nil where the source lacks the capability.
type Capabilities struct {
	// Usage reads the usage history of containers.
	Usage UsageReader
	// Days is set where Usage reads day by day.
	Days DayReader
	// OOM reads OOM kills of the past.
	OOM OOMReader
	// Capacity reads what nodes and limits could give to containers.
	Capacity CapacityReader
	// Heaps reads the sizes of Java heaps.
	Heaps HeapReader
	// Hourly reads metrics with one value per hour.
	Hourly HourlyReader
	// Aggregates reads usage summed by workload or node.
	Aggregates AggregateReader
	// Queries evaluates PromQL.
	Queries Querier
	// Realtime reads current usage.
	Realtime RealtimeReader
	// MemoryBreakdown lists the resources beside Memory that the source may hold, the most precise first. The first one with data is enough.
	MemoryBreakdown []UsageKind
	// Caching returns the same capabilities over readers that cache, within a bound, the owners of pods. It serves consecutive reads and is
	// then dropped.
	Caching func() Capabilities
}

// WithCache returns the capabilities with a cache for consecutive reads, or c where the source has none.
func (c Capabilities) WithCache() Capabilities {
	if c.Caching == nil {
		return c
	}

	return c.Caching()
}

// Fail returns an iterator whose only element is an error.
func Fail[T any](err error) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		yield(none, err)
	}
}

// Inventory lists workloads.
type Inventory interface {
	// Inventory returns the workloads that have pods now. Empty namespaces mean all. Labels and UID are empty where the source does not know
	// them; Replicas is the number of pods that have not ended.
	Inventory(ctx context.Context, namespaces []string) ([]workload.Workload, error)
}

// Prober examines a data source before it is used.
type Prober interface {
	Probe(ctx context.Context) (SourceReport, error)
}

// SourceReport describes a data source: which metrics it holds, how far back and at which interval.
type SourceReport struct {
	// Server is the kind and version of the server; empty where it does not report them.
	Server string
	// Metrics lists every metric that Crane reads, present or not.
	Metrics []MetricPresence
	// ScrapeInterval is the time between samples of container metrics; 0 where there are none.
	ScrapeInterval time.Duration
	// Oldest and Newest are the times of the oldest and newest container sample, accurate to minutes; zero where there is none.
	Oldest, Newest time.Time
	// History is the age of the oldest sample. HistoryTruncated is set where there may be older samples than the probe searches for.
	History          time.Duration
	HistoryTruncated bool
	// UnscrapedPods is the number of running pods without usage, on UnscrapedNodes.
	UnscrapedPods  int
	UnscrapedNodes []string
	// ClockSkew is the server's clock minus the local clock; 0 where the server sent no date.
	ClockSkew time.Duration
	// Warnings are sentences for the user, the most important first.
	Warnings []string
}

// MetricPresence describes one metric that Crane reads.
type MetricPresence struct {
	Metric string
	// Series is the number of series at SourceReport.Newest; 0 means that the metric is missing.
	Series int
	// Renamed is the number of series that are ignored because the scrape renamed labels that identify objects; RenamedLabel is one of the
	// new names.
	Renamed      int
	RenamedLabel string
	// Impact states what Crane cannot do without the metric.
	Impact string
	// Required is set for metrics without which there are no recommendations.
	Required bool
}

// Missing returns the metrics that the source lacks.
func (r SourceReport) Missing() []MetricPresence {
	var out []MetricPresence
	for _, m := range r.Metrics {
		if m.Series == 0 {
			out = append(out, m)
		}
	}

	return out
}

// SplitDays cuts a series at midnight UTC. It leaves out days without samples and gaps at either end of a day. Each chunk holds a copy of
// its values, which the next chunk overwrites.
func SplitDays(ctx context.Context, key ContainerKey, s series.Series) iter.Seq2[Chunk, error] {
	return func(yield func(Chunk, error) bool) {
		var buffer []float64
		for i := 0; i < len(s.Values); {
			if ctx.Err() != nil {
				yield(Chunk{}, context.Cause(ctx))
				return
			}

			midnight := s.Time(i).Truncate(24 * time.Hour).Add(24 * time.Hour)
			next := min(len(s.Values), i+int((midnight.Sub(s.Time(i))+s.Step-1)/s.Step))

			// Gaps at both ends of a day carry nothing and would only lengthen the chunk.
			from := i
			to := next
			for from < to && series.IsGap(s.Values[from]) {
				from++
			}

			for to > from && series.IsGap(s.Values[to-1]) {
				to--
			}

			i = next
			if from == to {
				continue
			}

			buffer = append(buffer[:0], s.Values[from:to]...)
			if !yield(Chunk{Key: key, Series: series.Series{Start: s.Time(from), Step: s.Step, Values: buffer}}, nil) {
				return
			}
		}
	}
}

// Autoscaler is a HorizontalPodAutoscaler with the targets that depend on requests.
type Autoscaler struct {
	Name string
	// Target is the workload that it scales.
	Target workload.Ref
	// CPU and Memory are the target utilization as a ratio of the request; 0 where it has no target for the resource.
	CPU, Memory units.Ratio
}

// OOMKill is a container that was killed for lack of memory.
type OOMKill struct {
	Key ContainerKey
	// Time is the exact time of the kill where the source knows it, else the start of the step that contains it.
	Time time.Time
	// Memory is the limit of the container at that time, or the usage for which its pod was evicted; 0 where the source does not know it.
	Memory units.Bytes
	// NoLimit is set where the source knows that the container had no limit: the node or the pod was out of memory.
	NoLimit bool
	// Unknown is set, with the namespace alone, where the kills of a namespace cannot be read, for example because the server rejects the query
	// as too large. It is the reason.
	Unknown string
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
	Max, Live units.Bytes
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
	CurrentUsage(ctx context.Context, resource UsageKind, namespaces []string) iter.Seq2[Reading, error]
}

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
