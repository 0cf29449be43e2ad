// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"bytes"
	"fmt"
	"os"
	"sync"
)

// maxLineBytes bounds one kept line; a longer one is truncated.
const maxLineBytes = 4 << 10

// output receives a process's output: all of it to a bounded file, the last lines to a ring. Writes never fail, so that
// a full disk does not stop the process.
type output struct {
	path  string
	limit int64

	mu    sync.Mutex
	file  *os.File
	size  int64
	ring  []string
	next  int
	line  []byte
	total int
}

func newOutput(path string, lines int) (*output, error) {
	o := &output{path: path, limit: maxLogBytes, ring: make([]string, lines)}
	if path == "" {
		return o, nil
	}

	if err := o.open(); err != nil {
		return nil, err
	}

	return o, nil
}

func (o *output) open() error {
	f, err := os.OpenFile(o.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("opening log file: %w", err)
	}

	o.size = 0
	if info, err := f.Stat(); err == nil {
		o.size = info.Size()
	}

	o.file = f
	return nil
}

// Write implements io.Writer and always reports success.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()

	o.keepLines(p)
	if o.file == nil {
		return len(p), nil
	}

	if o.size+int64(len(p)) > o.limit {
		o.rotate()
	}

	if o.file != nil {
		n, _ := o.file.Write(p)
		o.size += int64(n)
	}

	return len(p), nil
}

func (o *output) rotate() {
	_ = o.file.Close()
	o.file = nil

	// If the old file cannot be renamed, logging continues in it.
	_ = os.Rename(o.path, o.path+".1")
	_ = o.open()
}

func (o *output) keepLines(p []byte) {
	for len(p) > 0 {
		end := bytes.IndexByte(p, '\n')
		part := p
		if end >= 0 {
			part = p[:end]
		}

		o.line = append(o.line, part[:min(len(part), maxLineBytes-len(o.line))]...)
		if end < 0 {
			return
		}

		o.push(string(o.line))
		o.line = o.line[:0]
		p = p[end+1:]
	}
}

func (o *output) push(line string) {
	o.ring[o.next] = line
	o.next = (o.next + 1) % len(o.ring)
	o.total++
}

// lastLines returns the kept lines, oldest first, an unfinished one last.
func (o *output) lastLines() []string {
	o.mu.Lock()
	defer o.mu.Unlock()

	n := min(o.total, len(o.ring))
	lines := make([]string, 0, n+1)
	for i := range n {
		lines = append(lines, o.ring[(o.next-n+i+len(o.ring))%len(o.ring)])
	}

	if len(o.line) > 0 {
		lines = append(lines, string(o.line))
	}

	return lines
}

func (o *output) close() {
	o.mu.Lock()
	defer o.mu.Unlock()

	if o.file != nil {
		_ = o.file.Close()
		o.file = nil
	}
}
