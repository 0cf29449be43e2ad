// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cpupinning

import (
	"errors"
	"fmt"
	"time"

	"crane.io/crane/internal/agent/topology"
	"crane.io/crane/pkg/cpumanager"
	"crane.io/crane/pkg/series"
)

// maxUseAge is the greatest age of a measurement of memory by which containers are bound to zones.
const maxUseAge = time.Minute

// bindMemory decides which containers may allocate memory only in the zones of their CPUs; none if the setting is off or the use of the
// zones is unknown.
func (m *Manager) bindMemory(machine cpumanager.Machine, facts *topology.NodeTopology, requests []cpumanager.Pod) {
	if !m.config.BindMemory {
		return
	}
	var err error
	if machine.OtherMemory, err = m.measureOtherMemory(machine, facts); err != nil {
		m.problems.Log("memory", "binding no memory to zones: "+err.Error())
		m.boundMemory = nil
		return
	}
	m.problems.Log("memory", "")
	bound, unbound := cpumanager.BindMemory(machine, &m.plan, requests, m.boundMemory)
	m.logUnboundMemory(unbound)
	m.boundMemory = bound
}

// measureOtherMemory returns the memory in use in each zone of the machine, without that of bound containers and as far as it exceeds what
// the kubelet keeps from pods. The memory of a bound container counts as distributed like its CPUs.
func (m *Manager) measureOtherMemory(machine cpumanager.Machine, facts *topology.NodeTopology) (map[string]series.Bytes, error) {
	s := m.config.Latest.Load()
	if s == nil {
		return nil, errors.New("the use of memory is unknown")
	}
	if age := m.config.Clock.Since(s.At); age > maxUseAge {
		return nil, fmt.Errorf("the use of memory was measured %s ago", age.Truncate(time.Second))
	}
	used := map[string]series.Bytes{}
	for i := range facts.Machine.Zones {
		z := &facts.Machine.Zones[i]
		found := false
		for j := range s.Node.Zones {
			if seen := &s.Node.Zones[j]; seen.ID == z.ID && seen.Memory.OK {
				used[z.Name()], found = seen.Memory.Value.Used(), true
			}
		}
		if !found && machine.Memory[z.Name()] > 0 {
			return nil, fmt.Errorf("the use of memory of zone %s is unknown", z.Name())
		}
	}
	counts := map[cpumanager.ID]map[string]int{}
	for _, h := range m.plan.Assignments {
		if m.boundMemory[h.ID] != nil {
			counts[h.ID] = h.Zones
		}
	}
	for i := range s.Pods {
		for j := range s.Pods[i].Containers {
			c := &s.Pods[i].Containers[j]
			zones := counts[cpumanager.ID{Pod: s.Pods[i].UID, Container: m.containerNames[c.ID]}]
			if zones == nil || !c.Memory.OK {
				continue
			}
			cpus := 0
			for _, n := range zones {
				cpus += n
			}
			for zone, n := range zones {
				used[zone] -= c.Memory.Value.Unreclaimable() * series.Bytes(n) / series.Bytes(cpus)
			}
		}
	}
	for i := range facts.Machine.Zones {
		z := &facts.Machine.Zones[i]
		used[z.Name()] = max(used[z.Name()]-(z.Memory-machine.Memory[z.Name()]), 0)
	}
	return used, nil
}

// logUnboundMemory logs containers whose memory is not bound to their zones, once per reason.
func (m *Manager) logUnboundMemory(unbound map[cpumanager.ID]string) {
	for id, why := range unbound {
		if m.loggedMemory[id] != why {
			m.config.Log.V(1).Info("memory is not bound to zones", "container", id.String(), "why", why)
		}
	}
	m.loggedMemory = unbound
}
