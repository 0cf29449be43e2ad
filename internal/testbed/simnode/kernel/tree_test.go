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

// write is a write to a file of a tree with the groups a/b/deep, a/c (with a process) and x/y, and the prefix of the
// file's content afterward.
type write struct {
	file, value string
	want        error
	reads       string
}

// refusals are errors that conformance does not test on a real kernel: those of hierarchy roots, which belong to the
// machine, and of exclusive CPUs.
var refusals = map[string]struct {
	v1     bool
	writes []write
}{
	"v2 root": {false, []write{
		{"cpu.max", "max", syscall.ENOENT, ""},
		{"a/b/cpu.stat", "0", syscall.EINVAL, "usage_usec 0"},
	}},
	"v1 root": {true, []write{
		{"cpuset.cpus", "0", syscall.EACCES, "0-3"},
		{"x/y/cgroup.procs", "7", syscall.ENOSPC, ""},
	}},
	"v1 exclusive": {true, []write{
		{"x/cpuset.cpus", "2", nil, "2"},
		{"x/cpuset.cpu_exclusive", "1", syscall.EINVAL, "0"}, // a uses it too
		{"a/b/cpuset.cpus", "0-1", nil, "0-1"},
		{"a/cpuset.cpus", "0-1", nil, "0-1"},
		{"x/cpuset.cpu_exclusive", "1", nil, "1"},
		{"a/cpuset.cpus", "0-2", syscall.EINVAL, "0-1"},
		{"a/cpuset.cpu_exclusive", "yes", syscall.EINVAL, "0"},
	}},
}

// newTree returns a tree with the groups that refusals name.
func newTree(t *testing.T, v1 bool) *Tree {
	t.Helper()

	tree := &Tree{Dir: t.TempDir(), V1: v1}
	for _, g := range []string{"a/b/deep", "a/c", "x/y"} {
		if err := tree.Make(g); err != nil {
			t.Fatal(err)
		}
	}

	if v1 {
		for _, w := range [][2]string{{"a", "0-3"}, {"a/b", "0-3"}, {"a/c", "0-1"}} {
			put(t, tree, w[0]+"/cpuset.cpus", w[1])
			put(t, tree, w[0]+"/cpuset.mems", "0")
		}
	}

	if err := tree.Attach("a/c", 1); err != nil {
		t.Fatal(err)
	}

	return tree
}

func TestRefuses(t *testing.T) {
	for name, test := range refusals {
		t.Run(name, func(t *testing.T) {
			tree := newTree(t, test.v1)
			for _, w := range test.writes {
				file := filepath.Join(tree.Dir, w.file)
				if err := tree.Write(file, w.value); !errors.Is(err, w.want) {
					t.Errorf("Write(%s, %s) = %v, want %v", w.file, w.value, err, w.want)
				}

				content, _ := os.ReadFile(file)
				if !strings.HasPrefix(string(content), w.reads) || (w.reads == "") != (strings.TrimSpace(string(content)) == "") {
					t.Errorf("%s reads %q after %q, want %q", w.file, content, w.value, w.reads)
				}
			}
		})
	}
}

func TestEffectiveCPUs(t *testing.T) {
	tree := newTree(t, false)
	effective := func(group, want string) {
		t.Helper()

		if got := text(filepath.Join(tree.Dir, group), "cpuset.cpus.effective"); got != want {
			t.Errorf("effective CPUs of %s = %s, want %s", group, got, want)
		}
	}

	effective("a/b/deep", "0-3")
	put(t, tree, "a/b/cpuset.cpus", "1-2")
	effective("a/b/deep", "1-2")
	put(t, tree, "a/cpuset.cpus", "2-3")
	effective("a/b", "2")
	put(t, tree, "a/cpuset.cpus", "0")
	effective("a/b/deep", "0") // its own set is empty
	effective("a/c", "0")
}

func put(t *testing.T, tree *Tree, file, value string) {
	t.Helper()

	if err := tree.Write(filepath.Join(tree.Dir, file), value); err != nil {
		t.Fatal(err)
	}
}

// TestHierarchies: v1 controllers have separate hierarchies.
func TestHierarchies(t *testing.T) {
	base := t.TempDir()
	tree := &Tree{Dir: filepath.Join(base, "cpu,cpuacct"), V1: true}
	if err := tree.Make("kubepods/podx"); err != nil {
		t.Fatal(err)
	}

	for _, file := range []string{"cpu,cpuacct/kubepods/podx/cpu.shares", "cpu,cpuacct/kubepods/cpuacct.usage", "memory/kubepods/podx/memory.stat", "cpuset/kubepods/podx/cpuset.cpus"} {
		if !exists(filepath.Join(base, file)) {
			t.Errorf("%s does not exist after Make, want it", file)
		}
	}

	if exists(filepath.Join(base, "memory/kubepods/cpu.shares")) {
		t.Error("Make created cpu.shares in the hierarchy of memory, want none")
	}
	if err := tree.Write(filepath.Join(base, "cpuset/kubepods/cpuset.cpus"), "0-1"); err != nil {
		t.Error(err)
	}
}

func TestRemove(t *testing.T) {
	for _, v1 := range []bool{false, true} {
		tree := newTree(t, v1)
		for _, group := range []string{"a", "x"} {
			if err := tree.Remove(group); !errors.Is(err, syscall.EBUSY) {
				t.Errorf("Remove(%s) of a group with groups below it = %v, want %v", group, err, syscall.EBUSY)
			}
		}

		if err := tree.Remove("a/b/deep"); err != nil {
			t.Error(err)
		}
		if err := tree.Remove("a/c"); !errors.Is(err, syscall.EBUSY) {
			t.Errorf("Remove(a/c) of a group with a process = %v, want %v", err, syscall.EBUSY)
		}
		if err := tree.Detach("a/c"); err != nil {
			t.Error(err)
		}

		if err := tree.Remove("a/c"); err != nil || exists(filepath.Join(tree.Dir, "a/c")) {
			t.Errorf("Remove(a/c) after Detach = %v, want that its directory is gone", err)
		}
		if err := tree.Write(filepath.Join(tree.Dir, "a/c/cpu.idle"), "1"); !errors.Is(err, syscall.ENOENT) {
			t.Errorf("Write to a removed group = %v, want %v", err, syscall.ENOENT)
		}
	}
}

func TestTear(t *testing.T) {
	tree := newTree(t, false)
	if err := tree.Tear("a/b", "cpu.max"); err != nil {
		t.Fatal(err)
	}

	if got, err := os.ReadFile(filepath.Join(tree.Dir, "a/b/cpu.max")); err != nil || string(got) != "max 1" {
		t.Errorf("cpu.max after Tear = %q, error %v; want %q", got, err, "max 1")
	}
}

func TestObeysQuota(t *testing.T) {
	for _, v1 := range []bool{false, true} {
		tree := newTree(t, v1)
		file, value := "a/b/cpu.max", "50000"
		if v1 {
			file = "a/b/cpu.cfs_quota_us"
		}

		put(t, tree, file, value)
		if got, err := tree.Run("a/b/deep", 2, 10*time.Second); err != nil || math.Abs(got-0.5) > 1e-9 {
			t.Errorf("Run with a quota of half a core = %g, error %v; want 0.5", got, err)
		}

		content, err := os.ReadFile(filepath.Join(tree.Dir, "a/b/cpu.stat"))
		want := cpuStat{5_000_000, 100, 100, 15_000_000}.String()
		if v1 {
			want = "nr_periods 100\nnr_throttled 100\nthrottled_time 15000000000\n"
		}
		if err != nil || string(content) != want {
			t.Errorf("cpu.stat = %s, error %v; want %s", content, err, want)
		}

		if v1 {
			continue
		}

		if content, err = os.ReadFile(filepath.Join(tree.Dir, "a/cpu.stat")); err != nil || !strings.HasPrefix(string(content), "usage_usec 5000000\n") {
			t.Errorf("cpu.stat of the parent = %s, error %v; want a use of 5000000", content, err)
		}
		if got := text(filepath.Join(tree.Dir, "a/b/deep"), "cpu.pressure"); !strings.HasPrefix(got, "some avg10=47.41") { // 75 % for 10 s: 75 (1 - 1/e)
			t.Errorf("cpu.pressure = %s, want avg10 47.41", got)
		}
	}
}

// TestSharesByWeight: 4 cores, a sibling with a hundredth of the weight and one with a limit; unused shares go to the
// others.
func TestSharesByWeight(t *testing.T) {
	tree := newTree(t, false)
	put(t, tree, "a/c/cpu.weight", "1")
	put(t, tree, "x/cpu.max", "50000")

	got, err := tree.Tick(time.Second, []Load{{Group: "a/b/deep", CPU: 4}, {Group: "a/c", CPU: 4}, {Group: "x/y", CPU: 4}})
	if err != nil {
		t.Fatal(err)
	}

	for i, want := range []float64{3.5 * 100 / 101, 3.5 / 101, 0.5} {
		if math.Abs(got[i].CPU-want) > 1e-9 {
			t.Errorf("Tick: load %d gets %g cores, want %g", i, got[i].CPU, want)
		}
	}

	got, err = tree.Tick(time.Second, []Load{{Group: "a/b/deep", CPU: 1}, {Group: "a/c", CPU: 4}})
	if err != nil || math.Abs(got[0].CPU-1) > 1e-9 || math.Abs(got[1].CPU-3) > 1e-9 {
		t.Errorf("Tick with unused shares = %+v, error %v; want 1 and 3 cores", got, err)
	}

	put(t, tree, "a/b/cpuset.cpus", "0")
	put(t, tree, "a/c/cpu.idle", "1")

	got, err = tree.Tick(time.Second, []Load{{Group: "a/b/deep", CPU: 4}, {Group: "a/c", CPU: 4}})
	if err != nil || math.Abs(got[0].CPU-1) > 1e-9 || math.Abs(got[1].CPU-3) > 1e-9 {
		t.Errorf("Tick with one CPU for a/b = %+v, error %v; want 1 and 3 cores", got, err)
	}
}

const mebi = 1 << 20

// TestObeysMemoryHigh: the cache shrinks to memory.high, and re-reads count as stall time; anonymous memory does not
// shrink.
func TestObeysMemoryHigh(t *testing.T) {
	tree := newTree(t, false)
	load := []Load{{Group: "a/c", Anon: 100 * mebi, File: 300 * mebi}, {Group: "x/y", Anon: 50 * mebi}}
	tick := func() []Use {
		t.Helper()

		got, err := tree.Tick(time.Second, load)
		if err != nil {
			t.Fatal(err)
		}

		return got
	}

	if got := tick(); got[0] != (Use{Anon: 100 * mebi, File: 300 * mebi}) {
		t.Errorf("Tick without a limit = %+v, want 100 and 300 MiB", got)
	}

	put(t, tree, "a/c/memory.high", "200M")
	if got := text(filepath.Join(tree.Dir, "a/c"), "memory.current"); got != "209715200" {
		t.Errorf("memory.current after the write of memory.high = %s, want 209715200 at once", got)
	}
	if got := tick(); got[0].File != 100*mebi || got[0].Stalled != 0.5 || got[1].Stalled != 0 {
		t.Errorf("Tick with memory.high of 200 MiB = %+v, want 100 MiB of page cache, and half of the time stalled for the first only", got)
	}

	for _, group := range []string{"a", "a/c"} {
		if got := text(filepath.Join(tree.Dir, group), "memory.pressure"); !strings.HasPrefix(got, "some avg10=4.76") {
			t.Errorf("memory.pressure of %s = %s, want avg10 4.76", group, got)
		}
		if got := text(filepath.Join(tree.Dir, group), "memory.current"); got != "209715200" {
			t.Errorf("memory.current of %s = %s, want 209715200", group, got)
		}
	}

	if got := text(filepath.Join(tree.Dir, "x"), "memory.pressure"); got != strings.TrimSpace(noPressure) {
		t.Errorf("memory.pressure of another group = %s, want none", got)
	}

	// Processes above memory.high grow slowly.
	load[0].Anon = 300 * mebi

	if got := tick(); got[0].Anon != 202*mebi || got[0].File != 0 || got[0].Stalled < 0.6 {
		t.Errorf("Tick with growth above memory.high = %+v, want 202 MiB, no page cache, 60 %% of the time stalled", got)
	}

	put(t, tree, "a/c/memory.high", "max")
	if got := tick(); got[0] != (Use{Anon: 300 * mebi, File: 300 * mebi}) {
		t.Errorf("Tick after the limit was removed = %+v, want 300 and 300 MiB", got)
	}

	// The parent's limit leaves what its other groups do not use.
	put(t, tree, "a/memory.high", "400M")

	if got := tick(); got[0].File != 100*mebi {
		t.Errorf("Tick with memory.high of the parent = %+v, want 100 MiB of page cache", got)
	}
}

func TestObeysMemoryMax(t *testing.T) {
	tree := newTree(t, false)
	put(t, tree, "a/c/memory.max", "100M")

	got, err := tree.Tick(time.Second, []Load{{Group: "a/c", Anon: 50 * mebi, File: 90 * mebi}})
	if err != nil || got[0].File != 50*mebi || got[0].Killed {
		t.Errorf("Tick with memory.max of 100 MiB = %+v, error %v; want 50 MiB of page cache and no OOM kill", got, err)
	}

	got, err = tree.Tick(time.Second, []Load{{Group: "a/c", Anon: 101 * mebi}})
	if err != nil || !got[0].Killed || text(filepath.Join(tree.Dir, "a"), "memory.current") != "0" {
		t.Errorf("Tick with more than memory.max = %+v, error %v; want an OOM kill and no memory afterward", got, err)
	}
	if events := text(filepath.Join(tree.Dir, "a"), "memory.events"); !strings.Contains(events, "oom_kill 1") {
		t.Errorf("memory.events of the parent = %s, want oom_kill 1", events)
	}

	// A limit below anonymous memory causes OOM kills as well.
	if _, err = tree.Tick(time.Second, []Load{{Group: "x/y", Anon: 101 * mebi}}); err != nil {
		t.Fatal(err)
	}

	put(t, tree, "x/memory.max", "100M")
	if events := text(filepath.Join(tree.Dir, "x/y"), "memory.events"); !strings.Contains(events, "oom_kill 1") {
		t.Errorf("memory.events of x/y = %s, want oom_kill 1", events)
	}
}

func TestReclaim(t *testing.T) {
	tree := newTree(t, false)
	if _, err := tree.Tick(time.Second, []Load{{Group: "a/b/deep", Anon: 10 * mebi, File: 20 * mebi}, {Group: "a/c", File: 10 * mebi}}); err != nil {
		t.Fatal(err)
	}

	put(t, tree, "a/memory.reclaim", "25M swappiness=0")
	for _, value := range []string{"1M swappiness=201", "1M swappiness=", "1M willingness=0"} {
		if err := tree.Write(filepath.Join(tree.Dir, "a/memory.reclaim"), value); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("Write(memory.reclaim, %q) = %v, want %v", value, err, syscall.EINVAL)
		}
	}

	if got := text(filepath.Join(tree.Dir, "a"), "memory.current"); got != "15728640" {
		t.Errorf("memory.current after a reclaim of 25 MiB = %s, want 15728640", got)
	}
	if err := tree.Write(filepath.Join(tree.Dir, "a/memory.reclaim"), "6M"); !errors.Is(err, syscall.EAGAIN) {
		t.Errorf("Write(memory.reclaim) of more than available = %v, want %v", err, syscall.EAGAIN)
	}
	if got := text(filepath.Join(tree.Dir, "a"), "memory.current"); got != "10485760" {
		t.Errorf("memory.current after the second reclaim = %s, want 10485760 of the processes", got)
	}
}

// TestLimitV1: v1 rejects a limit below the memory that cannot be reclaimed.
func TestLimitV1(t *testing.T) {
	tree := newTree(t, true)
	if _, err := tree.Tick(time.Second, []Load{{Group: "a/c", Anon: 10 * mebi, File: 20 * mebi}}); err != nil {
		t.Fatal(err)
	}

	if err := tree.Write(filepath.Join(tree.Dir, "a/c/memory.limit_in_bytes"), "9M"); !errors.Is(err, syscall.EBUSY) {
		t.Errorf("Write of a limit below anonymous memory = %v, want %v", err, syscall.EBUSY)
	}

	put(t, tree, "a/c/memory.limit_in_bytes", "12M")
	got, err := tree.Tick(time.Second, []Load{{Group: "a/c", Anon: 10 * mebi, File: 20 * mebi}})
	if err != nil || got[0].File != 2*mebi {
		t.Errorf("Tick with a limit of 12 MiB = %+v, error %v; want 2 MiB of page cache", got, err)
	}
}
