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

// console prints what happens, one line at a time, from any goroutine: results on out, progress and trouble on err.
type console struct {
	mu       sync.Mutex
	out, err io.Writer
	began    time.Time
}

func newConsole(out, err io.Writer) *console {
	return &console{out: out, err: err, began: time.Now()}
}

// elapsed is the time since the playground was started.
func (c *console) elapsed() time.Duration { return time.Since(c.began) }

// progressf tells a step that is done or begun, with the time since the start.
func (c *console) progressf(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fmt.Fprintf(c.err, "%6.1fs  %s\n", c.elapsed().Seconds(), fmt.Sprintf(format, args...))
}

// resultf prints what the user asked for.
func (c *console) resultf(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fmt.Fprintf(c.out, format+"\n", args...)
}

// Write lets others print progress: whole lines, each marked like progressf's.
func (c *console) Write(p []byte) (int, error) {
	for line := range strings.Lines(string(p)) {
		c.progressf("%s", strings.TrimRight(line, "\n"))
	}
	return len(p), nil
}

// print runs a function with the result writer, so that nothing comes between its lines.
func (c *console) print(write func(io.Writer)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	write(c.out)
}
