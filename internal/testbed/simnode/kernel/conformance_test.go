// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"crane.io/crane/internal/testbed/realnode/hostcgroup"
	"crane.io/crane/internal/testbed/simnode/kernel/conformance"
	"crane.io/crane/pkg/numa"
	"crane.io/crane/test/kernelcases"
)

// holdEnv makes the test binary run the process that holds memory in a cgroup.
const holdEnv = "CRANE_KERNEL_TEST_HOLD"

func TestMain(m *testing.M) {
	if mib, ok := os.LookupEnv(holdEnv); ok {
		if err := conformance.Hold(mib, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}

		os.Exit(0)
	}

	os.Exit(m.Run())
}

// stage is the group in which steps run.
const stage = "stage"

// fake runs steps on a Tree.
type fake struct {
	tree *Tree
	pid  int
	busy []Load
}

func newFake(t *testing.T, v1 bool) *fake {
	t.Helper()

	dir := t.TempDir()
	f := &fake{tree: &Tree{Dir: dir, CPUs: "0-1"}}
	if v1 {
		f.tree.Dir = filepath.Join(dir, "cpu")
		f.tree.V1 = true
	}

	if err := f.tree.Make(stage); err != nil {
		t.Fatal(err)
	}

	for file, value := range map[string]string{"cpuset.cpus": "0-1", "cpuset.mems": "0"} {
		if err := f.tree.Write(filepath.Join(f.tree.hierarchy().root("cpuset"), stage, file), value); v1 && err != nil {
			t.Fatal(err)
		}
	}

	return f
}

func (f *fake) Do(s conformance.Step) (string, error) {
	group := filepath.Join(stage, s.Path)
	controller, _, _ := strings.Cut(filepath.Base(s.Path), ".")
	path := filepath.Join(f.tree.hierarchy().root(controller), group)

	switch s.Op {
	case conformance.Make:
		return "", f.tree.Mkdir(group)
	case conformance.Remove:
		return "", f.tree.Remove(group)
	case conformance.Throttled:
		return f.throttled(path)

	case conformance.Leave:
		f.busy = nil
		return "", errors.Join(f.tree.free(group), f.tree.Detach(group))
	case conformance.Enter:
		return "", f.enter(group, s.Value)
	}

	var err error
	if s.Op == conformance.Write {
		err = f.tree.Write(path, s.Value)
	}

	content, readErr := os.ReadFile(path)
	return string(content), errors.Join(err, readErr)
}

func (f *fake) enter(group, mib string) error {
	f.pid++
	if err := f.tree.Attach(group, f.pid); err != nil {
		// A process that may not enter the group ends.
		if detach := f.tree.Detach(group); detach != nil && !errors.Is(detach, fs.ErrNotExist) {
			return detach
		}

		return err
	}

	if mib == conformance.Spin {
		f.busy = append(f.busy, Load{Group: group, CPU: 1})
		return nil
	}

	n, _ := strconv.ParseInt(mib, 10, 64)
	_, err := f.tree.Tick(time.Millisecond, []Load{{Group: group, Anon: n << 20}})
	return err
}

func (f *fake) throttled(dir string) (string, error) {
	times := func() (n int64) {
		for line := range strings.Lines(text(dir, "cpu.stat")) {
			if _, err := fmt.Sscanf(line, "nr_throttled %d", &n); err == nil {
				return n
			}
		}

		return 0
	}

	before := times()
	if _, err := f.tree.Tick(time.Second, f.busy); err != nil {
		return "", err
	}

	return map[bool]string{true: "yes", false: "no"}[times() > before], nil
}

// TestConformance: a Tree behaves as the table defines.
func TestConformance(t *testing.T) {
	for _, v1 := range []bool{false, true} {
		for _, c := range kernelcases.Cases(v1) {
			t.Run(version(v1)+" "+c.Name, func(t *testing.T) {
				for _, d := range kernelcases.Differences(c.Steps, conformance.Play(newFake(t, v1), c.Steps)) {
					t.Errorf("steps on a Tree: %s; want the result of the table", d)
				}
			})
		}
	}
}

func version(v1 bool) string { return map[bool]string{false: "v2", true: "v1"}[v1] }

// TestConformanceOfV1: the kernel of the test machine behaves as the table defines. test/e2e/node tests version 2.
func TestConformanceOfV1(t *testing.T) {
	if swaps, err := os.ReadFile("/proc/swaps"); err == nil && strings.Count(string(swaps), "\n") > 1 {
		t.Skip("this machine has swap, which memory in use goes to")
	}

	if runtime.NumCPU() < 2 {
		t.Skip("the table is for CPUs 0 and 1")
	}

	for _, c := range kernelcases.Cases(true) {
		t.Run(c.Name, func(t *testing.T) {
			for _, d := range kernelcases.Differences(c.Steps, conformance.Play(newReal(t), c.Steps)) {
				t.Errorf("steps on the real kernel: %s; want the result of the table", d)
			}
		})
	}
}

// newReal creates a group below the test's own in each hierarchy of the table, or skips the test.
func newReal(t *testing.T) *conformance.Real {
	t.Helper()

	if os.Geteuid() != 0 {
		t.Skip("cgroups are root's")
	}

	host, err := hostcgroup.Detect()
	if err != nil {
		t.Fatal(err)
	}

	if missing := host.Missing("cpu", "cpuset", "memory"); len(missing) > 0 {
		t.Skipf("no cgroup v1 for %v here", missing)
	}

	host.Unified = nil
	group, err := host.Make("crane-conformance-" + strconv.Itoa(os.Getpid()))
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
		t.Skipf("cgroups cannot be made here: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := group.Remove(10 * time.Second); err != nil {
			t.Error(err)
		}
	})

	real := &conformance.Real{Roots: map[string]string{}, Holder: func(load string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), holdEnv+"="+load)
		return cmd
	}}

	for i, h := range host.V1 {
		for name := range strings.SplitSeq(h.Name, ",") {
			switch name {
			case "cpu", "cpuset", "memory":
				real.Roots[name] = group.Dirs[i]
			}
		}
	}

	t.Cleanup(func() {
		if err := real.Close(); err != nil {
			t.Error(err)
		}
	})

	if reason := confined(real.Roots); reason != "" {
		t.Skip(reason)
	}

	return real
}

// confined returns the reason why the table does not apply to groups there: the test process has less than the whole
// machine.
func confined(roots map[string]string) string {
	cpus, err := numa.ParseCPUSet(text(roots["cpuset"], "cpuset.cpus"))
	if mems := text(roots["cpuset"], "cpuset.mems"); err != nil || !cpus.Contains(0) || !cpus.Contains(1) || !strings.HasPrefix(mems, "0") {
		return fmt.Sprintf("the table is for CPUs 0 and 1 and zone 0, the test has %s and %s", cpus, mems)
	}

	for dir := filepath.Dir(roots["cpu"]); exists(filepath.Join(dir, fileProcs)); dir = filepath.Dir(dir) {
		if quota := text(dir, "cpu.cfs_quota_us"); quota != "" && quota != "-1" {
			return "quotas may not be above that of the test itself, " + quota
		}
	}

	return ""
}
