// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package progressline prints what a command that reads metrics is doing, on a status line of the terminal.
package progressline

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

const (
	progressInterval = 200 * time.Millisecond
	// plainDelay is the time until the first line without a terminal, plainInterval the time between later ones.
	plainDelay    = 2 * time.Second
	plainInterval = 10 * time.Second
)

// Line prints what a command is doing and for how long: on a terminal it rewrites one status line, otherwise it prints
// lines. Its goroutine ends with stop.
type Line struct {
	out       io.Writer
	stats     func() metrics.Stats // may be nil
	startTime time.Time
	done      chan struct{}
	stopped   chan struct{}
	Stop      func() // clears the status line and waits for the goroutine to end; may be called again

	mu    sync.Mutex
	text  string
	width int
}

// New returns a progress in its first phase that prints the counters of stats, if not nil.
func New(out io.Writer, phase string, stats func() metrics.Stats) *Line {
	p := &Line{
		out:       out,
		stats:     stats,
		startTime: time.Now(),
		done:      make(chan struct{}),
		stopped:   make(chan struct{}),
		text:      phase,
	}

	p.Stop = sync.OnceFunc(func() {
		close(p.done)
		<-p.stopped
	})

	switch {
	case out == io.Discard: // The dashboard computes for a request, which shows no progress.
		close(p.stopped)
	case IsTerminal(out):
		go p.loop(progressInterval, progressInterval, p.draw)
	default:
		go p.loop(plainDelay, plainInterval, p.printLine)
	}

	return p
}

// loop calls show after delay and then every interval.
func (p *Line) loop(delay, interval time.Duration, show func()) {
	defer close(p.stopped)

	timer := time.NewTimer(delay)
	defer timer.Stop()

	for {
		select {
		case <-p.done:
			p.mu.Lock()
			p.erase()
			p.mu.Unlock()

			return

		case <-timer.C:
			show()
			timer.Reset(interval)
		}
	}
}

// status returns the phase, the counters and the time so far. The caller holds mu.
func (p *Line) status() string {
	elapsed := time.Since(p.startTime).Round(time.Second)
	if p.stats == nil {
		return fmt.Sprintf("%s: %s", p.text, elapsed)
	}

	s := p.stats()
	return fmt.Sprintf("%s: %d queries, %d samples, %s", p.text, s.Queries, s.Samples, elapsed)
}

func (p *Line) printLine() {
	p.mu.Lock()
	defer p.mu.Unlock()

	fmt.Fprintln(p.out, p.status())
}

func (p *Line) draw() {
	p.mu.Lock()
	defer p.mu.Unlock()

	line := p.status()
	p.erase()

	if columns := TerminalWidth(p.out); columns > 0 && len(line) >= columns {
		line = line[:columns-1] // A wrapped line cannot be erased.
	}

	fmt.Fprint(p.out, line)
	p.width = len(line)
}

// erase clears the status line. The caller holds mu.
func (p *Line) erase() {
	if p.width > 0 {
		fmt.Fprint(p.out, "\r", strings.Repeat(" ", p.width), "\r")
		p.width = 0
	}
}

// SetPhase sets what the command is doing.
func (p *Line) SetPhase(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()

	p.text = text
}

// Write prints permanent lines, before which the status line is cleared.
func (p *Line) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()

	p.erase()
	return p.out.Write(b)
}

func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// TerminalWidth returns the width of the terminal in columns, or 0 if w is not a terminal.
func TerminalWidth(w io.Writer) int {
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
