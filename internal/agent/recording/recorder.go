// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package recording writes the agent's snapshots to a file and reads them again, so that rules can be tested against the past of a node.
//
// A recording is a series of gzip members, which gzip -d reads as one file, each with one line of JSON. An incomplete one, as after
// SIGKILL, affects no other.
package recording

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
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
		QueueSize:      queueSize,
		Write:          r.write,
		Close:          r.close,
		FailureMessage: "writing the recording",
		Clock:          cfg.Clock,
		Log:            cfg.Log,
		Beat:           cfg.Beat,
	})

	r.zip = gzip.NewWriter(&r.line)
	if err := os.MkdirAll(filepath.Dir(cfg.Path), 0o750); err != nil {
		return nil, fmt.Errorf("creating the folder of the recording: %w", err)
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
	r.sinceState++

	if said != r.lastState || r.sinceState >= stateInterval {
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
		r.lastState = said
		r.sinceState = 0
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
		return errors.Join(fmt.Errorf("writing the recording: %w", err), r.file.Truncate(r.size))
	}

	r.size += int64(len(line))
	return nil
}

// beginFile rotates the file. Only its owner may read the new one, since it names pods and their behavior.
func (r *Recorder) beginFile() error {
	if err := r.close(); err != nil {
		r.cfg.Log.Error(err, "closing the recording")
	}

	if err := os.Rename(r.cfg.Path, r.cfg.Path+rotatedSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("rotating the recording: %w", err)
	}

	file, err := os.OpenFile(r.cfg.Path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("creating the recording: %w", err)
	}

	r.file = file
	r.size = 0
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

// ErrTruncated is returned, wrapped, if the last line is incomplete because the agent was killed or is still running.
var ErrTruncated = errors.New("the end is cut off")

// maxLine bounds a line in bytes: that of thousands of pods.
const maxLine = 64 << 20

// Read calls each with every line of a recording in order. It stops at the first error of each or of an unreadable line; ErrTruncated is
// returned after all complete lines.
func Read(from io.Reader, each func(Entry) error) error {
	zip, err := gzip.NewReader(bufio.NewReader(from))
	if errors.Is(err, io.EOF) {
		return nil // Nothing is recorded yet.
	}
	if err != nil {
		return fmt.Errorf("not a recording: %w", asTruncated(err))
	}

	lines := bufio.NewScanner(zip)
	lines.Buffer(nil, maxLine)

	n := 0
	for lines.Scan() {
		n++
		var e Entry
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			lines.Scan()

			if errors.Is(lines.Err(), io.ErrUnexpectedEOF) {
				return fmt.Errorf("line %d: %w", n, ErrTruncated)
			}

			return fmt.Errorf("line %d: %w", n, err)
		}

		if e.Snapshot == nil {
			return fmt.Errorf("line %d: nothing was seen", n)
		}

		if err := each(e); err != nil {
			return err
		}
	}

	if err := lines.Err(); err != nil {
		return fmt.Errorf("after line %d: %w", n, asTruncated(err))
	}

	return nil
}

func asTruncated(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return ErrTruncated
	}

	return err
}

// Entry is a line: a snapshot, and the state of the cluster if it changed since the previous line.
type Entry struct {
	Snapshot *observe.Snapshot `json:"look"`
	Cluster  *cluster.State    `json:"cluster,omitempty"`
}

// withoutSecrets returns a state without fields that decisions do not use, such as environment variables, which may be secret.
func withoutSecrets(s *cluster.State) *cluster.State {
	out := *s
	if s.Node != nil {
		out.Node = &corev1.Node{TypeMeta: s.Node.TypeMeta, ObjectMeta: s.Node.ObjectMeta}
		out.Node.ManagedFields = nil
		out.Node.Spec.Taints = s.Node.Spec.Taints
		out.Node.Status.Capacity, out.Node.Status.Allocatable = s.Node.Status.Capacity, s.Node.Status.Allocatable
	}

	out.Pods = make([]*corev1.Pod, len(s.Pods))
	for i, p := range s.Pods {
		out.Pods[i] = podWithoutSecrets(p)
	}

	return &out
}

// lastApplied is kubectl's annotation with the whole object.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

func podWithoutSecrets(p *corev1.Pod) *corev1.Pod {
	out := p.DeepCopy()
	out.ManagedFields = nil
	delete(out.Annotations, lastApplied)

	out.Spec = corev1.PodSpec{
		NodeName:                      p.Spec.NodeName,
		Priority:                      p.Spec.Priority,
		PriorityClassName:             p.Spec.PriorityClassName,
		Overhead:                      p.Spec.Overhead,
		Resources:                     p.Spec.Resources,
		TerminationGracePeriodSeconds: p.Spec.TerminationGracePeriodSeconds,
		Containers:                    containersWithoutSecrets(p.Spec.Containers),
		InitContainers:                containersWithoutSecrets(p.Spec.InitContainers),
	}

	return out
}

func containersWithoutSecrets(list []corev1.Container) []corev1.Container {
	out := slices.Clone(list)
	for i := range out {
		c := &out[i]
		*c = corev1.Container{Name: c.Name, Resources: c.Resources, RestartPolicy: c.RestartPolicy}
	}

	return out
}
