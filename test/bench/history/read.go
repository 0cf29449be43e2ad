// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"iter"
	"time"

	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/internal/metrics/profile"
	"crane.io/crane/internal/metrics/prometheus"
	"crane.io/crane/pkg/histogram"
	"crane.io/crane/pkg/series"
)

// result is the result of one read.
type result struct {
	what       string
	stats      metrics.Stats
	containers int
	samples    int64
	step       time.Duration
	wall       time.Duration
}

// reader reads the whole data set and keeps the result in memory until it returns.
type reader func(ctx context.Context, cfg prometheus.Config, s shape) ([]result, error)

// readHistograms reads each resource into a histogram for each container.
func readHistograms(ctx context.Context, cfg prometheus.Config, s shape) ([]result, error) {
	var out []result
	all := make([]map[metrics.ContainerKey]*histogram.Counts, 0, 2)
	for _, resource := range []metrics.UsageKind{metrics.CPU, metrics.Memory} {
		source, err := prometheus.New(cfg)
		if err != nil {
			return nil, err
		}

		r := result{what: string(resource)}
		histograms := map[metrics.ContainerKey]*histogram.Counts{}
		begin := time.Now()

		for c, err := range source.Capabilities().Usage.Usage(ctx, metrics.UsageRequest{Resource: resource, Start: s.start(), End: s.end}) {
			if err != nil {
				return nil, fmt.Errorf("reading %s: %w", resource, err)
			}

			h := histograms[c.Key]
			if h == nil {
				h = &histogram.Counts{}
				histograms[c.Key] = h
			}

			for _, v := range c.Series.Values {
				if !series.IsGap(v) && h.Add(v) {
					r.samples++
				}
			}

			r.step = c.Series.Step
		}

		r.wall = time.Since(begin)
		r.stats = source.Stats()
		r.containers = len(histograms)
		out = append(out, r)
		all = append(all, histograms)
	}

	// Histograms of both resources stay referenced until here, so that the peak memory is that of a recommendation.
	if len(all[0]) != len(all[1]) {
		return nil, fmt.Errorf("%d containers with CPU, %d with memory", len(all[0]), len(all[1]))
	}

	return out, nil
}

// readProfiles reads both resources as recommendations do: into one profile for each container of each workload.
func readProfiles(ctx context.Context, cfg prometheus.Config, s shape) ([]result, error) {
	source, err := prometheus.New(cfg)
	if err != nil {
		return nil, err
	}

	var workloads []workload.Workload
	for w := range s.workloads() {
		workloads = append(workloads, workload.Workload{Ref: workload.Ref{
			Namespace:  s.namespace(w * s.podsPerWorkload),
			APIVersion: "apps/v1",
			Kind:       "Deployment",
			Name:       deployment(w),
		}})
	}

	history := source.Capabilities()
	// Pods and samples are counted on the way, as profiles merge the pods of a workload.
	seen := &countingReader{UsageReader: history.Usage, pods: map[metrics.ContainerKey]bool{}}
	begin := time.Now()

	usage, err := profile.Collect(ctx, profile.Source{Capabilities: metrics.Capabilities{Usage: seen, OOM: history.OOM}}, profile.Request{
		Workloads: workloads, End: s.end, Length: s.end.Sub(s.start()),
	})
	if err != nil {
		return nil, err
	}

	for _, w := range workloads {
		if usage.Profile(w.Ref, "app") == nil {
			return nil, fmt.Errorf("no profile of %s", w.Ref)
		}
	}

	return []result{{
		what: "profiles", stats: source.Stats(), containers: len(seen.pods), samples: seen.samples, step: seen.step, wall: time.Since(begin),
	}}, nil
}

// countingReader counts the chunks that it returns.
type countingReader struct {
	metrics.UsageReader
	pods    map[metrics.ContainerKey]bool
	samples int64
	step    time.Duration
}

// Usage implements metrics.UsageReader.
func (n *countingReader) Usage(ctx context.Context, req metrics.UsageRequest) iter.Seq2[metrics.Chunk, error] {
	return func(yield func(metrics.Chunk, error) bool) {
		for c, err := range n.UsageReader.Usage(ctx, req) {
			if err == nil {
				n.pods[c.Key] = true
				n.samples += int64(len(c.Series.Values))
				n.step = c.Series.Step
			}

			if !yield(c, err) {
				return
			}
		}
	}
}
