// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cpupinning

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	topologyv1alpha1 "crane.io/crane/api/topology/v1alpha1"
	"crane.io/crane/internal/agent/host/cgroup"
	"crane.io/crane/internal/agent/report"
	"crane.io/crane/pkg/cpumanager"
	"crane.io/crane/pkg/numa"
	"crane.io/crane/pkg/qos"
)

// Order of writes.
const (
	rankShared = iota
	rankZones
	rankOwn
)

// collectRequests returns the requests of all pods. Pods that the cluster no longer knows keep their CPUs while containers of them exist.
func collectRequests(pods []nodePod, assignments []cpumanager.Assignment, containers map[string][]*cgroup.Container) []cpumanager.Pod {
	known := make(map[string]bool, len(pods))
	var out []cpumanager.Pod
	for i := range pods {
		known[pods[i].uid] = true
		if pods[i].request != nil {
			out = append(out, *pods[i].request)
		}
	}

	var orphaned []cpumanager.Assignment
	for _, h := range assignments {
		if !known[h.Pod] && len(containers[h.Pod]) > 0 {
			orphaned = append(orphaned, h)
		}
	}

	return append(requestsForAssignments(orphaned), out...)
}

// requestsForAssignments returns requests for exactly what is assigned. gocrane's state has no policy; its default was exclusive.
func requestsForAssignments(assignments []cpumanager.Assignment) []cpumanager.Pod {
	var out []cpumanager.Pod
	at := map[string]int{}
	for _, h := range assignments {
		i, ok := at[h.Pod]
		if !ok {
			i = len(out)
			at[h.Pod] = i
			out = append(out, cpumanager.Pod{UID: h.Pod, Policy: cmp.Or(h.Policy, numa.PolicyExclusive), Zones: map[string]int{}})
		}

		c := cpumanager.Container{Name: h.Container}
		for zone, n := range h.Zones {
			out[i].Zones[zone] += n
			c.CPUs += n
		}

		if c.CPUs > 0 {
			out[i].Containers = append(out[i].Containers, c)
		}
	}

	return out
}

// buildTargets returns all containers of the node with their desired CPUs. Sharing containers are left alone while no CPU is exclusive.
func (m *Manager) buildTargets(machine cpumanager.Machine, pods []nodePod, containers map[string][]*cgroup.Container) []containerTarget {
	facts := make(map[string]*nodePod, len(pods))
	for i := range pods {
		facts[pods[i].uid] = &pods[i]
	}

	policies := make(map[cpumanager.ID]numa.Policy, len(m.plan.Assignments))
	for _, h := range m.plan.Assignments {
		policies[h.ID] = h.Policy
	}

	shared := m.plan.Exclusive().Len() > 0
	names := make(map[string]string, len(m.containerNames))
	var out []containerTarget
	for uid, list := range containers {
		pod := facts[uid]
		for _, c := range list {
			g := containerTarget{
				id:    c.ID,
				path:  c.Path,
				owner: "pod " + uid,
				rank:  rankShared,
			}

			name := m.containerNames[c.ID]
			if pod != nil {
				g.owner = pod.name()
				name = cmp.Or(pod.containers[c.ID], name)
			}

			names[c.ID] = name
			id := cpumanager.ID{Pod: uid, Container: name}
			policy, holds := policies[id]
			switch {
			case holds:
				g.cpus = m.plan.CPUs(id)
				g.mems = formatZoneIDs(m.boundMemory[id])
				g.rank = rankOwn
				if policy == numa.PolicyNUMA {
					g.rank = rankZones
				}

			case pod != nil && pod.avoidsReserved && m.plan.Shared.Difference(machine.Reserved).Len() > 0:
				g.cpus = m.plan.Shared.Difference(machine.Reserved)
			case shared:
				g.cpus = m.plan.Shared
			}

			if name != "" {
				g.owner += " " + name
			}
			out = append(out, g)
		}
	}

	m.containerNames = names
	slices.SortFunc(out, func(a, b containerTarget) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.path, b.path))
	})

	return out
}

// formatZoneIDs returns the numbers of zones in the format of cpuset.mems; empty if a name has no number.
func formatZoneIDs(names []string) string {
	var ids []int
	for _, name := range names {
		text, ok := strings.CutPrefix(name, topologyv1alpha1.ZoneNamePrefix)
		id, err := strconv.Atoi(text)
		if !ok || err != nil {
			return ""
		}

		ids = append(ids, id)
	}

	return numa.NewCPUSet(ids...).String()
}

// applyTargets writes all targets. Writes without a new plan correct changes from outside.
func (m *Manager) applyTargets(groups []containerTarget, decided bool) {
	ids := make(map[string]bool, len(groups))
	var errs []error
	corrected := []string{}

	moved := 0
	for i := range groups {
		g := &groups[i]
		ids[g.id] = true

		wrote, err := m.cpusets.apply(g)
		if err != nil {
			errs = append(errs, err)
			continue
		}

		if !wrote {
			continue
		}

		moved++

		if !decided {
			corrected = append(corrected, g.owner)
		}

		m.countWrite(decided)
		m.config.Log.V(1).Info(m.dryRunVerb("set container CPUs", "would set container CPUs"), "container", g.owner, "cpus", g.cpus.String(), "mems", g.mems)
	}

	if err := m.cpusets.undoRemoved(ids); err != nil {
		errs = append(errs, err)
	}
	if moved > 0 && decided {
		m.logMoved("containers", moved, "exclusive", m.plan.Exclusive().String(), "shared", m.plan.Shared.String())
	}
	if len(corrected) > 0 && m.config.Journal != nil {
		m.config.Log.Info("corrected container CPUs that were changed by others", "containers", strings.Join(corrected, ", "))
	}

	m.counts.failed.Add(int64(len(errs)))
	text := ""
	if err := errors.Join(errs...); err != nil {
		text = fmt.Sprintf("failed to set the CPUs of %d of %d containers; retrying: %v", len(errs), len(groups), err)
	}

	m.problems.Log("write", text)
}

func (m *Manager) countWrite(decided bool) {
	switch {
	case m.config.Journal == nil:
	case decided:
		m.counts.moved.Add(1)
	default:
		m.counts.corrected.Add(1)
	}
}

func (m *Manager) dryRunVerb(does, would string) string {
	if m.config.Journal == nil {
		return would
	}

	return does
}

// logMoved logs moved containers; in a dry run once per change.
func (m *Manager) logMoved(values ...any) {
	if m.config.Journal != nil {
		m.config.Log.Info("moved containers", values...)
		return
	}

	m.problems.Log("dry run", "would have moved containers", values...)
}

// reportPlan reports new assignments and refusals, once per change.
func (m *Manager) reportPlan(plan *cpumanager.Plan, pods []nodePod) {
	byUID := make(map[string]*nodePod, len(pods))
	refused := map[cpumanager.ID]string{}
	for i := range pods {
		byUID[pods[i].uid] = &pods[i]
		if why := pods[i].problem; why != "" {
			id := cpumanager.ID{Pod: pods[i].uid}
			refused[id] = why

			if m.reportedRefusals[id] != why {
				m.reportAction(&pods[i], report.Action{
					Outcome:     report.Refused,
					EventReason: ReasonRefused,
					Warning:     true,
					Reason:      why,
				})
			}
		}
	}

	for _, r := range plan.Refused {
		refused[r.ID] = r.Reason
		if p := byUID[r.Pod]; p != nil && m.reportedRefusals[r.ID] != r.Reason {
			a := report.Action{
				Outcome:     report.Refused,
				EventReason: ReasonRefused,
				Warning:     true,
				Container:   r.Container,
			}

			a.Reason = fmt.Sprintf("container %s shares CPUs: %s", r.Container, r.Reason)
			if r.KeepsCPUs {
				a.Reason = fmt.Sprintf("container %s keeps its CPUs: %s", r.Container, r.Reason)
			}

			m.reportAction(p, a)
		}
	}

	m.reportedRefusals = refused
	before := make(map[cpumanager.ID]cpumanager.Assignment, len(m.plan.Assignments))
	for _, h := range m.plan.Assignments {
		before[h.ID] = h
	}

	for _, h := range plan.Assignments {
		old, had := before[h.ID]
		p := byUID[h.Pod]
		if p == nil || had && old.Policy == h.Policy && old.CPUs == h.CPUs && (h.Policy != numa.PolicyNUMA || maps.Equal(old.Zones, h.Zones)) {
			continue
		}

		cpus := plan.CPUs(h.ID).String()
		m.reportAction(p, report.Action{
			Outcome:     report.Done,
			EventReason: ReasonAssigned,
			Container:   h.Container,
			From:        old.CPUs.String(),
			To:          cpus,
			Reason:      fmt.Sprintf("container %s runs on CPUs %s by policy %s", h.Container, cpus, h.Policy),
		})
	}

	m.reportReleased(before, plan, byUID)
}

// reportReleased reports containers of existing pods that lost their CPUs.
func (m *Manager) reportReleased(before map[cpumanager.ID]cpumanager.Assignment, plan *cpumanager.Plan, pods map[string]*nodePod) {
	for _, h := range plan.Assignments {
		delete(before, h.ID)
	}

	for _, id := range slices.SortedFunc(maps.Keys(before), func(a, b cpumanager.ID) int { return strings.Compare(a.String(), b.String()) }) {
		if p := pods[id.Pod]; p != nil {
			m.reportAction(p, report.Action{
				Outcome:     report.Done,
				EventReason: ReasonReleased,
				Container:   id.Container,
				From:        before[id].CPUs.String(),
				Reason:      fmt.Sprintf("container %s shares CPUs again", id.Container),
			})
		}
	}
}

func (m *Manager) reportAction(p *nodePod, a report.Action) {
	a.Kind = report.CPUManager
	a.Pod = qos.PodRef{UID: string(p.UID), Namespace: p.Namespace, Name: p.Name}
	if m.config.Journal == nil {
		a.EventReason = "" // Nothing has happened.
		if a.Outcome == report.Done {
			a.Outcome = report.NotEnforced
		}
	}

	m.config.Report(a)
}
