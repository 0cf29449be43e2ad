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
	// queueSize bounds the snapshots waiting for a slow disk.
	queueSize = 64
	// stateInterval is the number of snapshots after which an unchanged state is written again, because rotation removes earlier ones.
	stateInterval = 60
	// rotatedSuffix is the suffix of the previous file.
	rotatedSuffix = ".1"
)

// Config configures a Recorder.
type Config struct {
	// Path is the file. At MaxBytes, and at the start of an agent, it is renamed to Path.1 and replaces the previous one.
	Path     string
	MaxBytes int64
	Clock    clock.WithTicker
	Log      logr.Logger
	Beat     func(step string)
}

// Recorder writes snapshots without waiting for the disk: it drops and counts what cannot be written.
type Recorder struct {
	*spool.Spool

	cfg Config

	lastState  *cluster.State // last written state; the following fields belong to Record
	sinceState int            // snapshots since then
	line       bytes.Buffer
	zip        *gzip.Writer

	file *os.File // the following fields belong to Run
	size int64
}

// New starts a file.
func New(cfg Config) (*Recorder, error) {
	r := &Recorder{cfg: cfg}
	r.Spool = spool.New(spool.Config{
		QueueSize: queueSize, Write: r.write, Close: r.close, FailureMessage: "failed to write the recording", Clock: cfg.Clock, Log: cfg.Log, Beat: cfg.Beat,
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

// Name implements the agent's Manager.
func (*Recorder) Name() string { return "record" }

// Record queues a snapshot with the state of the cluster, both encoded before it returns.
func (r *Recorder) Record(seen *observe.Snapshot, said *cluster.State) {
	e := Entry{Snapshot: seen}
	if r.sinceState++; said != r.lastState || r.sinceState >= stateInterval {
		e.Cluster = withoutSecrets(said)
	}
	r.line.Reset()
	r.zip.Reset(&r.line)
	err := json.NewEncoder(r.zip).Encode(e)
	if err = errors.Join(err, r.zip.Close()); err != nil {
		r.CountDropped() // A number without JSON representation.
		return
	}
	if r.Enqueue(bytes.Clone(r.line.Bytes())) && e.Cluster != nil {
		r.lastState, r.sinceState = said, 0
	}
}

// write writes a line and removes a partial one after a failure.
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

// beginFile rotates the file. Only its owner may read the new one, since it names pods and their behavior.
func (r *Recorder) beginFile() error {
	if err := r.close(); err != nil {
		r.cfg.Log.Info("failed to close the recording", "error", err.Error())
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
