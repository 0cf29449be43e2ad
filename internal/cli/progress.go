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

// progress writes one line that it keeps writing over, where the writer is a terminal; elsewhere it is silent. The
// goroutine behind it ends with stop.
type progress struct {
	out   io.Writer
	stats func() metrics.Stats
	began time.Time
	done  chan struct{}
	gone  chan struct{}

	mu    sync.Mutex
	text  string
	width int
}

// newProgress returns a progress that stats fills with numbers.
func newProgress(out io.Writer, stats func() metrics.Stats) *progress {
	p := &progress{out: out, stats: stats, began: time.Now(), done: make(chan struct{}), gone: make(chan struct{})}
	if !isTerminal(out) {
		close(p.gone)
		return p
	}
	go p.loop()
	return p
}

func (p *progress) loop() {
	defer close(p.gone)
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
	line := fmt.Sprintf("%s: %d queries, %d samples, %s", p.text, s.Queries, s.Samples, time.Since(p.began).Round(time.Second))
	p.erase()
	if columns := terminalWidth(p.out); columns > 0 && len(line) >= columns {
		line = line[:columns-1] // A line that goes on below cannot be written over.
	}
	fmt.Fprint(p.out, line)
	p.width = len(line)
}

// erase must be called with the lock held.
func (p *progress) erase() {
	if p.width > 0 {
		fmt.Fprint(p.out, "\r", strings.Repeat(" ", p.width), "\r")
		p.width = 0
	}
}

// phase says what is being done.
func (p *progress) phase(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.text = text
}

// note writes a line that stays.
func (p *progress) note(out io.Writer, line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.erase()
	fmt.Fprintln(out, line)
}

// stop erases the line and waits until nothing more is written.
func (p *progress) stop() {
	close(p.done)
	<-p.gone
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// terminalWidth is the width of a terminal in columns, 0 where w is none.
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
