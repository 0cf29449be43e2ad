// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// data is a Prometheus with the history of the workloads, in a process of its own.
type data struct {
	url   string
	cmd   *exec.Cmd
	stdin io.Closer
}

// openData writes the history unless it is there, with the generator of the bench of history, and serves it.
func openData(ctx context.Context, o options, scratch string) (*data, error) {
	tool := filepath.Join(scratch, "history")
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", tool, "./test/bench/history").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("building the generator: %w\n%s", err, out)
	}
	end, err := endOfData(o)
	if err != nil {
		return nil, err
	}
	args := func(role string) []string {
		return []string{
			"-role", role, "-dir", o.dir, "-containers", strconv.Itoa(o.workloads * o.podsPerWorkload),
			"-namespaces", strconv.Itoa(o.namespaces), "-days", strconv.Itoa(o.days), "-scrape", o.scrape.String(),
			"-pods-per-workload", strconv.Itoa(o.podsPerWorkload), "-end", strconv.FormatInt(end.Unix(), 10),
		}
	}
	if !o.keep {
		began := time.Now()
		build := exec.CommandContext(ctx, tool, args("build")...)
		build.Stderr = os.Stderr
		if err := build.Run(); err != nil {
			return nil, fmt.Errorf("writing the history: %w", err)
		}
		fmt.Printf("data set: %d containers, %d days at %v, written in %v\n", o.workloads*o.podsPerWorkload, o.days, o.scrape, time.Since(began).Round(time.Second))
		if err := os.WriteFile(filepath.Join(o.dir, endFile), []byte(end.Format(time.RFC3339)), 0o600); err != nil {
			return nil, err
		}
	}
	d := &data{cmd: exec.CommandContext(ctx, tool, args("serve")...)}
	d.cmd.Stderr = os.Stderr
	if d.stdin, err = d.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := d.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := d.cmd.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		return nil, errors.Join(fmt.Errorf("the server said no address: %w", err), d.close())
	}
	d.url = strings.TrimSpace(line)
	return d, nil
}

// endFile says when a data set ends.
const endFile = "end"

// endOfData is when the history ends: some hours from now, as craned has a clock of its own, or when the one that is there
// does.
func endOfData(o options) (time.Time, error) {
	if !o.keep {
		return time.Now().UTC().Truncate(time.Hour).Add(4 * time.Hour), nil
	}
	raw, err := os.ReadFile(filepath.Join(o.dir, endFile))
	if err != nil {
		return time.Time{}, fmt.Errorf("there is no data set to keep: %w", err)
	}
	return time.Parse(time.RFC3339, string(raw))
}

// requests is how many the server has had.
func (d *data) requests(ctx context.Context) (int64, error) {
	body, err := get(ctx, d.url+"/bench/requests")
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(body), 10, 64)
}

func (d *data) close() error {
	return errors.Join(d.stdin.Close(), d.cmd.Wait())
}

func get(ctx context.Context, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: status %d: %s", url, resp.StatusCode, body)
	}
	return string(body), err
}
