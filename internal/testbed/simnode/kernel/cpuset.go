// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"cmp"
	"path/filepath"
	"strings"
	"syscall"

	"crane.io/crane/pkg/numa"
)

// cpuset contains the CPUs and memory nodes of a group as sets of numbers.
type cpuset struct {
	cpus, mems          numa.CPUSet
	cpuOnly, memoryOnly bool // v1's cpu_exclusive and mem_exclusive
}

// cpusetRules are the rules of the cpuset controller.
type cpusetRules struct{ hierarchy }

func (r cpusetRules) readCPUSet(dir string) cpuset {
	list := func(file string) numa.CPUSet {
		s, err := numa.ParseCPUSet(text(dir, file))
		if err != nil {
			return numa.CPUSet{}
		}

		return s
	}

	return cpuset{list("cpuset.cpus"), list("cpuset.mems"), text(dir, "cpuset.cpu_exclusive") == "1", text(dir, "cpuset.mem_exclusive") == "1"}
}

// within implements is_cpuset_subset in kernel/cgroup/cpuset-v1.c.
func (s cpuset) within(o cpuset) bool {
	return s.cpus.Difference(o.cpus).Len() == 0 && s.mems.Difference(o.mems).Len() == 0 && (!s.cpuOnly || o.cpuOnly) && (!s.memoryOnly || o.memoryOnly)
}

func (h hierarchy) machine() (cpus, mems string) { return cmp.Or(h.CPUs, "0-3"), cmp.Or(h.Mems, "0") }

func (r cpusetRules) rootCPUSet() map[string]string {
	cpus, mems := r.machine()
	if r.V1 {
		return map[string]string{
			"cpuset.cpus": cpus + "\n", "cpuset.mems": mems + "\n", "cpuset.cpu_exclusive": "1\n", "cpuset.mem_exclusive": "1\n",
		}
	}

	return map[string]string{"cpuset.cpus.effective": cpus + "\n", "cpuset.mems.effective": mems + "\n"}
}

// newCPUSet returns the cpuset files of a new group: a v1 group starts without CPUs and accepts processes only once it
// has some; a v2 group uses those of its parent.
func (r cpusetRules) newCPUSet(dir string) map[string]string {
	files := map[string]string{"cpuset.cpus": "\n", "cpuset.mems": "\n"}
	if r.V1 {
		files["cpuset.cpu_exclusive"] = "0\n"
		files["cpuset.mem_exclusive"] = "0\n"
		return files
	}

	parent := filepath.Dir(dir)
	files["cpuset.cpus.effective"] = text(parent, "cpuset.cpus.effective") + "\n"
	files["cpuset.mems.effective"] = text(parent, "cpuset.mems.effective") + "\n"

	return files
}

func (r cpusetRules) setCPUSet(dir, name, value string) error {
	now := r.readCPUSet(dir)
	next := now
	switch {
	case name == "cpuset.cpus", name == "cpuset.mems":
		if r.isRoot(dir) {
			return syscall.EACCES // update_cpumask and update_nodemask in kernel/cgroup/cpuset.c
		}

		list, err := numa.ParseCPUSet(value)
		cpus, mems := r.machine()
		machineList := cpus
		target := &next.cpus
		if name == "cpuset.mems" {
			machineList = mems
			target = &next.mems
		}

		all, bad := numa.ParseCPUSet(machineList)
		if err != nil || bad != nil {
			return syscall.EINVAL
		}

		if list.Difference(all).Len() > 0 {
			if name == "cpuset.cpus" {
				return syscall.ERANGE // bitmap_parselist in lib/bitmap-str.c: a number beyond the last CPU
			}

			return syscall.EINVAL
		}

		*target = list
		value = list.String()

	case r.V1 && (name == "cpuset.cpu_exclusive" || name == "cpuset.mem_exclusive"):
		if value != "0" && value != "1" {
			return syscall.EINVAL
		}

		if name == "cpuset.cpu_exclusive" {
			next.cpuOnly = value == "1"
		} else {
			next.memoryOnly = value == "1"
		}

	default:
		return errReadOnly
	}

	if err := r.validate(dir, now, next); err != nil {
		return err
	}

	if err := set(dir, name, value); err != nil || r.V1 {
		return err
	}

	return r.effective(dir)
}

// validate implements validate_change in kernel/cgroup/cpuset.c with cpuset1_validate_change in cpuset-v1.c.
func (r cpusetRules) validate(dir string, now, next cpuset) error {
	names, err := subgroups(dir)
	if err != nil {
		return err
	}

	for _, name := range names {
		if r.V1 && !r.readCPUSet(filepath.Join(dir, name)).within(next) {
			return syscall.EBUSY
		}
	}

	parent := filepath.Dir(dir)
	if r.isRoot(dir) {
		return nil
	}

	if r.V1 && !next.within(r.readCPUSet(parent)) {
		return syscall.EACCES
	}

	// Until Linux 6.16 this applied to v2 as well; from 6.17 only to v1.
	if r.populated(dir) && (now.cpus.Len() > 0 && next.cpus.Len() == 0 || now.mems.Len() > 0 && next.mems.Len() == 0) {
		return syscall.ENOSPC
	}

	return r.exclusive(dir, next)
}

// exclusive returns an error for CPUs and memory nodes that a sibling uses exclusively, or that a sibling uses if the
// group is exclusive.
func (r cpusetRules) exclusive(dir string, next cpuset) error {
	parent := filepath.Dir(dir)
	siblings, err := subgroups(parent)
	if err != nil {
		return err
	}

	for _, name := range siblings {
		if name == filepath.Base(dir) {
			continue
		}

		s := r.readCPUSet(filepath.Join(parent, name))
		if (next.cpuOnly || s.cpuOnly) && next.cpus.Intersection(s.cpus).Len() > 0 ||
			(next.memoryOnly || s.memoryOnly) && next.mems.Intersection(s.mems).Len() > 0 {
			return syscall.EINVAL
		}
	}

	return nil
}

// effective implements update_cpumasks_hier: the effective set is the intersection with the parent's, or the parent's
// if the intersection is empty.
func (r cpusetRules) effective(dir string) error {
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		parentSet, err := numa.ParseCPUSet(text(filepath.Dir(dir), file+".effective"))
		if err != nil {
			return syscall.EINVAL
		}

		groupSet, err := numa.ParseCPUSet(text(dir, file))
		if err != nil {
			return syscall.EINVAL
		}

		groupSet = groupSet.Intersection(parentSet)
		if groupSet.Len() == 0 {
			groupSet = parentSet
		}

		if err := set(dir, file+".effective", groupSet.String()); err != nil {
			return err
		}
	}

	// The groups below inherit the change.
	names, err := subgroups(dir)
	if err != nil {
		return err
	}

	for _, name := range names {
		if strings.HasPrefix(name, ".") {
			continue
		}

		if err := r.effective(filepath.Join(dir, name)); err != nil {
			return err
		}
	}

	return nil
}
