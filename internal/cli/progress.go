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

const (
	progressInterval = 200 * time.Millisecond
	// plainDelay is the time until the first line without a terminal, plainInterval the time between later ones.
	plainDelay    = 2 * time.Second
	plainInterval = 10 * time.Second
)

// progress prints what a command is doing and for how long: on a terminal it rewrites one status line, otherwise it prints
// lines. Its goroutine ends with stop.
type progress struct {
	out       io.Writer
	stats     func() metrics.Stats // may be nil
	startTime time.Time
	done      chan struct{}
	stopped   chan struct{}
	stop      func() // clears the status line and waits for the goroutine to end; may be called again

	mu    sync.Mutex
	text  string
	width int
}

// newProgress returns a progress in its first phase that prints the counters of stats, if not nil.
func newProgress(out io.Writer, phase string, stats func() metrics.Stats) *progress {
	p := &progress{
		out:       out,
		stats:     stats,
		startTime: time.Now(),
		done:      make(chan struct{}),
		stopped:   make(chan struct{}),
		text:      phase,
	}

	p.stop = sync.OnceFunc(func() {
		close(p.done)
		<-p.stopped
	})

	switch {
	case out == io.Discard: // The dashboard computes for a request, which shows no progress.
		close(p.stopped)
	case isTerminal(out):
		go p.loop(progressInterval, progressInterval, p.draw)
	default:
		go p.loop(plainDelay, plainInterval, p.printLine)
	}

	return p
}

// loop calls show after delay and then every interval.
func (p *progress) loop(delay, interval time.Duration, show func()) {
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
func (p *progress) status() string {
	elapsed := time.Since(p.startTime).Round(time.Second)
	if p.stats == nil {
		return fmt.Sprintf("%s: %s", p.text, elapsed)
	}

	s := p.stats()
	return fmt.Sprintf("%s: %d queries, %d samples, %s", p.text, s.Queries, s.Samples, elapsed)
}

func (p *progress) printLine() {
	p.mu.Lock()
	defer p.mu.Unlock()

	fmt.Fprintln(p.out, p.status())
}

func (p *progress) draw() {
	p.mu.Lock()
	defer p.mu.Unlock()

	line := p.status()
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

// setPhase sets what the command is doing.
func (p *progress) setPhase(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()

	p.text = text
}

// Write prints permanent lines, before which the status line is cleared.
func (p *progress) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()

	p.erase()
	return p.out.Write(b)
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
