// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Command history measures how a week of 10,000 containers gets from an embedded Prometheus into histograms: number of
// queries, wall time, and the reader's own peak memory. Prometheus is a process of its own, so that neither its memory
// nor its CPU time is counted as the reader's; the data set is built once, by a third process, and kept.
//
// With -role recommend it measures the whole command instead: a process of bin/crane that finds the workloads, reads,
// decides, proves and prints, with an empty cache and again with what the first run has left in it.
//
// It prints a table and compares with no limit. Wall time varies on a busy machine, so CPU time is printed as well.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"crane.io/crane/internal/metrics/prometheus"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "history:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	shape := shape{end: time.Date(2026, 3, 8, 0, 0, 0, 0, time.UTC)}
	role := flag.String("role", "read", "read, recommend, or what these start: build, serve")
	dir := flag.String("dir", filepath.Join(".cache", "bench", "history"), "directory of the data sets")
	flag.IntVar(&shape.containers, "containers", 10_000, "number of containers")
	flag.IntVar(&shape.namespaces, "namespaces", 100, "number of namespaces")
	flag.IntVar(&shape.days, "days", 7, "days of history")
	flag.DurationVar(&shape.scrape, "scrape", time.Minute, "distance between samples")
	flag.IntVar(&shape.podsPerWorkload, "pods-per-workload", 10, "pods of a Deployment, 1 to 10")

	flag.BoolVar(&shape.current, "current", false, "add what kube-state-metrics says of the last hours; -role recommend sets it")
	flag.BoolVar(&shape.pageCache, "page-cache", false, "add the metric that tells page cache from the rest of memory")
	end := flag.Int64("end", shape.end.Unix(), "end of the data set, in seconds since 1970; -role recommend sets it to the next hour")
	crane := flag.String("crane", filepath.Join("bin", "crane"), "the command that -role recommend measures")
	cfg := prometheus.DefaultConfig()
	flag.IntVar(&cfg.Concurrency, "concurrency", cfg.Concurrency, "queries at once")
	flag.IntVar(&cfg.MaxSamples, "max-samples", cfg.MaxSamples, "samples in one query")
	target := flag.String("into", "histograms", "what to read into: histograms of containers, or profiles of workloads as recommendations are made from")
	flag.Parse()

	shape.end = time.Unix(*end, 0).UTC()
	if shape.namespaces < 1 || shape.containers < shape.namespaces || shape.days < 1 || shape.scrape < time.Second ||
		shape.podsPerWorkload < 1 || shape.podsPerWorkload > 10 {
		return errors.New("want at least one namespace, a container in each, a day, a second between samples and 1 to 10 pods of a workload")
	}

	data := filepath.Join(*dir, shape.String())
	switch *role {
	case "build":
		return build(ctx, shape, data)
	case "serve":
		return serveData(ctx, data)
	case "recommend":
		return measureRecommend(ctx, shape, *dir, *crane)

	case "read":
		reader, ok := map[string]reader{"histograms": readHistograms, "profiles": readProfiles}[*target]
		if !ok {
			return fmt.Errorf("into %q: want histograms or profiles", *target)
		}

		return measureRead(ctx, cfg, shape, *dir, reader)
	}

	return fmt.Errorf("role %q: want read, recommend, build or serve", *role)
}
