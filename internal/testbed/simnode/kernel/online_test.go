// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"path/filepath"
	"testing"

	"crane.io/crane/pkg/numa"
)

// TestSetOnline takes a CPU offline and online again: on v1 groups lose it, on v2 they have it again.
func TestSetOnline(t *testing.T) {
	for _, test := range []struct {
		v1           bool
		file         string
		offline, end string
	}{{true, "cpuset.cpus", "2", "2"}, {false, "cpuset.cpus.effective", "2", "2-3"}} {
		tree := &Tree{Dir: t.TempDir(), V1: test.v1}
		if err := tree.Make("a/b"); err != nil {
			t.Fatal(err)
		}

		for _, group := range []string{"a", "a/b"} {
			if err := tree.Write(filepath.Join(tree.Dir, group, "cpuset.cpus"), "2-3"); err != nil {
				t.Fatal(err)
			}
		}

		for _, step := range []struct{ online, want string }{{"0-2", test.offline}, {"0-3", test.end}} {
			cpus, err := numa.ParseCPUSet(step.online)
			if err != nil {
				t.Fatal(err)
			}

			if err := tree.SetOnline(cpus); err != nil {
				t.Fatal(err)
			}

			for _, group := range []string{"a", "a/b"} {
				if got := text(filepath.Join(tree.Dir, group), test.file); got != step.want {
					t.Errorf("v1 %t: SetOnline(%s) leaves %s of %s at %q, want %q", test.v1, step.online, test.file, group, got, step.want)
				}
			}
		}
	}
}
