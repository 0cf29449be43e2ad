// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestRefuses: what a kernel refuses, with its error (a plain directory takes anything).
func TestRefuses(t *testing.T) {
	type write struct {
		file, value string
		want        error
		reads       string
	}
	for name, test := range map[string]struct {
		v1     bool
		writes []write
	}{
		"v2": {false, []write{
			{"a/b/cpu.max", "50000 100000", nil, "50000 100000"},
			{"a/b/cpu.max", "60000", nil, "60000 100000"},
			{"a/b/cpu.max", "999", syscall.EINVAL, "60000 100000"},
			{"a/b/cpu.max", "50000 999", syscall.EINVAL, "60000 100000"},
			{"a/b/cpu.max", "50000 2000000", syscall.EINVAL, "60000 100000"},
			{"a/b/cpu.max", "-1", syscall.EINVAL, "60000 100000"},
			{"a/b/cpu.max", "", syscall.EINVAL, "60000 100000"},
			{"a/b/cpu.max.burst", "60001", syscall.EINVAL, "0"},
			{"a/b/cpu.max.burst", "60000", nil, "60000"},
			{"a/b/cpu.max", "50000", syscall.EINVAL, "60000 100000"}, // burst above quota
			{"a/b/cpu.max.burst", "0", nil, "0"},
			{"a/cpu.max", "10000", nil, "10000 100000"}, // v2 takes a child above its parent
			{"a/b/cpu.max", "max", nil, "max 100000"},
			{"a/b/cpu.weight", "5", syscall.ENOENT, ""},
			{"a/gone/cpu.max", "max", syscall.ENODEV, ""},
			{"a/b/cpu.stat", "0", syscall.EACCES, "usage_usec 0"},
		}},
		"v1": {true, []write{
			{"a/b/cpu.cfs_quota_us", "50000", nil, "50000"},
			{"a/cpu.cfs_quota_us", "40000", syscall.EINVAL, "-1"}, // parent below child
			{"a/cpu.cfs_quota_us", "60000", nil, "60000"},
			{"a/b/cpu.cfs_quota_us", "70000", syscall.EINVAL, "50000"}, // child above parent
			{"a/b/cpu.cfs_period_us", "50000", syscall.EINVAL, "100000"},
			{"a/b/cpu.cfs_burst_us", "60000", syscall.EINVAL, "0"},
			{"a/b/cpu.cfs_quota_us", "-5", nil, "-1"},
			{"a/b/cpu.cfs_quota_us", "0", syscall.EINVAL, "-1"},
			{"a/b/cpu.cfs_quota_us", "max", syscall.EINVAL, "-1"},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			tree := &Tree{Dir: t.TempDir(), V1: test.v1}
			if err := tree.Make("a/b"); err != nil {
				t.Fatal(err)
			}
			for _, w := range test.writes {
				file := filepath.Join(tree.Dir, w.file)
				if err := tree.Write(file, w.value); !errors.Is(err, w.want) {
					t.Errorf("%s = %s: %v, want %v", w.file, w.value, err, w.want)
				}
				content, _ := os.ReadFile(file)
				if !strings.HasPrefix(string(content), w.reads) || (w.reads == "") != (len(content) == 0) {
					t.Errorf("%s reads %q after %q, want %q", w.file, content, w.value, w.reads)
				}
			}
		})
	}
}

func TestObeys(t *testing.T) {
	tree := &Tree{Dir: t.TempDir()}
	if err := tree.Make("a/b"); err != nil {
		t.Fatal(err)
	}
	if err := tree.Write(filepath.Join(tree.Dir, "a/b/cpu.max"), "50000"); err != nil {
		t.Fatal(err)
	}
	if got, err := tree.Run("a/b", 2, 10*time.Second); err != nil || math.Abs(got-0.5) > 1e-9 {
		t.Errorf("%g cores, %v; want 0.5", got, err)
	}
	content, err := os.ReadFile(filepath.Join(tree.Dir, "a/b/cpu.stat"))
	if want := stat(5_000_000, 100, 100, 15_000_000); err != nil || string(content) != want {
		t.Errorf("%s, %v; want %s", content, err, want)
	}
	if content, err = os.ReadFile(filepath.Join(tree.Dir, "a/cpu.stat")); err != nil || !strings.HasPrefix(string(content), "usage_usec 5000000\n") {
		t.Errorf("the parent: %s, %v", content, err)
	}
}
