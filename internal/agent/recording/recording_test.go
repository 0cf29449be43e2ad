// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package recording

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"crane.io/crane/internal/agent/cluster"
	"crane.io/crane/internal/agent/observe"
	"crane.io/crane/internal/agent/spool"
)

var start = time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC)

func newRecorder(t *testing.T, path string, most int64) *Recorder {
	t.Helper()

	r, err := New(Config{Path: path, MaxBytes: most, Clock: clocktesting.NewFakeClock(start), Log: logr.Discard(), Beat: func(string) {}})
	if err != nil {
		t.Fatal(err)
	}

	return r
}

// finish writes what is queued.
func finish(t *testing.T, r *Recorder) {
	t.Helper()

	ctx, cancel := context.WithCancel(t.Context())
	cancel()

	if err := r.Run(ctx); err != nil {
		t.Fatal(err)
	}
}

func look(second int) *observe.Snapshot {
	return &observe.Snapshot{At: start.Add(time.Duration(second) * time.Second), Node: observe.Node{CPUs: observe.Known[int]{Value: 4, OK: true}}}
}

func read(t *testing.T, path string) []Entry {
	t.Helper()

	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	var out []Entry
	if err := Read(bytes.NewReader(content), func(e Entry) error { out = append(out, e); return nil }); err != nil {
		t.Fatal(err)
	}

	return out
}

// secret returns a pod with fields that decisions do not use.
func secret() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Labels: map[string]string{"app": "p"}, Annotations: map[string]string{lastApplied: "hunter2", "kept": "yes"}},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "main", Args: []string{"hunter2"}, Env: []corev1.EnvVar{{Name: "PASSWORD", Value: "hunter2"}}}},
		},
	}
}

// TestRecorder checks that the state of the cluster is written on change and without secrets.
func TestRecorder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "seen.gz")
	r := newRecorder(t, path, 1<<20)
	first := &cluster.State{KnowsPods: true, Pods: []*corev1.Pod{secret()}}
	second := &cluster.State{}
	for i, s := range []*cluster.State{first, first, second} {
		r.Record(look(i), s)
	}

	finish(t, r)
	all := read(t, path)
	if len(all) != 3 || all[0].Cluster == nil || all[1].Cluster != nil || all[2].Cluster == nil || !all[1].Snapshot.At.Equal(start.Add(time.Second)) || all[2].Snapshot.Node.CPUs.Value != 4 {
		t.Fatalf("the recording has %+v, want 3 snapshots, the first and last with the cluster", all)
	}

	if p := all[0].Cluster.Pods[0]; p.Labels["app"] != "p" || p.Annotations["kept"] != "yes" || p.Spec.Containers[0].Name != "main" {
		t.Errorf("the pod is %+v, want its labels, annotations and containers", p)
	}

	zipped, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer zipped.Close()

	zip, err := gzip.NewReader(zipped)
	if err != nil {
		t.Fatal(err)
	}

	var text bytes.Buffer
	if _, err := text.ReadFrom(zip); err != nil || strings.Contains(text.String(), "hunter2") {
		t.Errorf("the recording has %s, %v, want no secret in it", text.String(), err)
	}
	if info, err := zipped.Stat(); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file's mode is %v, %v, want 0600", info.Mode(), err)
	}
	if first.Pods[0].Spec.Containers[0].Args == nil {
		t.Error("the recorded state was changed, want it as before")
	}
}

// TestRotation checks that a recording takes at most two files of its size, each readable by itself.
func TestRotation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "seen.gz")
	if err := os.WriteFile(path, []byte("of an agent before"), 0o600); err != nil {
		t.Fatal(err)
	}

	const most = 8 << 10
	r := newRecorder(t, path, most)
	written := make(chan string)
	r.Spool = spool.New(spool.Config{
		QueueSize: queueSize, Write: r.write, Close: r.close, Clock: clocktesting.NewFakeClock(start), Log: logr.Discard(), Beat: func(string) { written <- "" },
	})

	if before, err := os.ReadFile(path + rotatedSuffix); err != nil || string(before) != "of an agent before" {
		t.Fatalf("the previous recording is %q, %v, want it kept", before, err)
	}

	state := &cluster.State{KnowsPods: true}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	<-written // Nothing yet.

	const looks = 200
	for i := range looks {
		r.Record(look(i), state)
		<-written
	}

	cancel()
	if err := <-ended; err != nil || r.Dropped() > 0 {
		t.Fatalf("Run = %v with %d dropped snapshots, want nil and none", err, r.Dropped())
	}

	for _, p := range []string{path, path + rotatedSuffix} {
		info, err := os.Stat(p)
		if err != nil || info.Size() > most {
			t.Errorf("%s has %d bytes, %v, want at most %d", p, info.Size(), err, most)
		}
		if all := read(t, p); len(all) == 0 || len(all) == looks {
			t.Errorf("%s has %d snapshots, want a part of %d", p, len(all), looks)
		}
	}
}

// TestNothingWaits checks that unwritten snapshots are dropped and counted, and that a dropped state is written again.
func TestNothingWaits(t *testing.T) {
	path := filepath.Join(t.TempDir(), "seen.gz")
	r := newRecorder(t, path, 1<<20)
	old := &cluster.State{}
	now := &cluster.State{KnowsPods: true}

	for i := range queueSize {
		r.Record(look(i), old)
	}

	r.Record(look(queueSize), now)
	bad := look(0)
	bad.Disks = []observe.Disk{{Rate: observe.Known[observe.DiskRate]{Value: observe.DiskRate{Reads: math.NaN()}}}}
	r.Record(bad, now)

	if r.Dropped() != 2 {
		t.Errorf("%d looks were dropped, want 2", r.Dropped())
	}

	finish(t, r)
	r.Record(look(queueSize+1), now)
	finish(t, r) // Another file, because the first recorder has closed its own.

	all := append(read(t, path+rotatedSuffix), read(t, path)...)
	if last := all[len(all)-1].Cluster; len(all) != queueSize+1 || last == nil || !last.KnowsPods {
		t.Errorf("the recordings have %d snapshots, the last with %+v; want %d, the last with the cluster", len(all), last, queueSize+1)
	}
}

// TestFullDisk checks that lines that do not fit are dropped.
func TestFullDisk(t *testing.T) {
	r := newRecorder(t, filepath.Join(t.TempDir(), "seen.gz"), 1<<20)
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}

	r.file.Close()
	r.file = full
	r.Record(look(0), &cluster.State{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()

	if err := r.Run(ctx); err == nil || r.Dropped() != 1 {
		t.Errorf("Run = %v with %d dropped snapshots, want an error and 1", err, r.Dropped())
	}
}

func TestReadBadFiles(t *testing.T) {
	zipped := func(text string) []byte {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}

		if err := w.Close(); err != nil {
			t.Fatal(err)
		}

		return b.Bytes()
	}

	good := zipped("{\"look\":{}}\n")
	for name, c := range map[string]struct {
		content []byte
		looks   int
		err     string
	}{
		"empty":         {nil, 0, ""},
		"good":          {good, 1, ""},
		"two":           {append(bytes.Clone(good), good...), 2, ""},
		"cut":           {append(bytes.Clone(good), good[:len(good)-15]...), 1, ErrTruncated.Error()},
		"cut in a head": {append(bytes.Clone(good), good[:5]...), 1, ErrTruncated.Error()},
		"no gzip":       {[]byte("{\"look\":{}}\n{\"look\":{}}"), 0, "not a recording"},
		"no JSON":       {zipped("what\n"), 0, "line 1"},
		"not seen":      {zipped("{}\n"), 0, "nothing was seen"},
		"another":       {append(bytes.Clone(good), "garbage garbage"...), 1, "after line 1"},
	} {
		looks := 0
		err := Read(bytes.NewReader(c.content), func(Entry) error { looks++; return nil })
		if text := errorText(err); c.err == "" && err != nil || !strings.Contains(text, c.err) || looks != c.looks {
			t.Errorf("%s: Read = %d snapshots, %v, want %d and %q", name, looks, err, c.looks, c.err)
		}
	}

	stop := errors.New("stop")
	if err := Read(bytes.NewReader(good), func(Entry) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("stopped: %v", err)
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}

	return err.Error()
}

// FuzzRead checks that any file is read or rejected.
func FuzzRead(f *testing.F) {
	f.Add([]byte("{\"look\":{\"Pods\":[{}]},\"cluster\":{\"Pods\":[{}]}}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		if _, err := w.Write(text); err != nil {
			t.Fatal(err)
		}

		if err := w.Close(); err != nil {
			t.Fatal(err)
		}

		_ = Read(&b, func(e Entry) error {
			if e.Snapshot == nil {
				t.Fatal("Read returned an entry without a snapshot, want one")
			}

			return nil
		})
	})
}
