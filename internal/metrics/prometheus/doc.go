// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package prometheus reads history over the Prometheus HTTP API, from Prometheus, Thanos, Mimir or VictoriaMetrics
// alike; it uses no metric that a server exports about itself. It knows PromQL, HTTP and the names that cAdvisor and
// kube-state-metrics export. It must not know what the values are used for, nor the Kubernetes API.
//
// Usage is read in batches: one query returns the containers of many namespaces for one day. The number of queries
// grows with days and with samples, not with workloads, and the memory of the reader is bounded by
// Config.Concurrency x Config.MaxSamples values.
//
// # What a value means
//
// A usage value at time t stands for [t, t+step), and days are cut at midnight UTC, so that a day which is over never
// changes and may be cached.
//
//   - CPU is rate(container_cpu_usage_seconds_total[window]), cores. The window is at least four scrape intervals: with
//     less, a missed scrape leaves a window with a single sample, which has no rate. By default step = window, so that
//     each raw sample is looked at once. Counter resets are rate's business.
//   - Memory is max_over_time(container_memory_working_set_bytes[step]), bytes: what kills a container is the peak, and
//     a value picked every few minutes misses it.
//   - Both are taken with max by (namespace, pod, container): the same container scraped by two jobs, by two Prometheus
//     replicas, or seen before and after a restart counts once. CPU is summed over the cpu label before that, for
//     exporters that split it.
//   - container!="" leaves out the cgroups of pods and nodes, container!="POD" the pause container. There is no filter
//     on image: several runtimes leave that label empty for real containers.
//
// # What is done with bad samples
//
// NaN, infinite and negative values become gaps; a second sample at one time replaces the first; samples off the grid
// of the query or in the future are dropped; a second series with the same namespace, pod and container is dropped.
// All of them are counted in Stats.Bad. Order within an answer does not matter.
package prometheus
