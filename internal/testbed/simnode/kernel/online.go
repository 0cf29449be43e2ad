// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"fmt"
	"path/filepath"

	"crane.io/crane/pkg/numa"
)

// SetOnline does what the kernel does when CPUs go offline or online (cpuset_handle_hotplug in kernel/cgroup/cpuset.c): on v1 a group loses
// offline CPUs, and has to be given them again when they are back; on v2 only the effective CPUs change.
func (t *Tree) SetOnline(cpus numa.CPUSet) error {
	t.mu.Lock()
	defer t.mu.Unlock()

	t.CPUs = cpus.String()
	r := t.hierarchy().cpuset()
	root := filepath.Clean(r.root("cpuset"))
	file := "cpuset.cpus.effective"
	if r.V1 {
		file = "cpuset.cpus"
	}

	if err := set(root, file, cpus.String()); err != nil {
		return fmt.Errorf("setting online CPUs: %w", err)
	}

	groups, err := subgroups(root)
	if err != nil {
		return fmt.Errorf("setting online CPUs: %w", err)
	}

	for _, group := range groups {
		dir := filepath.Join(root, group)
		if r.V1 {
			err = r.loseCPUs(dir, cpus)
		} else {
			err = r.effective(dir)
		}

		if err != nil {
			return fmt.Errorf("setting online CPUs: %w", err)
		}
	}

	return nil
}

func (r cpusetRules) loseCPUs(dir string, online numa.CPUSet) error {
	if err := set(dir, "cpuset.cpus", r.readCPUSet(dir).cpus.Intersection(online).String()); err != nil {
		return err
	}

	groups, err := subgroups(dir)
	if err != nil {
		return err
	}

	for _, group := range groups {
		if err := r.loseCPUs(filepath.Join(dir, group), online); err != nil {
			return err
		}
	}

	return nil
}
