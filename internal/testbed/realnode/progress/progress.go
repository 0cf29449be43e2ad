// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package progress reads what the first process of a node reports, whichever way the reports come.
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

// Reader reads reports, one a line.
type Reader struct {
	file  *os.File
	lines *bufio.Reader
	last  nodespec.Report
	tell  func(nodespec.Report)
}

// NewReader reads from a pipe; tell, if not nil, gets each report.
func NewReader(pipe *os.File, tell func(nodespec.Report)) *Reader {
	return &Reader{file: pipe, lines: bufio.NewReader(pipe), tell: tell}
}

// Await reads until step is done. It is an error if the node reports one, or ends, or ctx does.
func (r *Reader) Await(ctx context.Context, step string) error {
	stop := context.AfterFunc(ctx, func() { _ = r.file.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	for {
		line, err := r.lines.ReadBytes('\n')
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("step %q is not done, the last was %q: %w", step, r.last.Step, context.Cause(ctx))
		case errors.Is(err, io.EOF):
			return fmt.Errorf("ended after step %q", r.last.Step)
		case err != nil:
			return fmt.Errorf("read reports: %w", err)
		}
		if err := json.Unmarshal(line, &r.last); err != nil {
			return fmt.Errorf("read report %q: %w", line, err)
		}
		if r.tell != nil {
			r.tell(r.last)
		}
		if r.last.Error != "" {
			return fmt.Errorf("step %s: %s", r.last.Step, r.last.Error)
		}
		if r.last.Step == step {
			return nil
		}
	}
}
