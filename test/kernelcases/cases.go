// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kernelcases has the known behavior of the kernel's cgroup interface, as steps for tests of real and simulated
// kernels.
package kernelcases

import (
	"fmt"
	"slices"
	"syscall"

	"crane.io/crane/internal/testbed/simnode/kernel/conformance"
)

// Case is a list of steps in a new group.
type Case struct {
	Name  string
	Steps []conformance.Step
}

// Cases returns the known behavior of a cgroup version on a machine with CPUs 0 and 1 and no swap. The parent group
// may use both CPUs; on v2 it has the controllers cpu, cpuset and memory, and delegates none.
func Cases(v1 bool) []Case {
	if v1 {
		return casesV1()
	}

	return casesV2()
}

// Error names of errno(3).
const (
	none = syscall.Errno(0)

	eacces = syscall.EACCES
	eagain = syscall.EAGAIN
	ebusy  = syscall.EBUSY
	eexist = syscall.EEXIST
	einval = syscall.EINVAL
	enoent = syscall.ENOENT
	enospc = syscall.ENOSPC
	erange = syscall.ERANGE
)

func steps(lists ...[]conformance.Step) []conformance.Step { return slices.Concat(lists...) }

// groups returns steps that create groups.
func groups(paths ...string) []conformance.Step {
	out := make([]conformance.Step, len(paths))
	for i, p := range paths {
		out[i] = conformance.Step{Op: conformance.Make, Path: p}
	}

	return out
}

// set returns a step that writes.
func set(path, value string, err syscall.Errno, reads string) conformance.Step {
	return conformance.Step{
		Op:    conformance.Write,
		Path:  path,
		Value: value,
		Err:   err,
		Reads: reads,
	}
}

func read(path, reads string) conformance.Step {
	return conformance.Step{Op: conformance.Read, Path: path, Reads: reads}
}

func do(op conformance.Op, path string, err syscall.Errno) conformance.Step {
	return conformance.Step{Op: op, Path: path, Err: err}
}

func casesV1() []Case { return slices.Concat(cpuV1(), memoryV1(), otherV1()) }

func cpuV1() []Case {
	return []Case{
		{"quota", steps(groups("a", "a/b"), []conformance.Step{
			read("a/b/cpu.cfs_quota_us", "-1"),
			read("a/b/cpu.cfs_period_us", "100000"),
			set("a/b/cpu.cfs_quota_us", "50000", none, "50000"),
			set("a/cpu.cfs_quota_us", "40000", einval, "-1"), // parent below child
			set("a/cpu.cfs_quota_us", "60000", none, "60000"),
			set("a/b/cpu.cfs_quota_us", "70000", einval, "50000"), // child above parent
			set("a/b/cpu.cfs_period_us", "50000", einval, "100000"),
			set("a/b/cpu.cfs_period_us", "200000", none, "200000"),
			set("a/b/cpu.cfs_quota_us", "110000", none, "110000"),
			set("a/b/cpu.cfs_period_us", "100000", einval, "200000"),
			set("a/b/cpu.cfs_period_us", "999", einval, "200000"),
			set("a/b/cpu.cfs_period_us", "1000001", einval, "200000"),
			set("a/b/cpu.cfs_quota_us", "-5", none, "-1"),
			set("a/b/cpu.cfs_quota_us", "999", einval, "-1"),
			set("a/b/cpu.cfs_quota_us", "0", einval, "-1"),
			set("a/b/cpu.cfs_quota_us", "max", einval, "-1"),
			set("a/b/cpu.cfs_quota_us", "", einval, "-1"),
			set("a/cpu.cfs_quota_us", "-1", none, "-1"),
			set("a/b/cpu.cfs_quota_us", "17592186044417", einval, "-1"), // more than the kernel can count
			set("a/b/cpu.cfs_quota_us", "1000000000", none, "1000000000"),
		})},
		{"burst", steps(groups("a"), []conformance.Step{
			read("a/cpu.cfs_burst_us", "0"),
			set("a/cpu.cfs_burst_us", "60000", none, "60000"), // no quota
			set("a/cpu.cfs_quota_us", "50000", einval, "-1"),
			set("a/cpu.cfs_burst_us", "50000", none, "50000"),
			set("a/cpu.cfs_quota_us", "50000", none, "50000"),
			set("a/cpu.cfs_burst_us", "50001", einval, "50000"),
			set("a/cpu.cfs_quota_us", "49999", einval, "50000"),
			set("a/cpu.cfs_burst_us", "-1", einval, "50000"),
			set("a/cpu.cfs_burst_us", "0", none, "0"),
			set("a/cpu.cfs_quota_us", "49999", none, "49999"),
		})},
		{"quota of a grandchild", steps(groups("a", "a/b", "a/b/deep"), []conformance.Step{
			set("a/b/cpu.cfs_quota_us", "50000", none, "50000"),
			set("a/b/deep/cpu.cfs_quota_us", "50000", none, "50000"),
			set("a/b/cpu.cfs_quota_us", "-1", none, "-1"),
			set("a/cpu.cfs_quota_us", "40000", einval, "-1"), // one without a limit between
			set("a/b/deep/cpu.cfs_quota_us", "40000", none, "40000"),
			set("a/cpu.cfs_quota_us", "40000", none, "40000"),
			set("a/b/deep/cpu.cfs_quota_us", "45000", einval, "40000"),
			set("a/b/cpu.cfs_quota_us", "30000", einval, "-1"),
			set("a/b/cpu.cfs_quota_us", "45000", einval, "-1"),
		})},
		{"quota in force", steps(groups("a"), []conformance.Step{
			set("a/cpuset.cpus", "0", none, "0"),
			set("a/cpuset.mems", "0", none, "0"),
			{Op: conformance.Enter, Path: "a", Value: conformance.Spin},
			{Op: conformance.Throttled, Path: "a", Reads: "no"},
			set("a/cpu.cfs_quota_us", "1000", none, "1000"),
			{Op: conformance.Throttled, Path: "a", Reads: "yes"},
			do(conformance.Leave, "a", none),
		})},
		{"shares and idle", steps(groups("a"), []conformance.Step{
			read("a/cpu.shares", "1024"),
			set("a/cpu.shares", "1", none, "2"),
			set("a/cpu.shares", "999999", none, "262144"),
			set("a/cpu.shares", "-1", einval, "262144"),
			set("a/cpu.shares", "x", einval, "262144"),
			set("a/cpu.idle", "2", einval, "0"),
			set("a/cpu.idle", "1", none, "1"),
			read("a/cpu.shares", "3"),
			set("a/cpu.shares", "5", einval, "3"),
			set("a/cpu.idle", "0", none, "0"),
			read("a/cpu.shares", "1024"),
			set("a/cpu.shares", "5", none, "5"),
			set("a/cpu.idle", "0", none, "0"), // changes nothing
			read("a/cpu.shares", "5"),
		})},
	}
}

func otherV1() []Case {
	return []Case{
		{"groups", goneAndBusy("cpu.shares")},
		{"cpuset", steps(groups("a", "a/b", "x", "x/y"), []conformance.Step{
			read("a/cpuset.cpus", ""),
			set("a/b/cpuset.cpus", "1", eacces, ""), // the parent has none
			set("a/cpuset.cpus", "0,1", none, "0-1"),
			set("a/cpuset.cpus", "1-0", einval, "0-1"),
			set("a/cpuset.cpus", "x", einval, "0-1"),
			set("a/cpuset.cpus", "1000", erange, "0-1"),
			set("a/b/cpuset.cpus", "1", none, "1"),
			set("a/cpuset.cpus", "0", ebusy, "0-1"), // the child uses it
			set("a/cpuset.cpus", "", ebusy, "0-1"),
			set("x/cpuset.cpus", "0", none, "0"),
			set("x/y/cpuset.cpus", "1", eacces, ""), // outside the parent
			set("x/y/cpuset.cpus", "0", none, "0"),
			do(conformance.Enter, "x/y", enospc), // no memory yet
			set("x/cpuset.mems", "0", none, "0"),
			set("x/y/cpuset.mems", "0", none, "0"),
			do(conformance.Enter, "x/y", none),
			set("x/y/cpuset.cpus", "", enospc, "0"), // with a process
			set("x/y/cpuset.mems", "", enospc, "0"),
			set("x/cpuset.cpus", "0-1", none, "0-1"),
			set("x/y/cpuset.cpus", "1", none, "1"),
			do(conformance.Leave, "x/y", none),
			set("x/y/cpuset.cpus", "", none, ""),
			set("x/y/cpuset.mems", "", none, ""),
			set("x/cpuset.cpu_exclusive", "yes", einval, "0"),
			set("x/y/cpuset.cpu_exclusive", "1", eacces, "0"), // the parent is not
		})},
	}
}

func memoryV1() []Case {
	return []Case{
		{"memory", steps(groups("a"), []conformance.Step{
			read("a/memory.limit_in_bytes", "9223372036854771712"),
			set("a/memory.limit_in_bytes", "1048577", none, "1048576"), // whole pages
			set("a/memory.limit_in_bytes", "64M", none, "67108864"),
			set("a/memory.limit_in_bytes", "2g", none, "2147483648"),
			set("a/memory.limit_in_bytes", "-1", none, "9223372036854771712"),
			set("a/memory.limit_in_bytes", "-2", einval, "9223372036854771712"),
			set("a/memory.limit_in_bytes", "x", einval, "9223372036854771712"),
			set("a/memory.limit_in_bytes", "1 2", einval, "9223372036854771712"),
			set("a/memory.limit_in_bytes", "", none, "0"),
			set("a/memory.limit_in_bytes", "9223372036854775807", none, "9223372036854771712"),
			set("a/memory.high", "8192", enoent, ""),
			set("a/memory.usage_in_bytes", "8192", einval, "0"),
		})},
		{"memory in use", steps(groups("a"), []conformance.Step{
			set("a/cpuset.cpus", "0", none, "0"),
			set("a/cpuset.mems", "0", none, "0"),
			{Op: conformance.Enter, Path: "a", Value: "32"},
			set("a/memory.limit_in_bytes", "8M", ebusy, "9223372036854771712"), // anonymous memory cannot be reclaimed
			set("a/memory.limit_in_bytes", "128M", none, "134217728"),
			do(conformance.Leave, "a", none),
			set("a/memory.limit_in_bytes", "8M", none, "8388608"),
		})},
	}
}

// goneAndBusy returns steps on removed and busy groups.
func goneAndBusy(file string) []conformance.Step {
	return steps([]conformance.Step{do(conformance.Make, "a/b", enoent)}, groups("a", "a/b"), []conformance.Step{
		do(conformance.Make, "a", eexist),
		do(conformance.Remove, "a", ebusy), // a group below it
		do(conformance.Remove, "a/b", none),
		set("a/b/"+file, "100", enoent, ""),
		do(conformance.Remove, "a/b", enoent),
		do(conformance.Make, "a/b", none),
		do(conformance.Remove, "a/b", none),
		set("a/"+file, "200", none, "200"),
		set("a/cpu.nothing", "1", enoent, ""),
		do(conformance.Remove, "a", none),
		do(conformance.Enter, "a", enoent),
	})
}

// delegate returns steps that make groups delegate the table's controllers.
func delegate(groups ...string) []conformance.Step {
	var out []conformance.Step
	for _, g := range groups {
		if g != "" {
			g += "/"
		}
		out = append(out, set(g+"cgroup.subtree_control", "+cpu +cpuset +memory", none, "cpuset cpu memory"))
	}

	return out
}

func casesV2() []Case { return slices.Concat(cpuV2(), cpusetV2(), groupsV2(), memoryV2()) }

func cpuV2() []Case {
	return []Case{
		{"quota", steps(delegate(""), groups("a"), delegate("a"), groups("a/b"), []conformance.Step{
			read("a/b/cpu.max", "max 100000"),
			set("a/b/cpu.max", "50000 100000", none, "50000 100000"),
			set("a/b/cpu.max", "60000", none, "60000 100000"),
			set("a/b/cpu.max", "999", einval, "60000 100000"),
			set("a/b/cpu.max", "50000 999", einval, "60000 100000"),
			set("a/b/cpu.max", "50000 2000000", einval, "60000 100000"),
			set("a/b/cpu.max", "-1", einval, "60000 100000"),
			set("a/b/cpu.max", "x", einval, "60000 100000"),
			set("a/b/cpu.max", "1 2 3", einval, "60000 100000"),
			set("a/b/cpu.max", "", einval, "60000 100000"),
			set("a/b/cpu.max", "17592186044417", einval, "60000 100000"), // more than the kernel can count
			set("a/cpu.max", "10000", none, "10000 100000"),              // v2 accepts a child above its parent
			set("a/b/cpu.max", "70000", none, "70000 100000"),
			set("a/b/cpu.max", "max 200000", none, "max 200000"),
			set("a/b/cpu.max", "max", none, "max 200000"),
			set("a/b/cpu.shares", "5", enoent, ""),
		})},
		{"burst", steps(delegate(""), groups("a"), []conformance.Step{
			read("a/cpu.max.burst", "0"),
			set("a/cpu.max.burst", "60000", none, "60000"), // no quota
			set("a/cpu.max", "50000", einval, "max 100000"),
			set("a/cpu.max.burst", "50000", none, "50000"),
			set("a/cpu.max", "50000", none, "50000 100000"),
			set("a/cpu.max.burst", "50001", einval, "50000"),
			set("a/cpu.max", "49999", einval, "50000 100000"),
			set("a/cpu.max.burst", "-1", einval, "50000"),
			set("a/cpu.max.burst", "0", none, "0"),
			set("a/cpu.max", "49999", none, "49999 100000"),
		})},
		{"quota in force", steps(delegate(""), groups("a"), delegate("a"), groups("a/b"), []conformance.Step{
			{Op: conformance.Enter, Path: "a/b", Value: conformance.Spin},
			{Op: conformance.Throttled, Path: "a", Reads: "no"},
			set("a/cpu.max", "1000", none, "1000 100000"),
			{Op: conformance.Throttled, Path: "a", Reads: "yes"},
			{Op: conformance.Throttled, Path: "a/b", Reads: "no"}, // the parent has the quota
			do(conformance.Leave, "a/b", none),
		})},
		{"weight and idle", steps(delegate(""), groups("a"), []conformance.Step{
			read("a/cpu.weight", "100"),
			set("a/cpu.weight", "1", none, "1"),
			set("a/cpu.weight", "0", erange, "1"),
			set("a/cpu.weight", "10001", erange, "1"),
			set("a/cpu.weight", "10000", none, "10000"),
			set("a/cpu.weight", "x", einval, "10000"),
			set("a/cpu.weight", "-1", einval, "10000"),
			set("a/cpu.idle", "2", einval, "0"),
			set("a/cpu.idle", "1", none, "1"),
			read("a/cpu.weight", "0"),
			set("a/cpu.weight", "50", einval, "0"), // an idle group has no weight
			set("a/cpu.idle", "0", none, "0"),
			read("a/cpu.weight", "100"),
			set("a/cpu.weight", "50", none, "50"),
			set("a/cpu.idle", "0", none, "0"), // changes nothing
			read("a/cpu.weight", "50"),
		})},
	}
}

func cpusetV2() []Case {
	return []Case{
		{"cpuset", steps(delegate(""), groups("a"), delegate("a"), groups("a/b", "a/c"), []conformance.Step{
			do(conformance.Enter, "a/b", none),
			set("a/b/cpuset.cpus", "0,1", none, "0-1"),
			set("a/b/cpuset.cpus", "1000", erange, "0-1"),
			set("a/b/cpuset.cpus", "1-0", einval, "0-1"),
			set("a/b/cpuset.cpus", "", enospc, "0-1"), // with a process, before Linux 6.17
			set("a/cpuset.cpus", "1", none, "1"),      // v2 accepts a child outside its parent
			read("a/b/cpuset.cpus.effective", "1"),
			read("a/c/cpuset.cpus.effective", "1"),
			set("a/b/cpuset.cpus", "0", none, "0"),
			read("a/b/cpuset.cpus.effective", "1"), // its own set is empty
			set("a/b/cpuset.cpus.effective", "1", einval, "1"),
			set("a/c/cpuset.cpus", "0", none, "0"),
			set("a/c/cpuset.cpus", "", none, ""),
			set("a/c/cpuset.mems", "1", einval, ""),
			set("a/b/cpuset.mems", "0", none, "0"),
			set("a/b/cpuset.mems", "", enospc, "0"),
			do(conformance.Leave, "a/b", none),
			set("a/b/cpuset.cpus", "", none, ""),
			set("a/b/cpuset.mems", "", none, ""),
		})},
	}
}

func memoryV2() []Case {
	return []Case{
		{"memory", steps(delegate(""), groups("a"), []conformance.Step{
			read("a/memory.high", "max"),
			set("a/memory.high", "1048577", none, "1048576"), // whole pages
			set("a/memory.high", "8K", none, "8192"),
			set("a/memory.high", "64m", none, "67108864"),
			set("a/memory.high", "-1", einval, "67108864"),
			set("a/memory.high", "x", einval, "67108864"),
			set("a/memory.high", "1 2", einval, "67108864"),
			set("a/memory.high", "max", none, "max"),
			set("a/memory.high", "9223372036854775807", none, "max"),
			set("a/memory.max", "10G", none, "10737418240"),
			set("a/memory.min", "x", einval, "0"),
			set("a/memory.low", "4096", none, "4096"),
			set("a/memory.low", "", none, "0"),
			set("a/memory.current", "0", einval, "0"),
		})},
		{"memory in use", steps(delegate(""), groups("a"), []conformance.Step{
			{Op: conformance.Enter, Path: "a", Value: "32"},
			set("a/memory.high", "8M", none, "8388608"), // anonymous memory above it stays
			set("a/memory.reclaim", "32M", eagain, ""),
			set("a/memory.high", "max", none, "max"),
			set("a/memory.max", "128M", none, "134217728"),
			set("a/memory.max", "8M", none, "8388608"), // the process is killed
		})},
		{"reclaim", steps(delegate(""), groups("a"), []conformance.Step{
			set("a/memory.reclaim", "x", einval, ""),
			set("a/memory.reclaim", "4096 swappiness=201", einval, ""),
			set("a/memory.reclaim", "4096 all", einval, ""),
			set("a/memory.reclaim", "0", none, ""),
			set("a/memory.reclaim", "4096", eagain, ""), // nothing to reclaim
		})},
	}
}

func groupsV2() []Case {
	return []Case{
		{"groups", steps(delegate(""), goneAndBusy("cpu.weight"))},
		{"no processes beside groups", steps(delegate(""), groups("a"), delegate("a"), groups("a/b"), []conformance.Step{
			do(conformance.Enter, "a", ebusy), // it delegates controllers
			do(conformance.Enter, "a/b", none),
			set("a/b/cgroup.subtree_control", "+memory", ebusy, ""), // it has a process
			set("a/b/cgroup.subtree_control", "+cpu", none, "cpu"),  // allowed for threaded controllers
			do(conformance.Enter, "a/b", none),
			do(conformance.Remove, "a/b", ebusy),
			do(conformance.Remove, "a", ebusy),
			do(conformance.Leave, "a/b", none),
			set("a/b/cgroup.subtree_control", "+memory", none, "cpu memory"),
			do(conformance.Enter, "a/b", ebusy),
			do(conformance.Remove, "a/b", none),
		})},
		{"controllers", steps(groups("a"), []conformance.Step{
			read("cgroup.subtree_control", ""),
			set("a/cpu.max", "max", enoent, ""), // not delegated
			set("cgroup.subtree_control", "+memory +cpu", none, "cpu memory"),
			read("a/cgroup.controllers", "cpu memory"),
			read("a/cpu.max", "max 100000"),
			set("a/cpuset.cpus", "0", enoent, ""),
			set("a/cgroup.subtree_control", "+cpuset", enoent, ""),
			set("cgroup.subtree_control", "cpu", einval, "cpu memory"),
			set("cgroup.subtree_control", "+nothing", einval, "cpu memory"),
			set("a/cgroup.subtree_control", "+cpu", none, "cpu"),
			set("cgroup.subtree_control", "-cpu", ebusy, "cpu memory"), // delegated below
			set("a/cgroup.subtree_control", "-cpu", none, ""),
			set("a/cpu.weight", "7", none, "7"),
			set("cgroup.subtree_control", "-cpu +cpuset", none, "cpuset memory"),
			set("a/cpu.max", "max", enoent, ""),
			set("cgroup.subtree_control", "+cpu", none, "cpuset cpu memory"),
			read("a/cpu.weight", "100"), // reset
			set("cgroup.subtree_control", "", none, "cpuset cpu memory"),
		})},
	}
}

// Differences returns a line for each step whose result differs from the expected one.
func Differences(steps []conformance.Step, got []conformance.Outcome) []string {
	if len(got) != len(steps) {
		return []string{fmt.Sprintf("%d answers to %d steps", len(got), len(steps))}
	}

	var out []string
	for i, s := range steps {
		g := got[i]
		switch {
		case g.Trouble != "":
			out = append(out, fmt.Sprintf("step %d, %s: %s", i, s, g.Trouble))
		case g.Err != s.Err:
			out = append(out, fmt.Sprintf("step %d, %s: %s, want %s", i, s, name(g.Err), name(s.Err)))
		case s.Err != syscall.ENOENT && (s.Op == conformance.Write || s.Op == conformance.Read || s.Op == conformance.Throttled) && g.Reads != s.Reads:
			out = append(out, fmt.Sprintf("step %d, %s: reads %q, want %q", i, s, g.Reads, s.Reads))
		}
	}

	return out
}

func name(e syscall.Errno) string {
	if e == 0 {
		return "no error"
	}

	return e.Error()
}
