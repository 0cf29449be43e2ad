// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"crane.io/crane/internal/component/texttable"
)

// commandRun is one run of the command.
type commandRun struct {
	wall, cpu time.Duration
	peak      int64 // bytes
	requests  int64
	printed   int64 // bytes
	numbers   int
}

// measureRecommend runs the command twice against a data set that ends now: it has a clock of its own. The first run
// finds no cache, the second the finished days that the first has kept.
func measureRecommend(ctx context.Context, s shape, dir, crane string) (err error) {
	length := s.days
	s.days++ // The day in which the history begins is read whole.
	s.current = true
	s.end = time.Now().UTC().Truncate(time.Hour).Add(time.Hour)

	// It is of this hour and no use for the next.
	dir = filepath.Join(dir, "now")

	data := filepath.Join(dir, s.String())
	if err := os.RemoveAll(data); err != nil {
		return err
	}

	built, _, err := ensureDataset(ctx, s, dir, data)
	if err != nil {
		return fmt.Errorf("building the data set: %w", err)
	}

	server, address, err := startServer(ctx, dir, s)
	if err != nil {
		return fmt.Errorf("starting Prometheus: %w", err)
	}

	scratch, err := os.MkdirTemp("", "recommend-bench-")
	defer func() {
		usage, stopErr := server.stop()
		if usage != nil && err == nil {
			fmt.Printf("Prometheus, both runs: peak memory %d MiB, CPU time %v\n", usage.Maxrss>>10, cpuTime(usage))
		}

		err = errors.Join(err, stopErr, os.RemoveAll(scratch))
	}()

	if err != nil {
		return err
	}

	fmt.Printf("Recommendations for %d containers of %d workloads in %d namespaces, %d days, scraped every %v, with evidence, as JSON\n",
		s.containers, s.workloads(), s.namespaces, length, s.scrape)
	fmt.Printf("data set: %d series, %d million samples, %d MiB\n\n", built.Series, built.Samples/1e6, built.Bytes>>20)

	t := texttable.New("run", "wall", "CPU time", "peak memory MiB", "requests", "containers with numbers", "MiB printed")
	for _, what := range []string{"cold", "with the cache"} {
		r, err := runCommand(ctx, crane, address, scratch, length)
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}

		t.AppendRow(table.Row{
			what, r.wall.Round(100 * time.Millisecond), r.cpu.Round(100 * time.Millisecond), r.peak >> 20, r.requests, r.numbers, r.printed >> 20,
		})
	}

	fmt.Println(t.Render())
	now := time.Now().UTC()
	fmt.Printf("\ntoday is %v old; aims: 90s and 768 MiB cold, 10s with the cache of yesterday\n", now.Sub(now.Truncate(24*time.Hour)).Round(time.Minute))

	return nil
}

func runCommand(ctx context.Context, crane, address, scratch string, days int) (commandRun, error) {
	before, err := requests(ctx, address)
	if err != nil {
		return commandRun{}, err
	}

	path := filepath.Join(scratch, "out.json")
	out, err := os.Create(path)
	if err != nil {
		return commandRun{}, err
	}
	defer out.Close()

	cmd := exec.CommandContext(ctx, crane, "recommend", "--prometheus", address, "--history", strconv.Itoa(days)+"d",
		"--cache-dir", filepath.Join(scratch, "cache"), "-o", "json", "--evidence")

	// No cluster: the workloads are those of the data set.
	cmd.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(scratch, "none"), "HOME="+scratch)
	cmd.Stdout = out
	cmd.Stderr = os.Stderr
	begin := time.Now()

	if err := cmd.Run(); err != nil {
		return commandRun{}, fmt.Errorf("%s: %w", crane, err)
	}

	r := commandRun{wall: time.Since(begin)}
	if usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		r.peak = usage.Maxrss << 10
		r.cpu = cpuTime(usage)
	}

	after, err := requests(ctx, address)
	if err != nil {
		return r, err
	}

	r.requests = after - before
	r.printed, r.numbers, err = countNumbers(path)
	return r, err
}

// countNumbers reads what the command printed and counts the containers that have a request of CPU and of memory.
func countNumbers(path string) (size int64, numbers int, err error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return 0, 0, err
	}

	var printed struct {
		Workloads []struct {
			Containers []struct {
				CPU, Memory struct {
					Recommended struct{ Request *struct{ Value float64 } }
				}
			}
		}
	}

	if err := json.Unmarshal(raw, &printed); err != nil {
		return 0, 0, fmt.Errorf("what was printed: %w", err)
	}

	for _, w := range printed.Workloads {
		for _, c := range w.Containers {
			if c.CPU.Recommended.Request != nil && c.Memory.Recommended.Request != nil {
				numbers++
			}
		}
	}

	return int64(len(raw)), numbers, nil
}

func requests(ctx context.Context, address string) (int64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address+requestsPath, nil)
	if err != nil {
		return 0, err
	}

	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()

	raw, err := io.ReadAll(io.LimitReader(resp.Body, 64))
	if err != nil {
		return 0, err
	}

	return strconv.ParseInt(string(raw), 10, 64)
}
