// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package progress reads the reports of a node's first process from a pipe.
package progress

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"crane.io/crane/internal/testbed/realnode/nodespec"
)

// Reader reads reports, one per line.
type Reader struct {
	file   *os.File
	lines  *bufio.Reader
	last   nodespec.Report
	report func(nodespec.Report)
}

// NewReader returns a reader of a pipe; report, if not nil, is called for each report.
func NewReader(pipe *os.File, report func(nodespec.Report)) *Reader {
	return &Reader{file: pipe, lines: bufio.NewReader(pipe), report: report}
}

// Await reads until step is done. It returns an error if the node reports one, the pipe ends, or ctx ends.
func (r *Reader) Await(ctx context.Context, step string) error {
	stop := context.AfterFunc(ctx, func() { _ = r.file.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()

	// The deadline interrupts a read that would otherwise block until the node reports again.
	for {
		line, err := r.lines.ReadBytes('\n')
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("step %q is not done, the last was %q: %w", step, r.last.Step, context.Cause(ctx))
		case errors.Is(err, io.EOF):
			return fmt.Errorf("ended after step %q", r.last.Step)
		case err != nil:
			return fmt.Errorf("reading reports: %w", err)
		}

		if err := json.Unmarshal(line, &r.last); err != nil {
			return fmt.Errorf("reading report %q: %w", line, err)
		}

		if r.report != nil {
			r.report(r.last)
		}

		if r.last.Error != "" {
			return fmt.Errorf("step %s: %s", r.last.Step, r.last.Error)
		}

		if r.last.Step == step {
			return nil
		}
	}
}
