// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package dirty generates the series of workloads with a known need, damages them as real stacks do, and compares the recommendations
// from damaged series with those from clean ones. Everything is derived from a seed.
//
// A workload is a process: what each pod required, minute by minute. Its clean series are what a perfect scrape of that process records.
// A fault either changes the process (a leader, a weekly peak, runs by the thousand) or its series (a counter that goes back, renamed
// labels, a restart of kube-state-metrics). The answers come from the query engine of Prometheus and the code of `crane recommend`.
package dirty
