// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	clocktesting "k8s.io/utils/clock/testing"

	"crane.io/crane/internal/agent/act"
	"crane.io/crane/internal/agent/heartbeat"
	"crane.io/crane/internal/agent/recording"
	"crane.io/crane/pkg/qos"
)

// recorded runs a hog on a host and returns the recording of a dry run and its findings.
func recorded(t *testing.T) (file, found string) {
	t.Helper()

	m := newHostFixture(t)
	m.web = 1
	file = filepath.Join(t.TempDir(), "seen.gz")

	clk := clocktesting.NewFakeClock(m.now)
	recorder, err := recording.New(recording.Config{Path: file, MaxBytes: 1 << 20, Clock: clk, Log: logr.Discard(), Beat: heartbeat.New(clk).Register("record")})
	if err != nil {
		t.Fatal(err)
	}

	view := known(t, strings.ReplaceAll(rules, "coolDownSeconds: 60", "coolDownSeconds: 10"), podOn(webGroup[len("kubepods/pod"):], "web", containerID("1")), podOn(hogGroup[len("kubepods/besteffort/pod"):], "hog", containerID("2")))
	_, l, _ := fixture{m.dir, t.TempDir(), clk, act.KernelFileWriter{}, view}.agent(t)
	l.recorder = recorder
	var out bytes.Buffer

	live := &replayer{out: &out, phases: map[string]qos.Phase{}, reported: map[string]bool{}}
	for second := range 40 {
		m.hog = 0
		if second >= 5 && second < 15 {
			m.hog = 3
		}

		now := m.run(t)
		clk.SetTime(now)
		plan := l.tick(now)
		live.at = plan.At
		live.printChanges(&plan)
	}

	ended, cancel := context.WithCancel(t.Context())
	cancel()

	if err := recorder.Run(ended); err != nil || recorder.Dropped() > 0 {
		t.Fatalf("Run = %v with %d dropped snapshots, want nil and none", err, recorder.Dropped())
	}

	return file, out.String()
}

// TestReplay checks that a recording is decided as it was when recorded, and differently by other rules.
func TestReplay(t *testing.T) {
	file, found := recorded(t)
	for _, want := range []string{"rule mixed/cpu: firing", "would throttle cpu of n/hog, container main", "would keep new pods away", "would admit new pods again"} {
		if !strings.Contains(found, want) {
			t.Fatalf("the loop's changes lack %q, want it in\n%s", want, found)
		}
	}

	o := NewOptions()
	o.Replay = file
	if errs := o.Validate(); len(errs) > 0 {
		t.Fatalf("Validate() = %v, want no error", errs)
	}

	var again bytes.Buffer
	if err := Run(t.Context(), o, clocktesting.NewFakeClock(time.Time{}), &again); err != nil {
		t.Fatal(err)
	}

	if got, _, _ := strings.Cut(again.String(), "40 snapshots over 39s"); got != found {
		t.Errorf("replayed\n%s\nwant\n%s", again.String(), found)
	}

	o.Cluster.Rules = filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(o.Cluster.Rules, []byte(strings.ReplaceAll(rules, "value: 75", "value: 100")), 0o600); err != nil {
		t.Fatal(err)
	}

	var other bytes.Buffer
	if err := o.replay(&other); err != nil || strings.Contains(other.String(), "would ") {
		t.Errorf("replay with a rule that nothing exceeds = %v, want no action in\n%s", err, other.String())
	}
}

// TestReplayOfBadFiles checks that a truncated file is replayed up to its end and any other damage is an error with the file's name.
func TestReplayOfBadFiles(t *testing.T) {
	file, found := recorded(t)
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}

	replay := func(content []byte) (string, error) {
		o := NewOptions()
		o.Replay = filepath.Join(t.TempDir(), "recording")
		if err := os.WriteFile(o.Replay, content, 0o600); err != nil {
			t.Fatal(err)
		}

		var out bytes.Buffer
		err := o.replay(&out)
		return out.String(), err
	}

	if out, err := replay(whole[:len(whole)-20]); err != nil || !strings.Contains(out, "the end is cut off") || !strings.Contains(out, strings.SplitAfter(found, "\n")[0]) {
		t.Errorf("replay without the end = %v, want the first lines and a note in\n%s", err, out)
	}
	if out, err := replay(nil); err != nil || !strings.Contains(out, "0 snapshots") {
		t.Errorf("replay of an empty recording = %v, want 0 snapshots in\n%s", err, out)
	}
	if _, err := replay([]byte("this is not a recording")); err == nil || !strings.Contains(err.Error(), "recording") {
		t.Errorf("no recording: %v", err)
	}

	o := NewOptions()
	o.Replay = filepath.Join(t.TempDir(), "none")
	if err := o.replay(&bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "--replay") {
		t.Errorf("no file: %v", err)
	}
}
