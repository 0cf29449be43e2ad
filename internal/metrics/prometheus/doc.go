// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package prometheus reads history over the HTTP API of Prometheus, which Thanos, Mimir and VictoriaMetrics serve as well. It uses no
// metric that a server exports about itself. It contains PromQL, HTTP and the names of the metrics of cAdvisor and kube-state-metrics, and
// must not depend on the purpose of the values or on the Kubernetes API.
//
// Usage is read in batches: one query returns the containers of many namespaces for one day. The number of queries grows with days and
// samples, not with workloads. The memory of the reader is bounded by Config.Concurrency x Config.MaxSamples values.
//
// # Meaning of a value
//
// A usage value at time t covers [t, t+step). Days are cut at midnight UTC, so that a finished day never changes and can be cached.
//
//   - CPU is rate(container_cpu_usage_seconds_total[window]), in cores. The window is at least four scrape intervals: with fewer, a missed
//     scrape leaves a window with a single sample, which has no rate. By default the step equals the window, so that each raw sample counts
//     once. The function rate handles counter resets. Containers that another job scrapes less often have a longer window of their own.
//   - Memory is max_over_time(container_memory_working_set_bytes[step]), in bytes: containers are killed at their peak, which a sample
//     every few minutes would miss.
//   - Both are aggregated with max by (namespace, pod, container): a container that is scraped by two jobs or two Prometheus replicas, or
//     that restarts, counts once. CPU is first summed over the cpu label, for exporters that split it.
//   - container!="" leaves out the cgroups of pods and nodes, container!="POD" the pause container. There is no filter on image: several
//     runtimes leave that label empty for real containers.
//
// # Invalid samples
//
// NaN, infinite and negative values become gaps; a second sample at one time replaces the first; samples off the grid of the query or in
// the future are dropped, and so is a second series with the same namespace, pod and container. All are counted in Stats.Invalid. The order
// within a response has no effect.
package prometheus
