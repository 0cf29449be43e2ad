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
	// queueSize bounds the lines waiting for a slow disk.
	queueSize = 1024
	// rotatedSuffix is the suffix of the previous file.
	rotatedSuffix = ".1"
)

// Record is a line of the audit file: an action with its cause and outcome. Fields may be added.
type Record struct {
	Time   time.Time `json:"time"`
	Node   string    `json:"node"`
	Action Kind      `json:"action"`
	// Outcome is the result, Error the cause of a failure.
	Outcome Outcome `json:"outcome"`
	Error   string  `json:"error,omitempty"`
	// Rule and AvoidanceAction are the cause.
	Rule            string `json:"rule,omitempty"`
	AvoidanceAction string `json:"avoidanceAction,omitempty"`
	Namespace       string `json:"namespace,omitempty"`
	Pod             string `json:"pod,omitempty"`
	UID             string `json:"uid,omitempty"`
	Container       string `json:"container,omitempty"`
	// From and To are the old and new value; FreesCores and FreesBytes the reduction of use, negative when restored.
	From         string   `json:"from,omitempty"`
	To           string   `json:"to,omitempty"`
	FreesCores   *float64 `json:"freesCores,omitempty"`
	FreesBytes   *float64 `json:"freesBytes,omitempty"`
	GraceSeconds *float64 `json:"graceSeconds,omitempty"`
	// OrderedBy is the order of an eviction's victims, Usage the victim's use in it: cores, bytes, per second or a share of time.
	OrderedBy qos.Criterion `json:"orderedBy,omitempty"`
	Usage     *float64      `json:"uses,omitempty"`
	// Value, Threshold and Unit are those of a rule; Gap is the amount to release in millicores or bytes.
	Value     *float64 `json:"value,omitempty"`
	Threshold *float64 `json:"threshold,omitempty"`
	Unit      string   `json:"unit,omitempty"`
	Gap       float64  `json:"gap,omitempty"`
	Reason    string   `json:"why,omitempty"`
}

// AuditConfig configures an Audit.
type AuditConfig struct {
	// Path is the file. Before it exceeds MaxBytes it is renamed to Path.1 and replaces the previous one, so both take at most twice as
	// much.
	Path     string
	MaxBytes int64
	Clock    clock.WithTicker
	Log      logr.Logger
	Beat     func(step string)
}

// Audit writes a line of JSON per action without waiting for the disk: it drops and counts what cannot be written. It is safe for
// concurrent use.
type Audit struct {
	*spool.Spool

	cfg AuditConfig

	file *os.File // the following fields belong to Run
	size int64
	// torn reports that the last line is incomplete after a kill or on a full disk.
	torn bool
}

// OpenAudit opens the file and creates missing directories. Run writes to it.
func OpenAudit(cfg AuditConfig) (*Audit, error) {
	if err := os.MkdirAll(filepath.Dir(cfg.Path), 0o750); err != nil {
		return nil, fmt.Errorf("creating the folder of the audit file: %w", err)
	}

	a := &Audit{cfg: cfg}
	a.Spool = spool.New(spool.Config{
		QueueSize:      queueSize,
		Write:          a.write,
		Close:          a.close,
		Clock:          cfg.Clock,
		Log:            cfg.Log,
		Beat:           cfg.Beat,
		FailureMessage: "writing the audit file; actions continue and are logged",
	})

	if err := a.open(); err != nil {
		return nil, err
	}

	return a, nil
}

// Name implements the agent's Manager.
func (a *Audit) Name() string { return "audit" }

// Write queues a record.
func (a *Audit) Write(r Record) {
	line, err := json.Marshal(r)
	if err != nil {
		a.CountDropped() // A number without JSON representation.
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
		return fmt.Errorf("opening the audit file: %w", err)
	}

	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("not a file")
	}

	if err != nil {
		return errors.Join(fmt.Errorf("opening the audit file %s: %w", a.cfg.Path, err), f.Close())
	}

	// After a kill the last line may be incomplete; the next one must not continue it.
	torn := false
	if info.Size() > 0 {
		var last [1]byte
		if _, err := f.ReadAt(last[:], info.Size()-1); err != nil && !errors.Is(err, io.EOF) {
			return errors.Join(fmt.Errorf("reading the end of the audit file: %w", err), f.Close())
		}

		torn = last[0] != '\n'
	}

	a.file = f
	a.size = info.Size()
	a.torn = torn

	return nil
}

// write writes a line.
func (a *Audit) write(line []byte) error {
	if a.file != nil && a.size > 0 && a.size+int64(len(line)) > a.cfg.MaxBytes {
		if err := a.rotate(); err != nil {
			return err
		}
	}

	// The last rotation or close may have left no file.
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
		return fmt.Errorf("writing the audit file: %w", err)
	}

	return nil
}

// rotate replaces the previous file. While it fails nothing is written, so that the disk does not fill.
func (a *Audit) rotate() error {
	if err := os.Rename(a.cfg.Path, a.cfg.Path+rotatedSuffix); err != nil {
		return fmt.Errorf("rotating the audit file: %w", err)
	}

	last := a.file
	a.file = nil

	if err := last.Close(); err != nil {
		return fmt.Errorf("closing the audit file: %w", err)
	}

	return a.open()
}
