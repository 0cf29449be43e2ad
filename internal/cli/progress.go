// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"crane.io/crane/internal/metrics"
)

const progressInterval = 200 * time.Millisecond

// progress rewrites one status line if the writer is a terminal; otherwise it prints no status. Its goroutine ends
// with stop.
type progress struct {
	out       io.Writer
	stats     func() metrics.Stats
	startTime time.Time
	done      chan struct{}
	stopped   chan struct{}

	mu    sync.Mutex
	text  string
	width int
}

// newProgress returns a progress that prints the counters of stats.
func newProgress(out io.Writer, stats func() metrics.Stats) *progress {
	p := &progress{out: out, stats: stats, startTime: time.Now(), done: make(chan struct{}), stopped: make(chan struct{})}
	if !isTerminal(out) {
		close(p.stopped)
		return p
	}
	go p.loop()
	return p
}

func (p *progress) loop() {
	defer close(p.stopped)
	tick := time.NewTicker(progressInterval)
	defer tick.Stop()
	for {
		select {
		case <-p.done:
			p.mu.Lock()
			p.erase()
			p.mu.Unlock()
			return
		case <-tick.C:
			p.draw()
		}
	}
}

func (p *progress) draw() {
	s := p.stats()
	p.mu.Lock()
	defer p.mu.Unlock()
	line := fmt.Sprintf("%s: %d queries, %d samples, %s", p.text, s.Queries, s.Samples, time.Since(p.startTime).Round(time.Second))
	p.erase()
	if columns := terminalWidth(p.out); columns > 0 && len(line) >= columns {
		line = line[:columns-1] // A wrapped line cannot be erased.
	}
	fmt.Fprint(p.out, line)
	p.width = len(line)
}

// erase clears the status line. The caller holds mu.
func (p *progress) erase() {
	if p.width > 0 {
		fmt.Fprint(p.out, "\r", strings.Repeat(" ", p.width), "\r")
		p.width = 0
	}
}

// setPhase sets the text of the status line.
func (p *progress) setPhase(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.text = text
}

// note prints a permanent line.
func (p *progress) note(out io.Writer, line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.erase()
	fmt.Fprintln(out, line)
}

// stop clears the status line and waits for the goroutine to end.
func (p *progress) stop() {
	close(p.done)
	<-p.stopped
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// terminalWidth returns the width of the terminal in columns, or 0 if w is not a terminal.
func terminalWidth(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok {
		return 0
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return width
}
