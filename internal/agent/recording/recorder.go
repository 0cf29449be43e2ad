// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package recording

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"crane.io/crane/internal/agent/cluster"
	"crane.io/crane/internal/agent/observe"
	"crane.io/crane/internal/agent/spool"
)

const (
	// queueSize bounds the looks that are still to be written, as to a disk that hangs.
	queueSize = 64
	// stateInterval is after how many looks the state of the cluster is written though it has not changed: a file that was put away takes the
	// states before it along.
	stateInterval = 60
	// rotatedSuffix is the suffix of the file before the present one.
	rotatedSuffix = ".1"
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
	*spool.Spool

	cfg Config

	lastState  *cluster.State // last; this and what follows belong to Look
	sinceState int            // looks since then
	line       bytes.Buffer
	zip        *gzip.Writer

	file *os.File // this and what follows belong to Run
	size int64
}

// New begins a file.
func New(cfg Config) (*Recorder, error) {
	r := &Recorder{cfg: cfg}
	r.Spool = spool.New(spool.Config{
		QueueSize: queueSize, Write: r.write, Close: r.close, FailureMessage: "Cannot record what is seen", Clock: cfg.Clock, Log: cfg.Log, Beat: cfg.Beat,
	})
	r.zip = gzip.NewWriter(&r.line)
	if err := os.MkdirAll(filepath.Dir(cfg.Path), 0o750); err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	if err := r.beginFile(); err != nil {
		return nil, err
	}
	return r, nil
}

// Name is that of its heartbeat.
func (*Recorder) Name() string { return "record" }

// Record hands over what was seen, and what the cluster said then. Both are read before it returns.
func (r *Recorder) Record(seen *observe.Snapshot, said *cluster.State) {
	e := Entry{Snapshot: seen}
	if r.sinceState++; said != r.lastState || r.sinceState >= stateInterval {
		e.Cluster = withoutSecrets(said)
	}
	r.line.Reset()
	r.zip.Reset(&r.line)
	err := json.NewEncoder(r.zip).Encode(e)
	if err = errors.Join(err, r.zip.Close()); err != nil {
		r.CountDropped() // A number that JSON does not know.
		return
	}
	if r.Enqueue(bytes.Clone(r.line.Bytes())) && e.Cluster != nil {
		r.lastState, r.sinceState = said, 0
	}
}

// write writes a line. What of one a full disk has taken is cut off again.
func (r *Recorder) write(line []byte) error {
	if r.file == nil || r.size > 0 && r.size+int64(len(line)) > r.cfg.MaxBytes {
		if err := r.beginFile(); err != nil {
			return err
		}
	}
	if _, err := r.file.Write(line); err != nil {
		return errors.Join(fmt.Errorf("record: %w", err), r.file.Truncate(r.size))
	}
	r.size += int64(len(line))
	return nil
}

// beginFile puts the file away and begins another. Nobody but the owner may read it: it names pods and what they do.
func (r *Recorder) beginFile() error {
	if err := r.close(); err != nil {
		r.cfg.Log.Info("Cannot close a recording", "error", err.Error())
	}
	if err := os.Rename(r.cfg.Path, r.cfg.Path+rotatedSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("record: %w", err)
	}
	file, err := os.OpenFile(r.cfg.Path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("record: %w", err)
	}
	r.file, r.size = file, 0
	return nil
}

func (r *Recorder) close() error {
	if r.file == nil {
		return nil
	}
	err := r.file.Close()
	r.file = nil
	return err
}
