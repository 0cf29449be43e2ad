// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"crane.io/crane/test/hostrecording"
)

// TestRecordHost checks that the output is a recording with both readings, and names files that cannot be read.
func TestRecordHost(t *testing.T) {
	for _, name := range []string{"v2-systemd-containerd", "hybrid-cgroupfs", "v1-cgroupfs-containerd"} {
		source := hostrecording.ForTest(t, name)
		clk := recordedClock{clocktesting.NewFakeClock(time.Unix(1000, 0)), func() time.Duration {
			source.To(1)
			return source.Moments[1].At
		}}

		blocked := filepath.Join(source.Dir, "proc/pressure/io")
		if err := os.RemoveAll(blocked); err != nil {
			t.Fatal(err)
		}

		if err := os.MkdirAll(filepath.Join(blocked, "keep"), 0o755); err != nil {
			t.Fatal(err)
		}

		delete(source.Moments[1].Files, "proc/pressure/io")
		o := NewOptions()
		o.HostRoot = source.Dir
		o.StateDir = t.TempDir()

		var out bytes.Buffer
		if err := recordHost(t.Context(), o, clk, &out); err != nil {
			t.Fatal(err)
		}

		if !strings.Contains(out.String(), "# unreadable proc/pressure/io: is a directory\n") {
			t.Errorf("%s: the output lacks the unreadable file:\n%.300s", name, out.String())
		}

		got, err := hostrecording.Parse(out.String())
		if err != nil || len(got.Moments) != 2 || got.Moments[1].At != recordInterval {
			t.Fatalf("%s: Parse of the output = %d moments, %v, want 2", name, len(got.Moments), err)
		}

		for i := range 2 {
			for path, want := range source.Moments[i].Files {
				recorded, ok := got.Moments[i].Files[path]
				if i == 0 && (path == "proc/stat" || strings.Contains(path, "kubepods") && strings.HasSuffix(path, "/cpu.stat")) && (!ok || recorded != want) {
					t.Errorf("%s: reading %d has %q of %s, want %q", name, i, recorded, path, want)
				}
			}
		}
	}
}
