// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"crane.io/crane/internal/component/texttable"
	"crane.io/crane/internal/metrics/prometheus"
	"crane.io/crane/internal/testbed/promserver"
)

// measureRead reads the data set, building it first if there is none, and prints the table.
func measureRead(ctx context.Context, cfg prometheus.Config, s shape, dir string, read reader) error {
	built, fresh, err := ensureDataset(ctx, s, dir, filepath.Join(dir, s.String()))
	if err != nil {
		return fmt.Errorf("building the data set: %w", err)
	}

	server, address, err := startServer(ctx, dir, s)
	if err != nil {
		return fmt.Errorf("starting Prometheus: %w", err)
	}

	cfg.Address = address
	cfg.Now = func() time.Time { return s.end }

	// The server is stopped in any case: its use of resources is known at its end only.
	results, readErr := read(ctx, cfg, s)
	usage, err := server.stop()

	if readErr != nil {
		return readErr
	}

	if err != nil {
		return fmt.Errorf("stopping Prometheus: %w", err)
	}

	report(cfg, s, built, fresh, results, usage)
	return nil
}

// ensureDataset builds the data set in a process of its own unless it is there, and returns what was written.
func ensureDataset(ctx context.Context, s shape, dir, data string) (stats promserver.BackfillStats, fresh bool, err error) {
	raw, err := os.ReadFile(filepath.Join(data, ready))
	if err != nil {
		fresh = true
		cmd := command(ctx, "build", dir, s)
		cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
		fmt.Fprintln(os.Stderr, "building the data set", data)
		begin := time.Now()

		if err := cmd.Run(); err != nil {
			return stats, fresh, err
		}

		fmt.Fprintln(os.Stderr, "built in", time.Since(begin).Round(time.Second))
		if raw, err = os.ReadFile(filepath.Join(data, ready)); err != nil {
			return stats, fresh, err
		}
	}

	return stats, fresh, json.Unmarshal(raw, &stats)
}

// command is this program in another role.
func command(ctx context.Context, role, dir string, s shape) *exec.Cmd {
	cmd := exec.CommandContext(ctx, os.Args[0], "-role", role, "-dir", dir, "-containers", strconv.Itoa(s.containers),
		"-namespaces", strconv.Itoa(s.namespaces), "-days", strconv.Itoa(s.days), "-scrape", s.scrape.String(),
		"-pods-per-workload", strconv.Itoa(s.podsPerWorkload), "-current="+strconv.FormatBool(s.current),
		"-page-cache="+strconv.FormatBool(s.pageCache), "-end", strconv.FormatInt(s.end.Unix(), 10))
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second

	return cmd
}

// serverProcess is the Prometheus process.
type serverProcess struct {
	cmd   *exec.Cmd
	stdin io.Closer
}

func startServer(ctx context.Context, dir string, s shape) (*serverProcess, string, error) {
	cmd := command(ctx, "serve", dir, s)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, "", err
	}

	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, "", err
	}

	if err := cmd.Start(); err != nil {
		return nil, "", err
	}

	c := &serverProcess{cmd: cmd, stdin: stdin}
	address, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		_, stopErr := c.stop()
		return nil, "", fmt.Errorf("no address: %w", errors.Join(err, stopErr))
	}

	return c, strings.TrimSpace(address), nil
}

func (c *serverProcess) stop() (*syscall.Rusage, error) {
	c.stdin.Close()
	err := c.cmd.Wait()
	usage, _ := c.cmd.ProcessState.SysUsage().(*syscall.Rusage)

	return usage, err
}

func report(cfg prometheus.Config, s shape, built promserver.BackfillStats, fresh bool, results []result, server *syscall.Rusage) {
	how := "built earlier"
	if fresh {
		how = "built in this run"
	}

	fmt.Printf("History of %d containers in %d namespaces, %d days, scraped every %v\n", s.containers, s.namespaces, s.days, s.scrape)
	fmt.Printf("data set: %d series, %d million samples, %d MiB, written in %v (%s, not counted below)\n\n",
		built.Series, built.Samples/1e6, built.Bytes>>20, built.Took.Round(time.Second), how)

	t := texttable.New("read", "step", "containers", "samples", "gaps", "queries", "retries", "MiB read", "wall")
	var wall time.Duration
	queries := int64(0)
	for _, r := range results {
		t.AppendRow(table.Row{
			r.what, r.step, r.containers, r.samples, r.stats.Gaps, r.stats.Queries, r.stats.Retries, r.stats.Bytes >> 20, r.wall.Round(100 * time.Millisecond),
		})
		wall += r.wall
		queries += r.stats.Queries
	}

	if len(results) > 1 {
		t.AppendRow(table.Row{"all", "", "", "", "", queries, "", "", wall.Round(100 * time.Millisecond)})
	}

	fmt.Println(t.Render())
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	fmt.Printf("\nreader: peak memory %d MiB, CPU time %v\n", usage.Maxrss>>10, cpuTime(&usage))

	if server != nil {
		fmt.Printf("Prometheus: peak memory %d MiB, CPU time %v\n", server.Maxrss>>10, cpuTime(server))
	}

	perDay := (s.containers/s.namespaces*int(24*time.Hour/results[0].step) + cfg.MaxSamples - 1) / cfg.MaxSamples
	fmt.Printf("aims: 512 MiB (768 with profiles), 60s, and namespaces x days x ceil(samples/limit) = %d queries of usage for a resource (owners and plan come on top)\n",
		s.namespaces*s.days*perDay)
}

func cpuTime(u *syscall.Rusage) time.Duration {
	return (time.Duration(u.Utime.Nano()) + time.Duration(u.Stime.Nano())).Round(100 * time.Millisecond)
}
