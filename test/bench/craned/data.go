// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
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
	// description is what it is and how it was made.
	description string
}

// openData writes the history with the generator of the history benchmark, unless one exists that reaches to now, and serves
// it.
func openData(ctx context.Context, o options, scratch string) (*data, error) {
	tool := filepath.Join(scratch, "history")
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", tool, "./test/bench/history").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("building the generator: %w\n%s", err, out)
	}

	end, reused := keptData(o)
	if !reused {
		end = time.Now().UTC().Truncate(time.Hour).Add(dataAhead)
	}

	// The shape has to be the same for writing and serving, as it names the directory.
	args := func(role string) []string {
		return []string{
			"-role", role, "-dir", o.dir, "-containers", strconv.Itoa(o.workloads * o.podsPerWorkload),
			"-namespaces", strconv.Itoa(o.namespaces), "-days", strconv.Itoa(o.days + int(dataAhead/(24*time.Hour))), "-scrape", o.scrape.String(),
			"-pods-per-workload", strconv.Itoa(o.podsPerWorkload), "-end", strconv.FormatInt(end.Unix(), 10),
		}
	}

	d := &data{description: fmt.Sprintf("%d containers, %d days at %v, of an earlier run", o.workloads*o.podsPerWorkload, o.days, o.scrape)}
	if !reused {
		if err := d.write(ctx, o, end, exec.CommandContext(ctx, tool, args("build")...)); err != nil {
			return nil, err
		}
	}

	logf("data set: %s", d.description)
	return d, d.serve(exec.CommandContext(ctx, tool, args("serve")...))
}

// write writes the history, and beside it a file with its end.
func (d *data) write(ctx context.Context, o options, end time.Time, build *exec.Cmd) error {
	began := time.Now()
	mark := filepath.Join(o.dir, o.markName())
	if err := os.Remove(mark); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}

	ended := make(chan error, 1)
	build.Stderr = os.Stderr
	if err := build.Start(); err != nil {
		return fmt.Errorf("writing the history: %w", err)
	}

	go func() { ended <- build.Wait() }()
	err := waitWithProgress(ctx, ended, func() { logf("writing the history, for %v so far", time.Since(began).Round(time.Second)) })
	if err != nil {
		return fmt.Errorf("writing the history: %w", err)
	}

	d.description = fmt.Sprintf("%d containers, %d days at %v, written in %v", o.workloads*o.podsPerWorkload, o.days, o.scrape, time.Since(began).Round(time.Second))
	return os.WriteFile(mark, []byte(end.Format(time.RFC3339)), 0o600)
}

// waitWithProgress waits for the end of a command and reports progress periodically.
func waitWithProgress(ctx context.Context, ended <-chan error, tell func()) error {
	tick := time.NewTicker(progressInterval)
	defer tick.Stop()

	for {
		select {
		case err := <-ended:
			return err
		case <-ctx.Done():
			return errors.Join(ctx.Err(), <-ended)
		case <-tick.C:
			tell()
		}
	}
}

func (d *data) serve(server *exec.Cmd) (err error) {
	d.cmd = server
	d.cmd.Stderr = os.Stderr
	if d.stdin, err = d.cmd.StdinPipe(); err != nil {
		return err
	}

	stdout, err := d.cmd.StdoutPipe()
	if err != nil {
		return err
	}

	if err := d.cmd.Start(); err != nil {
		return err
	}

	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		return errors.Join(fmt.Errorf("the server said no address: %w", err), d.close())
	}

	d.url = strings.TrimSpace(line)
	return nil
}

// dataAhead is how far a history reaches beyond the time at which it is written: craned has a clock of its own, and for so
// long the same history serves one run after the other.
const dataAhead = 24 * time.Hour

// markName returns the name of the file with the end of a history of this size.
func (o options) markName() string {
	return fmt.Sprintf("end-%d-%d-%d-%d-%v", o.workloads, o.podsPerWorkload, o.namespaces, o.days, o.scrape)
}

// keptData is when the history that is there ends; ok is false where there is none, or it has ended.
func keptData(o options) (end time.Time, ok bool) {
	raw, err := os.ReadFile(filepath.Join(o.dir, o.markName()))
	if err != nil {
		return time.Time{}, false
	}

	end, err = time.Parse(time.RFC3339, string(raw))
	return end, err == nil && (o.keep || end.After(time.Now().Add(2*o.bound)))
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
