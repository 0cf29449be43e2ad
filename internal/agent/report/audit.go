// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"crane.io/crane/internal/agent/spool"
	"crane.io/crane/pkg/qos"
)

const (
	// queueSize bounds the lines that are still to be written, as to a disk that hangs.
	queueSize = 1024
	// rotatedSuffix is the suffix of the file before the present one.
	rotatedSuffix = ".1"
)

// Record is a line of the audit file: an action, with what it was done for and what came of it. Fields may be added.
type Record struct {
	Time   time.Time `json:"time"`
	Node   string    `json:"node"`
	Action Kind      `json:"action"`
	// Outcome is what came of it; Error is what kept it from being done.
	Outcome Outcome `json:"outcome"`
	Error   string  `json:"error,omitempty"`
	// Rule and AvoidanceAction are what it was done for.
	Rule            string `json:"rule,omitempty"`
	AvoidanceAction string `json:"avoidanceAction,omitempty"`
	Namespace       string `json:"namespace,omitempty"`
	Pod             string `json:"pod,omitempty"`
	UID             string `json:"uid,omitempty"`
	Container       string `json:"container,omitempty"`
	// From and To are what was changed; FreesCores and FreesBytes what that takes off the use, negative where it is given back.
	From         string   `json:"from,omitempty"`
	To           string   `json:"to,omitempty"`
	FreesCores   *float64 `json:"freesCores,omitempty"`
	FreesBytes   *float64 `json:"freesBytes,omitempty"`
	GraceSeconds *float64 `json:"graceSeconds,omitempty"`
	// OrderedBy is what the victims of an eviction were ordered by, Uses how much of it this one has: cores, bytes, by second, or a share
	// of time.
	OrderedBy qos.Criterion `json:"orderedBy,omitempty"`
	Usage     *float64      `json:"uses,omitempty"`
	// Value, Threshold and Unit are those of a rule; Gap is how much has to go, in millicores or bytes.
	Value     *float64 `json:"value,omitempty"`
	Threshold *float64 `json:"threshold,omitempty"`
	Unit      string   `json:"unit,omitempty"`
	Gap       float64  `json:"gap,omitempty"`
	Reason    string   `json:"why,omitempty"`
}

// AuditConfig is what an Audit needs.
type AuditConfig struct {
	// Path is the file. When it would grow above MaxBytes it becomes Path.1, in place of the one before: both together take twice as much.
	Path     string
	MaxBytes int64
	Clock    clock.WithTicker
	Log      logr.Logger
	Beat     func(step string)
}

// Audit writes lines of JSON to a file, one for each action. Writing does not wait for the disk: what cannot be written is dropped and
// counted. It is safe for concurrent use.
type Audit struct {
	*spool.Spool

	cfg AuditConfig

	file *os.File // what follows is Run's
	size int64
	// torn tells that the last line is not whole: that of an agent that was killed, or on a disk that was full.
	torn bool
}

// OpenAudit opens the file, or makes it with the directories above. Run writes to it.
func OpenAudit(cfg AuditConfig) (*Audit, error) {
	if err := os.MkdirAll(filepath.Dir(cfg.Path), 0o750); err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	a := &Audit{cfg: cfg}
	a.Spool = spool.New(spool.Config{
		QueueSize: queueSize, Write: a.write, Close: a.close, Clock: cfg.Clock, Log: cfg.Log, Beat: cfg.Beat,
		FailureMessage: "Cannot write to the audit file; what is done goes on, and is in this log",
	})
	if err := a.open(); err != nil {
		return nil, err
	}
	return a, nil
}

// Name is that of its heartbeat.
func (a *Audit) Name() string { return "audit" }

// Write hands a line over.
func (a *Audit) Write(r Record) {
	line, err := json.Marshal(r)
	if err != nil {
		a.CountDropped() // A number that JSON does not know.
		return
	}
	a.Enqueue(append(line, '\n'))
}

func (a *Audit) close() error {
	if a.file == nil {
		return nil
	}
	err := a.file.Close()
	a.file = nil
	return err
}

func (a *Audit) open() error {
	f, err := os.OpenFile(a.cfg.Path, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("not a file")
	}
	if err != nil {
		return errors.Join(fmt.Errorf("audit: %s: %w", a.cfg.Path, err), f.Close())
	}
	torn := false
	if info.Size() > 0 {
		var last [1]byte
		if _, err := f.ReadAt(last[:], info.Size()-1); err != nil && !errors.Is(err, io.EOF) {
			return errors.Join(fmt.Errorf("audit: %w", err), f.Close())
		}
		torn = last[0] != '\n'
	}
	a.file, a.size, a.torn = f, info.Size(), torn
	return nil
}

// write writes one line.
func (a *Audit) write(line []byte) error {
	if a.file != nil && a.size > 0 && a.size+int64(len(line)) > a.cfg.MaxBytes {
		if err := a.rotate(); err != nil {
			return err
		}
	}
	if a.file == nil {
		if err := a.open(); err != nil {
			return err
		}
	}
	if a.torn {
		line = append([]byte{'\n'}, line...)
	}
	n, err := a.file.Write(line)
	a.size += int64(n)
	if n > 0 {
		a.torn = line[n-1] != '\n'
	}
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	return nil
}

// rotate puts the file in the place of the one before. While that cannot be done nothing is written, so that the disk does not fill.
func (a *Audit) rotate() error {
	if err := os.Rename(a.cfg.Path, a.cfg.Path+rotatedSuffix); err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	last := a.file
	a.file = nil
	if err := last.Close(); err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	return a.open()
}
