// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package podresource

import (
	"context"
	"errors"
	"path"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"crane.io/crane/internal/agent/act"
	"crane.io/crane/internal/agent/cluster"
	"crane.io/crane/internal/agent/host/cgroup"
	"crane.io/crane/internal/agent/observe"
	"crane.io/crane/internal/agent/report"
	"crane.io/crane/pkg/qos"
)

const (
	// reconcileEvery is the time between two comparisons; a container that starts runs without limits for that long.
	reconcileEvery = 5 * time.Second
	// cleanEvery is how many of them there are for one look at what the journal still has of pods that are gone.
	cleanEvery = 12
	// kind is that of the journal's units.
	kind = "pod-resource"
	// podName stands for the pod's own group where a container's name would.
	podName = "(pod)"
)

// Config is what a Manager works with.
type Config struct {
	// View has the pods of the node, Latest where their groups are.
	View   cluster.Source
	Latest *observe.Latest
	Layout cgroup.Layout
	// Journal is nil where nothing is carried out; then the manager says what it would write. Memory is the one for limits of memory, which
	// rules that take memory change as well: a kernel reclaims while such a limit is written to, and others must not wait for that.
	Journal, Memory *act.Journal
	Clock           clock.WithTicker
	Log             logr.Logger
	Beat            func(step string)
	// Did tells of what was done.
	Did func(report.Action)
}

// Manager keeps the limits of pods on elastic resources. Its metrics are for one registry.
type Manager struct {
	Config

	groups groups
	turn   int
	// told is what was last said by unit: an error, or what would be written.
	told  map[string]string
	count counts
}

// New returns a manager that has compared nothing yet.
func New(c Config) *Manager {
	return &Manager{Config: c, groups: newGroups(c.Layout), told: map[string]string{}, count: newCounts()}
}

// Name implements the agent's manager.
func (m *Manager) Name() string { return kind }

// Run compares until ctx ends. Who has opened the journals puts back then what they hold.
func (m *Manager) Run(ctx context.Context) error {
	ticker := m.Clock.NewTicker(reconcileEvery)
	defer ticker.Stop()
	for {
		m.reconcile()
		m.Beat("reconcile")
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
	}
}

// journal is the one that has an aspect.
func (m *Manager) journal(aspect string) *act.Journal {
	if aspect == aspectMemory || aspect == aspectPressure {
		return m.Memory
	}
	return m.Journal
}

// reconcile brings every group in line, each on its own: a container that waits, or a kernel that refuses, holds up no other.
func (m *Manager) reconcile() {
	snapshot, state := m.Latest.Load(), m.View.State()
	if snapshot == nil || !state.KnowsPods {
		return
	}
	where := map[string]string{}
	for i := range snapshot.Pods {
		for j := range snapshot.Pods[i].Containers {
			c := &snapshot.Pods[i].Containers[j]
			where[c.ID] = c.Path
		}
	}
	seen := map[string]bool{}
	m.count.begin()
	for _, pod := range state.Pods {
		if p := planOf(pod); p != nil {
			m.pod(pod, p, where, seen)
		}
	}
	m.count.end()
	for key := range m.told {
		if !seen[key] {
			delete(m.told, key)
		}
	}
	if m.turn++; m.turn%cleanEvery == 1 {
		m.clean(seen)
	}
}

// pod brings the groups of a pod in line: the containers' first, since on v1 a pod may not have less than one of them.
func (m *Manager) pod(pod *corev1.Pod, p *plan, where map[string]string, seen map[string]bool) {
	ref := qos.PodRef{UID: string(pod.UID), Namespace: pod.Namespace, Name: pod.Name}
	above := ""
	for id, w := range p.containers {
		unit := unit{pod: ref, container: p.names[id], owner: id}
		unit.see(seen)
		group, ok := where[id]
		if !ok {
			m.count.waiting++
			continue
		}
		m.count.limited++
		above = path.Dir(group)
		m.group(unit, group, w)
	}
	unit := unit{pod: ref, container: podName, owner: ref.UID}
	unit.see(seen)
	if above != "" {
		m.group(unit, above, p.pod)
	}
}

// unit names what is changed.
type unit struct {
	pod       qos.PodRef
	container string
	owner     string // the container's id, or the pod's UID
}

func (u unit) key(aspect string) string { return kind + "/" + u.owner + "/" + aspect }

// see notes all keys that the unit may have.
func (u unit) see(seen map[string]bool) {
	for _, aspect := range []string{aspectCPU, aspectWeight, aspectMemory, aspectPressure} {
		seen[u.key(aspect)] = true
	}
}

// group brings one group in line.
func (m *Manager) group(u unit, group string, w wish) {
	needs, err := m.groups.needs(group, w)
	if err != nil {
		m.failed(u, "read", err)
	}
	for _, n := range needs {
		key := u.key(n.aspect)
		if m.Journal == nil {
			if m.told[key] != n.to {
				m.told[key] = n.to
				m.Did(m.action(u, n, report.Would))
			}
			continue
		}
		if err := m.journal(n.aspect).Change(act.Unit{Key: key, For: u.pod.String() + " " + u.container, Changes: n.changes}); err != nil {
			m.failed(u, n.aspect, err)
			continue
		}
		delete(m.told, key)
		m.count.wrote(n.aspect)
		m.Did(m.action(u, n, report.Done))
	}
	if m.Journal != nil && m.groups.limited(group, w) {
		if err := m.Memory.Undo(u.key(aspectPressure)); err != nil {
			m.failed(u, aspectPressure, err)
		}
	}
}

func (m *Manager) action(u unit, n needed, outcome report.Outcome) report.Action {
	return report.Action{
		Kind: report.PodResource, Outcome: outcome, Pod: u.pod, Container: u.container, From: n.from, To: n.to,
		Why: "asks for elastic resources: " + n.aspect,
	}
}

// failed tells of an error once.
func (m *Manager) failed(u unit, aspect string, err error) {
	m.count.failed(aspect)
	key := u.key(aspect)
	if m.told[key] == err.Error() {
		return
	}
	m.told[key] = err.Error()
	m.Did(report.Action{Kind: report.PodResource, Outcome: report.Failed, Pod: u.pod, Container: u.container, Why: "asks for elastic resources: " + aspect, Err: err.Error()})
}

// clean puts back what the journal holds of pods that are gone, and of such as an agent before this one has changed.
func (m *Manager) clean(seen map[string]bool) {
	if m.Journal == nil {
		return
	}
	var errs []error
	for _, j := range []*act.Journal{m.Journal, m.Memory} {
		for _, e := range j.Entries() {
			if strings.HasPrefix(e.Key, kind+"/") && !seen[e.Key] {
				errs = append(errs, j.Undo(e.Key))
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		m.Log.Info("Cannot put back limits of pods that are gone", "error", err.Error())
	}
}
