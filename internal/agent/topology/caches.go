// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"fmt"

	"crane.io/crane/internal/agent/host"
	"crane.io/crane/pkg/numa"
)

// readCaches returns the L3 cache of each CPU, identified by the lowest CPU that shares it. It lacks CPUs without one and those whose cache is
// unknown: many virtual machines list none, which is no problem.
func (s *sysfsReader) readCaches(cpus numa.CPUSet) map[int]int {
	caches := map[int]int{}
	unknown, err := groupCPUs(cpus, caches, s.readCache)
	if unknown > 0 {
		s.problemf("L3 caches of %d CPUs are unknown: %v", unknown, err)
	}

	return caches
}

// readCache returns the CPUs that share the L3 cache of a CPU. The error is host.ErrGone if it has none.
func (s *sysfsReader) readCache(cpu int) (numa.CPUSet, error) {
	dir := fmt.Sprintf("cpu/cpu%d/cache/index3", cpu)
	shared, err := s.readCPUs(dir + "/shared_cpu_list")
	if err != nil {
		return numa.CPUSet{}, err
	}

	// The third cache is of level 3, except on machines that have several of a lower level.
	content, err := s.read("sys/devices/system", dir, "level")
	if err != nil {
		return numa.CPUSet{}, err
	}

	level, err := host.ParseSingle(content)
	if err == nil && level != 3 {
		return numa.CPUSet{}, host.ErrGone
	}

	if err == nil && !shared.Contains(cpu) {
		err = fmt.Errorf("CPU %d is not among those that share its cache, %s", cpu, shared)
	}

	return shared, err
}
