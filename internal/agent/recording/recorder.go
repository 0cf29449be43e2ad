// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package recording

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"crane.io/crane/internal/agent/cluster"
	"crane.io/crane/internal/agent/observe"
)

const (
	// waiting bounds the looks that are still to be written, as to a disk that hangs.
	waiting = 64
	// again is after how many looks the state of the cluster is written though it has not changed: a file that was put away takes the
	// states before it along.
	again = 60
	// kept is the suffix of the file before the present one.
	kept = ".1"
	// idle is how often a recorder that has nothing to write shows that it is there.
	idle = 10 * time.Second
)

// Config is what a Recorder needs.
type Config struct {
	// Path is the file. When it has MaxBytes it becomes Path.1, in place of the one before, and so does what an agent before has left.
	Path     string
	MaxBytes int64
	Clock    clock.WithTicker
	Log      logr.Logger
	Beat     func(step string)
}

// Recorder writes what is seen. Looks do not wait for the disk: what cannot be written is dropped and counted.
type Recorder struct {
	cfg     Config
	lines   chan []byte
	dropped atomic.Int64

	told  *cluster.State // last; this and what follows belong to Look
	since int            // looks since then
	line  bytes.Buffer
	zip   *gzip.Writer

	file *os.File // this and what follows belong to Run
	size int64
}

// New begins a file.
func New(cfg Config) (*Recorder, error) {
	r := &Recorder{cfg: cfg, lines: make(chan []byte, waiting)}
	r.zip = gzip.NewWriter(&r.line)
	if err := os.MkdirAll(filepath.Dir(cfg.Path), 0o750); err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	if err := r.begin(); err != nil {
		return nil, err
	}
	return r, nil
}

// Name is that of its heartbeat.
func (*Recorder) Name() string { return "record" }

// Look hands over what was seen, and what the cluster said then. Both are read before it returns.
func (r *Recorder) Look(seen *observe.Snapshot, said *cluster.State) {
	e := Entry{Look: seen}
	if r.since++; said != r.told || r.since >= again {
		e.Cluster = slim(said)
	}
	r.line.Reset()
	r.zip.Reset(&r.line)
	err := json.NewEncoder(r.zip).Encode(e)
	if err = errors.Join(err, r.zip.Close()); err != nil {
		r.dropped.Add(1) // A number that JSON does not know.
		return
	}
	select {
	case r.lines <- bytes.Clone(r.line.Bytes()):
		if e.Cluster != nil {
			r.told, r.since = said, 0
		}
	default:
		r.dropped.Add(1)
	}
}

// Dropped is how many looks were not written.
func (r *Recorder) Dropped() int64 { return r.dropped.Load() }

// Run writes until ctx ends, and then what still waits.
func (r *Recorder) Run(ctx context.Context) error {
	ticker := r.cfg.Clock.NewTicker(idle)
	defer ticker.Stop()
	told := ""
	for {
		r.cfg.Beat("write")
		select {
		case <-ctx.Done():
			return r.end()
		case <-ticker.C():
		case line := <-r.lines:
			err := r.put(line)
			if err == nil {
				told = ""
				continue
			}
			r.dropped.Add(1)
			if told != err.Error() {
				told = err.Error()
				r.cfg.Log.Info("Cannot record what is seen", "error", told)
			}
		}
	}
}

func (r *Recorder) end() error {
	var failed error
	for {
		select {
		case line := <-r.lines:
			if err := r.put(line); err != nil {
				r.dropped.Add(1)
				failed = err // The last says enough.
			}
		default:
			if r.file != nil {
				failed = errors.Join(failed, r.file.Close())
			}
			return failed
		}
	}
}

// put writes a line. What of one a full disk has taken is cut off again.
func (r *Recorder) put(line []byte) error {
	if r.file == nil || r.size > 0 && r.size+int64(len(line)) > r.cfg.MaxBytes {
		if err := r.begin(); err != nil {
			return err
		}
	}
	if _, err := r.file.Write(line); err != nil {
		return errors.Join(fmt.Errorf("record: %w", err), r.file.Truncate(r.size))
	}
	r.size += int64(len(line))
	return nil
}

// begin puts the file away and begins another. Nobody but the owner may read it: it names pods and what they do.
func (r *Recorder) begin() error {
	if r.file != nil {
		if err := r.file.Close(); err != nil {
			r.cfg.Log.Info("Cannot close a recording", "error", err.Error())
		}
		r.file = nil
	}
	if err := os.Rename(r.cfg.Path, r.cfg.Path+kept); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("record: %w", err)
	}
	file, err := os.OpenFile(r.cfg.Path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("record: %w", err)
	}
	r.file, r.size = file, 0
	return nil
}
