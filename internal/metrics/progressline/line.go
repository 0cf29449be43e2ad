// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package progressline prints what a command that reads metrics is doing, on a status line of the terminal.
package progressline

import (
	"fmt"
	"io"
	"sync"
	"time"

	"golang.org/x/term"

	"crane.io/crane/internal/component/termtext"
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
func (l *Line) loop(delay, interval time.Duration, show func()) {
	defer close(l.stopped)

	timer := time.NewTimer(delay)
	defer timer.Stop()

	for {
		select {
		case <-l.done:
			l.mu.Lock()
			l.erase()
			l.mu.Unlock()

			return

		case <-timer.C:
			show()
			timer.Reset(interval)
		}
	}
}

// status returns the phase, the counters and the time so far. The caller holds mu.
func (l *Line) status() string {
	elapsed := time.Since(l.startTime).Round(time.Second)
	if l.stats == nil {
		return fmt.Sprintf("%s: %s", l.text, elapsed)
	}

	s := l.stats()
	return fmt.Sprintf("%s: %d queries, %d samples, %s", l.text, s.Queries, s.Samples, elapsed)
}

func (l *Line) printLine() {
	l.mu.Lock()
	defer l.mu.Unlock()

	termtext.Fprintln(l.out, l.status())
}

func (l *Line) draw() {
	l.mu.Lock()
	defer l.mu.Unlock()

	line := termtext.Line(l.status())
	l.erase()

	if columns := TerminalWidth(l.out); columns > 0 && len(line) >= columns {
		line = line[:columns-1] // A wrapped line cannot be erased.
	}

	fmt.Fprint(l.out, line)
	l.width = len(line)
}

// erase clears the status line. The caller holds mu.
func (l *Line) erase() {
	if l.width > 0 {
		termtext.EraseLine(l.out, l.width)
		l.width = 0
	}
}

// SetPhase sets what the command is doing.
func (l *Line) SetPhase(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()

	l.text = text
}

// Write prints permanent lines, before which the status line is cleared.
func (l *Line) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()

	l.erase()
	return l.out.Write(b)
}

// file is an os.File, or a writer to one.
type file interface{ Fd() uintptr }

// IsTerminal reports whether w is a terminal.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(file)
	return ok && term.IsTerminal(int(f.Fd()))
}

// TerminalWidth returns the width of the terminal in columns, or 0 if w is not a terminal.
func TerminalWidth(w io.Writer) int {
	f, ok := w.(file)
	if !ok {
		return 0
	}

	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}

	return width
}
