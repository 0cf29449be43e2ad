// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Command craned measures one full run of the Resource recommender over a large cluster, ten quiet minutes after it, and
// what roll-outs leave in memory. The API server is real and its Deployments are objects without pods; Prometheus is a real
// engine in a process of its own, on a data set that is written once, whose time is reported apart; craned is the real
// binary with the rights of config/rbac.
//
// While it runs it prints where it is, at the end one table of the figures beside what they aim at. It judges nothing: what else
// runs on the machine is part of them.
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
)

// options are the size of what is measured.
type options struct {
	workloads, podsPerWorkload, namespaces, days int
	scrape                                       time.Duration
	quiet                                        time.Duration
	rollOuts, rolled                             int
	bin, dir                                     string
	keep                                         bool
	bound, rollOutBound                          time.Duration
	profiles                                     string
}

func main() {
	var o options
	flag.IntVar(&o.workloads, "workloads", 20_000, "number of Deployments")
	flag.IntVar(&o.podsPerWorkload, "containers-per-workload", 3, "containers of each in the history, one for each pod, 1 to 10")
	flag.IntVar(&o.namespaces, "namespaces", 200, "number of namespaces")
	flag.IntVar(&o.days, "days", 7, "days of history")
	flag.DurationVar(&o.scrape, "scrape", 5*time.Minute, "distance between samples")
	flag.DurationVar(&o.quiet, "quiet", 10*time.Minute, "how long to look while nothing changes")
	flag.IntVar(&o.rolled, "rolled", 1000, "how many workloads are rolled out: their templates change, and each gets a new pod that runs in the place of the last one")
	flag.IntVar(&o.rollOuts, "roll-outs", 50, "how often; 0 leaves this out, the heap is compared with the one after a fifth of them")

	flag.DurationVar(&o.rollOutBound, "roll-outs-bound", 30*time.Minute, "longest time for the roll-outs; the table says how many there were")
	flag.StringVar(&o.bin, "bin", "bin", "directory of craned and controlplane")
	flag.StringVar(&o.dir, "dir", filepath.Join(".cache", "bench", "craned"), "directory of the data set")
	flag.BoolVar(&o.keep, "keep", false, "take the data set that is there, however old it is; without it, one that no longer reaches to now is written anew")
	flag.DurationVar(&o.bound, "bound", time.Hour, "longest time for a run")
	flag.StringVar(&o.profiles, "profiles", "", "directory for profiles of craned and of the API server in the first minute of the run, and of craned's heap after it; empty for none")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "bench craned:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) (err error) {
	if o.workloads < o.namespaces || o.namespaces < 1 || o.podsPerWorkload < 1 || o.podsPerWorkload > 10 || o.rolled > o.workloads {
		return errors.New("want at least one namespace, a workload in each, 1 to 10 containers in one, and no more rolled out than there are")
	}

	scratch, err := os.MkdirTemp("", "bench-craned-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()

	data, err := openData(ctx, o, scratch)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, data.close()) }()

	c, err := startCluster(ctx, o, scratch)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.stop(context.WithoutCancel(ctx))) }()

	d, err := startCraned(ctx, o, c, data.url, scratch)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.stop()) }()

	m := measurement{
		options: o,
		data:    data,
		cluster: c,
		craned:  d,
	}

	m.table.add("data set", data.description, "")
	m.table.add("cluster", c.description, "")

	// The table is printed after a failure, too: each part takes minutes.
	for _, part := range []func(context.Context) error{m.firstRun, m.secondRun, m.measureIdle, m.rollOut} {
		if err := part(ctx); err != nil {
			m.table.print()
			return errors.Join(err, d.tail())
		}
	}

	m.table.print()
	return nil
}
