// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Command autoscaling measures craned with thousands of EffectiveHorizontalPodAutoscalers whose load does not change: the time of
// the first reconcile of all, and writes, CPU and memory in a quiet period after it. The API server is real and its Deployments are
// objects without pods. This program writes the statuses of HPAs and forecasts once. craned is the real binary with the rights of
// config/rbac.
//
// It prints figures without judging them, because they include the load of the machine.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"crane.io/crane/test/bench/measure"
)

type options struct {
	scalers, namespaces int
	quiet, bound        time.Duration
	bin                 string
}

func main() {
	var o options
	flag.IntVar(&o.scalers, "scalers", 5000, "number of EffectiveHorizontalPodAutoscalers, each with a Deployment of its own")
	flag.IntVar(&o.namespaces, "namespaces", 50, "number of namespaces")
	flag.DurationVar(&o.quiet, "quiet", 10*time.Minute, "how long to look while nothing changes")
	flag.DurationVar(&o.bound, "bound", 20*time.Minute, "longest time for the first look")
	flag.StringVar(&o.bin, "bin", "bin", "directory of craned and controlplane")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "bench autoscaling:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) (err error) {
	scratch, err := os.MkdirTemp("", "bench-autoscaling-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()

	c, err := startCluster(ctx, o, filepath.Join(scratch, "control"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.control.Stop(context.WithoutCancel(ctx))) }()

	d, err := startCraned(ctx, o, c, scratch)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.stop()) }()

	// After craned has ended, nothing is left to measure.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	go func() {
		<-d.done
		cancel()
	}()

	if err := c.settle(ctx); err != nil {
		return errors.Join(err, d.tail())
	}

	return measureQuiet(ctx, o, c, d)
}

// measureQuiet measures a period without changes.
func measureQuiet(ctx context.Context, o options, c *cluster, d *craned) error {
	before, err := measure.Writes(ctx, c.rest)
	if err != nil {
		return err
	}

	for _, request := range slices.Sorted(maps.Keys(before)) {
		fmt.Printf("start: %d writes of %s, ours that make the cluster among them\n", before[request], request)
	}

	// Use and writes are differences between the ends of the quiet period.
	cpu, err := measure.CPU(d.cmd.Process.Pid)
	if err != nil {
		return err
	}

	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(o.quiet):
	}

	after, err := measure.Writes(ctx, c.rest)
	if err != nil {
		return err
	}

	used, err := measure.CPU(d.cmd.Process.Pid)
	if err != nil {
		return err
	}

	rss, err := measure.Memory(d.cmd.Process.Pid, "VmRSS")
	if err != nil {
		return err
	}

	total := int64(0)
	for _, request := range slices.Sorted(maps.Keys(after)) {
		if n := after[request] - before[request]; n > 0 {
			fmt.Printf("quiet: %d writes of %s\n", n, request)
			total += n
		}
	}

	fmt.Printf("quiet: %v with %d autoscalers: %d writes beside leases, %.3f cores, %d MiB\n",
		o.quiet, o.scalers, total, (used-cpu).Seconds()/o.quiet.Seconds(), rss>>20)
	return nil
}
