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

// The order of writes.
const (
	rankShared = iota
	rankZones
	rankOwn
)

// claimsOf are the pods that are to have CPUs: those that ask for some, and those that the cluster has forgotten while their containers are
// still there, which keep what they have.
func claimsOf(pods []podFacts, holdings []cpumanager.Holding, there map[string][]*cgroup.Container) []cpumanager.Pod {
	known := make(map[string]bool, len(pods))
	var out []cpumanager.Pod
	for i := range pods {
		known[pods[i].uid] = true
		if pods[i].claim != nil {
			out = append(out, *pods[i].claim)
		}
	}
	var lingering []cpumanager.Holding
	for _, h := range holdings {
		if !known[h.Pod] && len(there[h.Pod]) > 0 {
			lingering = append(lingering, h)
		}
	}
	return append(asClaims(lingering), out...)
}

// asClaims asks for what is held already. Of what gocrane's agent wrote the policy is not known; that of a pod with CPUs was exclusive
// unless it said so.
func asClaims(holdings []cpumanager.Holding) []cpumanager.Pod {
	var out []cpumanager.Pod
	at := map[string]int{}
	for _, h := range holdings {
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

// groups are all containers of the node with where they are to run. While nobody has a CPU alone, those who share stay as they are.
func (m *Manager) groups(machine cpumanager.Machine, claims []cpumanager.Pod, pods []podFacts, there map[string][]*cgroup.Container) []group {
	facts := make(map[string]*podFacts, len(pods))
	for i := range pods {
		facts[pods[i].uid] = &pods[i]
	}
	near, far := cpumanager.Near(machine, &m.plan, claims)
	m.noteMemory(far)
	policies := make(map[cpumanager.ID]numa.Policy, len(m.plan.Holdings))
	for _, h := range m.plan.Holdings {
		policies[h.ID] = h.Policy
	}
	shared := m.plan.Exclusive().Len() > 0
	names := make(map[string]string, len(m.names))
	var out []group
	for uid, list := range there {
		pod := facts[uid]
		for _, c := range list {
			g := group{id: c.ID, path: c.Path, owner: "pod " + uid, rank: rankShared}
			name := m.names[c.ID]
			if pod != nil {
				g.owner, name = pod.name(), cmp.Or(pod.containers[c.ID], name)
			}
			names[c.ID] = name
			id := cpumanager.ID{Pod: uid, Container: name}
			policy, holds := policies[id]
			switch {
			case holds:
				g.cpus, g.mems, g.rank = m.plan.CPUs(id), zoneIDs(near[id]), rankOwn
				if policy == numa.PolicyNUMA {
					g.rank = rankZones
				}
			case pod != nil && pod.spared && m.plan.Shared.Difference(machine.Reserved).Len() > 0:
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
	m.names = names
	slices.SortFunc(out, func(a, b group) int { return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.path, b.path)) })
	return out
}

// zoneIDs are the numbers of zones, as the kernel writes them.
func zoneIDs(names []string) string {
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

// write brings all groups to where they are to run. What was not decided anew and is written all the same has been changed by somebody else.
func (m *Manager) write(groups []group, decided bool) {
	ids := make(map[string]bool, len(groups))
	var errs []error
	mended, moved := []string{}, 0
	for i := range groups {
		g := &groups[i]
		ids[g.id] = true
		wrote, err := m.sets.apply(g)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if !wrote {
			continue
		}
		if moved++; !decided {
			mended = append(mended, g.owner)
		}
		m.count(decided)
		m.config.Log.V(1).Info(m.verb("Runs", "Would run"), "container", g.owner, "cpus", g.cpus.String(), "mems", g.mems)
	}
	if err := m.sets.forgetGone(ids); err != nil {
		errs = append(errs, err)
	}
	if moved > 0 && decided {
		m.tellDry("Moved containers", "containers", moved, "exclusive", m.plan.Exclusive().String(), "shared", m.plan.Shared.String())
	}
	if len(mended) > 0 && m.config.Journal != nil {
		m.config.Log.Info("Somebody else had changed where containers run; it is put right", "containers", strings.Join(mended, ", "))
	}
	m.counts.failed.Add(int64(len(errs)))
	text := ""
	if err := errors.Join(errs...); err != nil {
		text = fmt.Sprintf("Cannot write where %d of %d containers run; it is tried again: %v", len(errs), len(groups), err)
	}
	m.tell("write", text)
}

// count counts a write, which in a dry run there is none of.
func (m *Manager) count(decided bool) {
	switch {
	case m.config.Journal == nil:
	case decided:
		m.counts.moved.Add(1)
	default:
		m.counts.mended.Add(1)
	}
}

func (m *Manager) verb(does, would string) string {
	if m.config.Journal == nil {
		return would
	}
	return does
}

// tellDry logs what was done; in a dry run what would be, once.
func (m *Manager) tellDry(what string, values ...any) {
	if m.config.Journal != nil {
		m.config.Log.Info(what, values...)
		return
	}
	if text := fmt.Sprint(values...); m.told["dry"] != text {
		m.told["dry"] = text
		m.config.Log.Info("Would have "+strings.ToLower(what[:1])+what[1:], values...)
	}
}

// tell logs a trouble once, and that it is over.
func (m *Manager) tell(what, text string) {
	before := m.told[what]
	if before == text {
		return
	}
	if m.told[what] = text; text == "" {
		m.config.Log.Info("Is over", "trouble", before)
		return
	}
	m.config.Log.Info(text)
}

// announce tells of containers that got CPUs, or do not get them, once for each change.
func (m *Manager) announce(plan *cpumanager.Plan, pods []podFacts) {
	byUID := make(map[string]*podFacts, len(pods))
	refused := map[cpumanager.ID]string{}
	for i := range pods {
		byUID[pods[i].uid] = &pods[i]
		if why := pods[i].problem; why != "" {
			id := cpumanager.ID{Pod: pods[i].uid}
			if refused[id] = why; m.refused[id] != why {
				m.did(&pods[i], report.Action{Outcome: report.Refused, Event: ReasonRefused, Warning: true, Why: why})
			}
		}
	}
	for _, r := range plan.Refused {
		refused[r.ID] = r.Why
		if p := byUID[r.Pod]; p != nil && m.refused[r.ID] != r.Why {
			a := report.Action{Outcome: report.Refused, Event: ReasonRefused, Warning: true, Container: r.Container}
			a.Why = fmt.Sprintf("container %s shares CPUs: %s", r.Container, r.Why)
			if r.Keeps {
				a.Why = fmt.Sprintf("container %s keeps the CPUs that it has: %s", r.Container, r.Why)
			}
			m.did(p, a)
		}
	}
	m.refused = refused
	before := make(map[cpumanager.ID]cpumanager.Holding, len(m.plan.Holdings))
	for _, h := range m.plan.Holdings {
		before[h.ID] = h
	}
	for _, h := range plan.Holdings {
		old, had := before[h.ID]
		p := byUID[h.Pod]
		if p == nil || had && old.Policy == h.Policy && old.CPUs == h.CPUs && (h.Policy != numa.PolicyNUMA || maps.Equal(old.Zones, h.Zones)) {
			continue
		}
		cpus := plan.CPUs(h.ID).String()
		m.did(p, report.Action{
			Outcome: report.Done, Event: ReasonAssigned, Container: h.Container, From: old.CPUs.String(), To: cpus,
			Why: fmt.Sprintf("container %s runs on the CPUs %s by policy %s", h.Container, cpus, h.Policy),
		})
	}
	m.released(before, plan, byUID)
}

// released tells of containers of pods that still are and have no CPUs of their own any more.
func (m *Manager) released(before map[cpumanager.ID]cpumanager.Holding, plan *cpumanager.Plan, pods map[string]*podFacts) {
	for _, h := range plan.Holdings {
		delete(before, h.ID)
	}
	for _, id := range slices.SortedFunc(maps.Keys(before), func(a, b cpumanager.ID) int { return strings.Compare(a.String(), b.String()) }) {
		if p := pods[id.Pod]; p != nil {
			m.did(p, report.Action{
				Outcome: report.Done, Event: ReasonReleased, Container: id.Container, From: before[id].CPUs.String(),
				Why: fmt.Sprintf("container %s shares CPUs again", id.Container),
			})
		}
	}
}

func (m *Manager) did(p *podFacts, a report.Action) {
	a.Kind, a.Pod = report.CPUManager, qos.PodRef{UID: string(p.UID), Namespace: p.Namespace, Name: p.Name}
	if m.config.Journal == nil {
		a.Event = "" // Nothing has happened.
		if a.Outcome == report.Done {
			a.Outcome = report.Would
		}
	}
	m.config.Did(a)
}

// noteMemory tells of containers whose memory is not bound to their zones, once for each reason.
func (m *Manager) noteMemory(far map[cpumanager.ID]string) {
	for id, why := range far {
		if m.noted[id] != why {
			m.config.Log.V(1).Info("Memory may be from any zone", "container", id.String(), "why", why)
		}
	}
	m.noted = far
}
