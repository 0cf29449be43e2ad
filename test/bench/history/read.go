// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/internal/metrics/profile"
	"crane.io/crane/internal/metrics/prometheus"
	"crane.io/crane/pkg/histogram"
	"crane.io/crane/pkg/series"
)

// result is one reading.
type result struct {
	what       string
	stats      metrics.Stats
	containers int
	samples    int64
	step       time.Duration
	wall       time.Duration
}

// reader reads the whole data set and keeps what it made of it until it returns.
type reader func(ctx context.Context, cfg prometheus.Config, s shape) ([]result, error)

// readHistograms reads each resource into a histogram for each container.
func readHistograms(ctx context.Context, cfg prometheus.Config, s shape) ([]result, error) {
	var out []result
	kept := make([]map[metrics.ContainerKey]*histogram.Counts, 0, 2)
	for _, resource := range []metrics.Resource{metrics.CPU, metrics.Memory} {
		source, err := prometheus.New(cfg)
		if err != nil {
			return nil, err
		}
		r := result{what: string(resource)}
		sketches := map[metrics.ContainerKey]*histogram.Counts{}
		begin := time.Now()
		err = source.Usage(ctx, metrics.UsageRequest{Resource: resource, Start: s.start(), End: s.end}, func(c metrics.Chunk) error {
			h := sketches[c.Key]
			if h == nil {
				h = &histogram.Counts{}
				sketches[c.Key] = h
			}
			for _, v := range c.Series.Values {
				if !series.IsGap(v) && h.Add(v) {
					r.samples++
				}
			}
			r.step = c.Series.Step
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", resource, err)
		}
		r.wall, r.stats, r.containers = time.Since(begin), source.Stats(), len(sketches)
		out = append(out, r)
		kept = append(kept, sketches)
	}
	if len(kept[0]) != len(kept[1]) {
		return nil, fmt.Errorf("%d containers with CPU, %d with memory", len(kept[0]), len(kept[1]))
	}
	return out, nil
}

// readProfiles reads both resources the way recommendations are made: into one profile for each container of each
// workload, from which every recommendation can be proved.
func readProfiles(ctx context.Context, cfg prometheus.Config, s shape) ([]result, error) {
	source, err := prometheus.New(cfg)
	if err != nil {
		return nil, err
	}
	var workloads []workload.Workload
	for w := range s.workloads() {
		workloads = append(workloads, workload.Workload{Ref: workload.Ref{
			Namespace: s.namespace(w * s.podsPerWorkload), APIVersion: "apps/v1", Kind: "Deployment", Name: deployment(w),
		}})
	}
	seen := &countingReader{UsageReader: source, pods: map[metrics.ContainerKey]bool{}}
	begin := time.Now()
	usage, err := profile.Collect(ctx, profile.Source{Usage: seen, OOMs: source}, profile.Request{
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

// countingReader counts what passes through it.
type countingReader struct {
	metrics.UsageReader
	pods    map[metrics.ContainerKey]bool
	samples int64
	step    time.Duration
}

// Usage implements metrics.UsageReader.
func (n *countingReader) Usage(ctx context.Context, req metrics.UsageRequest, visit func(metrics.Chunk) error) error {
	return n.UsageReader.Usage(ctx, req, func(c metrics.Chunk) error {
		n.pods[c.Key] = true
		n.samples += int64(len(c.Series.Values))
		n.step = c.Series.Step
		return visit(c)
	})
}
