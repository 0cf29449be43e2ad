// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"crane.io/crane/test/bench/measure"
)

// progressInterval is the time between two progress lines.
const progressInterval = 15 * time.Second

// logf prints a line of progress, with the time.
func logf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%s  %s\n", time.Now().UTC().Format(time.TimeOnly), fmt.Sprintf(format, args...))
}

// counters is what had happened at one time.
type counters struct {
	at      time.Time
	queries int64
	writes  map[string]int64
	// craned, server and prometheus are the CPU times of the processes; peak is the most memory that craned has had so far.
	craned, server, prometheus time.Duration
	peak                       int64
}

func (m *measurement) count(ctx context.Context) (counters, error) {
	c := counters{at: time.Now()}
	var err error
	if c.queries, err = m.data.requests(ctx); err != nil {
		return c, err
	}

	if c.writes, err = measure.Writes(ctx, m.cluster.rest); err != nil {
		return c, err
	}

	if c.server, err = measure.ServerCPU(ctx, m.cluster.rest); err != nil {
		return c, err
	}

	if c.prometheus, err = measure.CPU(m.data.cmd.Process.Pid); err != nil {
		return c, err
	}

	if c.craned, err = measure.CPU(m.craned.cmd.Process.Pid); err != nil {
		return c, err
	}

	c.peak, err = measure.Memory(m.craned.cmd.Process.Pid, "VmHWM")
	return c, err
}

// since is what has happened between an earlier time and this one; the peak is that of all time.
func (c counters) since(before counters) counters {
	writes := map[string]int64{}
	for key, n := range c.writes {
		if d := n - before.writes[key]; d != 0 {
			writes[key] = d
		}
	}

	return counters{
		at:         c.at,
		queries:    c.queries - before.queries,
		writes:     writes,
		peak:       c.peak,
		craned:     c.craned - before.craned,
		server:     c.server - before.server,
		prometheus: c.prometheus - before.prometheus,
	}
}

// total returns the number of all writes.
func (c counters) total() int64 {
	sum := int64(0)
	for _, n := range c.writes {
		sum += n
	}

	return sum
}

// spent returns a line with the counters since an earlier time.
func (c counters) spent(before counters) string {
	d := c.since(before)
	return fmt.Sprintf("%v: %d queries, %d writes; CPU of craned %v, of the API server %v, of Prometheus %v; peak of craned %d MiB",
		c.at.Sub(before.at).Round(time.Second), d.queries, d.total(), d.craned.Round(100*time.Millisecond),
		d.server.Round(100*time.Millisecond), d.prometheus.Round(100*time.Millisecond), d.peak>>20)
}

// table is the result of the run, with a line for each figure.
type table struct{ rows [][3]string }

// add adds a figure; aim is empty where there is none.
func (t *table) add(figure, measured, aim string) {
	t.rows = append(t.rows, [3]string{figure, measured, aim})
}

// print writes the table to standard output.
func (t *table) print() {
	widths := [2]int{len("figure"), len("measured")}
	for _, r := range t.rows {
		widths[0], widths[1] = max(widths[0], len(r[0])), max(widths[1], len(r[1]))
	}

	for _, r := range append([][3]string{{"figure", "measured", "aim"}}, t.rows...) {
		fmt.Printf("%-*s  %-*s  %s\n", widths[0], r[0], widths[1], r[1], r[2])
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
