// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Command metricadapter measures the metric adapter with thousands of EffectiveHorizontalPodAutoscalers behind the aggregation layer
// of a real API server: the latency of its handler, the requests to the Kubernetes API for each request, and memory. The adapter is
// the real binary with the rights of config/rbac. The requests come from the user of the HPA controller, with as many goroutines as
// it has workers.
//
// It prints figures without judging them, because they include the load of the machine.
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
)

// options are the sizes of the measurement.
type options struct {
	autoscalers, namespaces, rounds, workers int
	bin                                      string
}

func main() {
	var o options
	flag.IntVar(&o.autoscalers, "autoscalers", 5000, "number of EffectiveHorizontalPodAutoscalers, each with a prediction of two metrics and a cron")
	flag.IntVar(&o.namespaces, "namespaces", 100, "number of namespaces")
	flag.IntVar(&o.rounds, "rounds", 4, "how often each is asked for both metrics")
	flag.IntVar(&o.workers, "workers", 5, "requests at once; the HPA controller has five workers")
	flag.StringVar(&o.bin, "bin", "bin", "directory of metric-adapter and controlplane")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "bench metricadapter:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) (err error) {
	if o.autoscalers < o.namespaces || o.namespaces < 1 || o.rounds < 1 || o.workers < 1 {
		return errors.New("want at least one namespace, an autoscaler in each, a round and a worker")
	}

	dir, err := os.MkdirTemp("", "bench-metricadapter-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()

	c, err := startCluster(ctx, o, filepath.Join(dir, "controlplane"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.control.Stop(context.WithoutCancel(ctx))) }()

	if err := c.fill(ctx, o); err != nil {
		return err
	}

	a, err := c.startAdapter(ctx, o, filepath.Join(dir, "metric-adapter.log"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.process.Stop(context.WithoutCancel(ctx))) }()

	return a.measure(ctx, o)
}
