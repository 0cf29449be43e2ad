// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package playground

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// console prints lines from any goroutine: results to out, progress and errors to err.
type console struct {
	mu       sync.Mutex
	out, err io.Writer
	start    time.Time
}

func newConsole(out, err io.Writer) *console {
	return &console{out: out, err: err, start: time.Now()}
}

// elapsed returns the time since the start of the playground.
func (c *console) elapsed() time.Duration { return time.Since(c.start) }

// progressf prints the progress of a step, prefixed by the time since the start.
func (c *console) progressf(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()

	fmt.Fprintf(c.err, "%6.1fs  %s\n", c.elapsed().Seconds(), fmt.Sprintf(format, args...))
}

// resultf prints a result.
func (c *console) resultf(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()

	fmt.Fprintf(c.out, format+"\n", args...)
}

// Write implements io.Writer: it prints each line like progressf.
func (c *console) Write(p []byte) (int, error) {
	for line := range strings.Lines(string(p)) {
		c.progressf("%s", strings.TrimRight(line, "\n"))
	}

	return len(p), nil
}

// print calls write with the result writer, so that no other output interleaves.
func (c *console) print(write func(io.Writer)) {
	c.mu.Lock()
	defer c.mu.Unlock()

	write(c.out)
}
