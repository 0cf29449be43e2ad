// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cpupinning

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path"
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
	listed := make(map[string]bool, len(pods))
	var out []cpumanager.Pod
	for i := range pods {
		listed[pods[i].uid] = true
		if pods[i].request != nil {
			out = append(out, *pods[i].request)
		}
	}

	var orphaned []cpumanager.Assignment
	for _, a := range assignments {
		if !listed[a.Pod] && len(containers[a.Pod]) > 0 {
			orphaned = append(orphaned, a)
		}
	}

	return append(requestsForAssignments(orphaned), out...)
}

// requestsForAssignments returns requests for exactly what is assigned. gocrane's state has no policy; its default was exclusive.
func requestsForAssignments(assignments []cpumanager.Assignment) []cpumanager.Pod {
	var out []cpumanager.Pod
	indices := map[string]int{}
	for _, a := range assignments {
		i, ok := indices[a.Pod]
		if !ok {
			i = len(out)
			indices[a.Pod] = i
			out = append(out, cpumanager.Pod{UID: a.Pod, Policy: cmp.Or(a.Policy, numa.PolicyExclusive), Zones: map[string]int{}})
		}

		c := cpumanager.Container{Name: a.Container}
		for zone, n := range a.Zones {
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
	podsByUID := make(map[string]*nodePod, len(pods))
	for i := range pods {
		podsByUID[pods[i].uid] = &pods[i]
	}

	policies := make(map[cpumanager.ID]numa.Policy, len(m.plan.Assignments))
	for _, a := range m.plan.Assignments {
		policies[a.ID] = a.Policy
	}

	shared := m.plan.Exclusive().Len() > 0
	names := make(map[string]string, len(m.containerNames))
	var out []containerTarget
	// A container runs on its own CPUs, on the shared ones without the reserved, or on the shared ones.
	for uid, list := range containers {
		pod := podsByUID[uid]
		for _, c := range list {
			target := containerTarget{
				id:    c.ID,
				path:  c.Path,
				pod:   uid,
				owner: "pod " + uid,
				rank:  rankShared,
			}

			name := m.containerNames[c.ID]
			if pod != nil {
				target.owner = pod.name()
				name = cmp.Or(pod.containers[c.ID], name)
			}

			names[c.ID] = name
			id := cpumanager.ID{Pod: uid, Container: name}
			policy, assigned := policies[id]
			switch {
			case pod != nil && pod.optedOut: // It gets back what the agent changed before.
			case assigned:
				target.cpus = m.plan.CPUs(id)
				target.mems = formatZoneIDs(m.boundMemory[id])
				target.rank = rankOwn
				target.ownCPUs = policy == numa.PolicyExclusive
				if policy == numa.PolicyNUMA {
					target.rank = rankZones
				}

			case pod != nil && pod.avoidsReserved && m.plan.Shared.Difference(machine.Reserved).Len() > 0:
				target.cpus = m.plan.Shared.Difference(machine.Reserved)
			case shared:
				target.cpus = m.plan.Shared
			}

			if name != "" {
				target.owner += " " + name
			}
			out = append(out, target)
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
func (m *Manager) applyTargets(targets []containerTarget, pods []nodePod, decided bool) {
	ids := make(map[string]bool, len(targets))
	var errs []error
	corrected := []string{}

	moved := 0
	for i := range targets {
		target := &targets[i]
		ids[target.id] = true

		wrote, err := m.cpusets.apply(target)
		if err != nil {
			errs = append(errs, err)
			continue
		}

		if !wrote {
			continue
		}

		moved++

		if !decided {
			corrected = append(corrected, target.owner)
		}

		m.countWrite(decided)
		m.config.Log.V(1).Info("setting container CPUs", "dryRun", m.config.Journal == nil, "container", target.owner, "cpus", target.cpus.String(), "zones", target.mems)
	}

	if err := m.cpusets.liftQuotas(groupsWithoutQuota(targets, pods)); err != nil {
		errs = append(errs, err)
	}

	// A removed container has no target; its unit would otherwise stay in the journal.
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
	m.problems.Error("write", "setting CPUs of containers; retrying", errors.Join(errs...), "failed", len(errs), "containers", len(targets))
}

// groupsWithoutQuota returns the containers with exclusive CPUs and their pods, by group, with their names. The quota of a pod that is limited
// as a whole stays, since its other containers may have none.
func groupsWithoutQuota(targets []containerTarget, pods []nodePod) map[string]string {
	limited := map[string]bool{}
	for i := range pods {
		limited[pods[i].uid] = pods[i].Spec.Resources != nil
	}

	out := map[string]string{}
	for i := range targets {
		t := &targets[i]
		if !t.ownCPUs {
			continue
		}

		out[t.path] = t.owner
		if isLimited, known := limited[t.pod]; known && !isLimited {
			out[path.Dir(t.path)] = "the pod of " + t.owner
		}
	}

	return out
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
	// Problems of annotations first: these pods have no request in the plan.
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
	for _, assignment := range m.plan.Assignments {
		before[assignment.ID] = assignment
	}

	for _, assignment := range plan.Assignments {
		old, existed := before[assignment.ID]
		p := byUID[assignment.Pod]
		if p == nil || existed && old.Policy == assignment.Policy && old.CPUs == assignment.CPUs && (assignment.Policy != numa.PolicyNUMA || maps.Equal(old.Zones, assignment.Zones)) {
			continue
		}

		cpus := plan.CPUs(assignment.ID).String()
		m.reportAction(p, report.Action{
			Outcome:     report.Done,
			EventReason: ReasonAssigned,
			Container:   assignment.Container,
			From:        old.CPUs.String(),
			To:          cpus,
			Reason:      fmt.Sprintf("container %s runs on CPUs %s by policy %s", assignment.Container, cpus, assignment.Policy),
		})
	}

	m.reportReleased(before, plan, byUID)
}

// reportReleased reports containers of existing pods that lost their CPUs.
func (m *Manager) reportReleased(before map[cpumanager.ID]cpumanager.Assignment, plan *cpumanager.Plan, pods map[string]*nodePod) {
	for _, assignment := range plan.Assignments {
		delete(before, assignment.ID)
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
