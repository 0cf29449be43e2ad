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
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"crane.io/crane/internal/agent/act"
	"crane.io/crane/internal/agent/cluster"
	"crane.io/crane/internal/agent/host/cgroup"
	"crane.io/crane/internal/agent/observe"
	"crane.io/crane/internal/agent/report"
	"crane.io/crane/pkg/qos"
	"crane.io/crane/pkg/units"
)

const (
	// reconcileInterval is the interval of comparisons; a new container runs without limits for that long.
	reconcileInterval = 5 * time.Second
	// reconcilesPerCleanup is the number of reconciliations per cleanup of removed pods.
	reconcilesPerCleanup = 12
	// Kind is the prefix of the journal's unit keys.
	Kind = "pod-resource"
	// podName stands for the pod's own group in reports.
	podName = "(pod)"
)

// Config configures a Manager.
type Config struct {
	// View returns the pods of the node, Latest the paths of their groups.
	View   cluster.Source
	Latest *observe.Latest
	Layout cgroup.Layout
	// Journal is nil in a dry run. MemoryJournal holds memory limits: the kernel reclaims while such a limit is written, which must not
	// delay other writes.
	Journal, MemoryJournal *act.Journal
	Clock                  clock.WithTicker
	Log                    logr.Logger
	Beat                   func(step string)
	// Report receives each change.
	Report func(report.Action)
}

// Manager enforces the limits of pods on elastic resources. Its metrics belong in one registry.
type Manager struct {
	Config

	groups     groupFiles
	reconciles int
	// reported holds the last error or dry-run change by unit.
	reported map[string]string
	metrics  metrics
}

// New returns a Manager.
func New(c Config) *Manager {
	return &Manager{
		Config:   c,
		groups:   newGroupFiles(c.Layout),
		reported: map[string]string{},
		metrics:  newMetrics(),
	}
}

// Name implements the agent's manager interface.
func (m *Manager) Name() string { return Kind }

// Run reconciles until ctx ends. The owner of the journals restores the limits afterward.
func (m *Manager) Run(ctx context.Context) error {
	ticker := m.Clock.NewTicker(reconcileInterval)
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

// journalFor returns the journal of an aspect.
func (m *Manager) journalFor(aspect string) *act.Journal {
	if aspect == aspectMemory || aspect == aspectMemoryHigh {
		return m.MemoryJournal
	}

	return m.Journal
}

// reconcile updates every group independently: waiting containers and refused writes do not delay others.
func (m *Manager) reconcile() {
	snapshot := m.Latest.Load()
	state := m.View.State()
	if snapshot == nil || !state.KnowsPods {
		return
	}

	groups := snapshot.ContainerGroups()
	m.learnWeightFormula(state.Pods, groups)

	seen := map[string]bool{}
	var containers containerCounts
	for _, pod := range state.Pods {
		if p := newPlan(pod); p != nil {
			started := m.reconcilePod(pod, p, groups, seen)
			containers.started += started
			containers.waiting += len(p.containers) - started
		}
	}

	// Reports of removed pods are forgotten; a new pod has another UID.
	m.metrics.setContainers(containers)

	for key := range m.reported {
		if !seen[key] {
			delete(m.reported, key)
		}
	}

	m.reconciles++

	if m.reconciles%reconcilesPerCleanup == 1 {
		m.undoRemoved(seen)
	}
}

// learnWeightFormula finds out by which formula the node's runtime converts requests, from the weight of a container with an ordinary one.
// Without such a container nothing competes with an elastic one by request.
func (m *Manager) learnWeightFormula(pods []*corev1.Pod, groups map[string]string) {
	if m.Layout.Version != cgroup.V2 {
		return
	}

	for _, pod := range pods {
		for i := range pod.Status.ContainerStatuses {
			status := &pod.Status.ContainerStatuses[i]
			_, id, _ := strings.Cut(status.ContainerID, "://")
			request, isSet := ordinaryRequest(pod, status.Name)
			group := groups[id]
			if !isSet || group == "" {
				continue
			}

			if isNew, ok := m.groups.weightFormula(group, request); ok {
				m.groups.newWeights = isNew
				return
			}
		}
	}
}

// ordinaryRequest returns the CPU request of a container by its name; false if it has none.
func ordinaryRequest(pod *corev1.Pod, container string) (units.MilliCPU, bool) {
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		if q := c.Resources.Requests.Cpu(); c.Name == container && !q.IsZero() {
			return units.MilliCPU(q.MilliValue()), true
		}
	}

	return 0, false
}

// reconcilePod updates the groups of a pod: containers first, since on v1 a pod's limit must not be below theirs. It returns the number of
// containers with a known group.
func (m *Manager) reconcilePod(pod *corev1.Pod, p *plan, groups map[string]string, seen map[string]bool) (started int) {
	ref := qos.PodRef{UID: string(pod.UID), Namespace: pod.Namespace, Name: pod.Name}
	podGroup := ""
	for id, w := range p.containers {
		unit := unit{pod: ref, container: p.names[id], owner: id}
		unit.markSeen(seen)

		group, ok := groups[id]
		if !ok {
			continue
		}

		started++
		podGroup = path.Dir(group)
		m.reconcileGroup(unit, group, w)
	}

	unit := unit{pod: ref, container: podName, owner: ref.UID}
	unit.markSeen(seen)

	if podGroup != "" {
		m.reconcileGroup(unit, podGroup, p.pod)
	}

	return started
}

// unit identifies a changed group.
type unit struct {
	pod       qos.PodRef
	container string
	owner     string // container ID or pod UID
}

func (u unit) key(aspect string) string { return Kind + "/" + u.owner + "/" + aspect }

// markSeen marks all keys of the unit.
func (u unit) markSeen(seen map[string]bool) {
	for _, aspect := range []string{aspectCPU, aspectWeight, aspectMemory, aspectMemoryHigh} {
		seen[u.key(aspect)] = true
	}
}

// reconcileGroup updates one group.
func (m *Manager) reconcileGroup(u unit, group string, w groupTarget) {
	needs, err := unitFiles{m.groups, u, group, m.journalFor}.pendingChanges(w)
	if err != nil {
		m.reportFailure(u, "read", err)
	}

	// Each aspect has a unit of its own, so that a rejected write does not undo the others.
	for _, n := range needs {
		key := u.key(n.aspect)
		if m.Journal == nil {
			if m.reported[key] != n.to {
				m.reported[key] = n.to
				m.Report(m.newAction(u, n, report.NotEnforced))
			}

			continue
		}

		if err := m.journalFor(n.aspect).Change(act.Unit{Key: key, Subject: u.pod.String() + " " + u.container, Changes: n.changes}); err != nil {
			m.reportFailure(u, n.aspect, err)
			continue
		}

		delete(m.reported, key)
		m.metrics.writes.WithLabelValues(n.aspect).Inc()
		m.Report(m.newAction(u, n, report.Done))
	}

	m.undoDropped(u, w)

	// memory.high only bridges the time until the limit can be set.
	if m.Journal != nil && m.groups.isMemoryLimited(group, w) {
		if err := m.MemoryJournal.Undo(u.key(aspectMemoryHigh)); err != nil {
			m.reportFailure(u, aspectMemoryHigh, err)
		}
	}
}

// undoDropped restores the aspects of a group for which the pod has no target any more, as after a resize.
func (m *Manager) undoDropped(u unit, w groupTarget) {
	if m.Journal == nil {
		return
	}

	dropped := map[string]bool{
		aspectCPU:        w.limits.CPU <= 0,
		aspectWeight:     w.weight <= 0,
		aspectMemory:     w.limits.Memory <= 0,
		aspectMemoryHigh: w.limits.Memory <= 0,
	}
	for aspect, isDropped := range dropped {
		journal := m.journalFor(aspect)
		if _, changed := journal.Entry(u.key(aspect)); !isDropped || !changed {
			continue
		}

		if err := journal.Undo(u.key(aspect)); err != nil {
			m.reportFailure(u, aspect, err)
			continue
		}

		m.Report(report.Action{
			Kind:      report.PodResource,
			Outcome:   report.Done,
			Pod:       u.pod,
			Container: u.container,
			Reason:    "the pod has no elastic limit of this kind any more, it is restored: " + aspect,
		})
	}
}

func (m *Manager) newAction(u unit, n pendingChange, outcome report.Outcome) report.Action {
	return report.Action{
		Kind:      report.PodResource,
		Outcome:   outcome,
		Pod:       u.pod,
		Container: u.container,
		From:      n.from,
		To:        n.to,
		Reason:    "requests elastic resources: " + n.aspect,
	}
}

// reportFailure reports an error once.
func (m *Manager) reportFailure(u unit, aspect string, err error) {
	m.metrics.errors.WithLabelValues(Kind, aspect).Inc()
	key := u.key(aspect)
	if m.reported[key] == err.Error() {
		return
	}

	m.reported[key] = err.Error()
	m.Report(report.Action{
		Kind:      report.PodResource,
		Outcome:   report.Failed,
		Pod:       u.pod,
		Container: u.container,
		Reason:    "requests elastic resources: " + aspect,
		Error:     err.Error(),
	})
}

// undoRemoved restores units of removed pods, including those of a previous agent.
func (m *Manager) undoRemoved(seen map[string]bool) {
	if m.Journal == nil {
		return
	}

	var errs []error
	for _, j := range []*act.Journal{m.Journal, m.MemoryJournal} {
		for _, e := range j.Entries() {
			if strings.HasPrefix(e.Key, Kind+"/") && !seen[e.Key] {
				errs = append(errs, j.Undo(e.Key))
			}
		}
	}

	if err := errors.Join(errs...); err != nil {
		m.Log.Error(err, "restoring limits of removed pods")
	}
}

// metrics holds the metrics of a Manager.
type metrics struct {
	containers     *prometheus.GaugeVec
	writes, errors *prometheus.CounterVec
}

func newMetrics() metrics {
	m := metrics{
		containers: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "crane_agent_elastic_containers", Help: "Containers that request elastic resources by state: known cgroup, or waiting for their start.",
		}, []string{"state"}),
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "crane_agent_pod_resource_writes_total", Help: "Written limits of pods on elastic resources, by kind of limit.",
		}, []string{"of"}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "crane_craneAgent_pod_resource_error_total", Help: "Limits of pods on elastic resources that could not be read or written.",
		}, []string{"subcomponent", "step"}),
	}

	m.setContainers(containerCounts{})
	return m
}

// containerCounts holds the numbers of containers with and without a cgroup.
type containerCounts struct{ started, waiting int }

func (m metrics) setContainers(c containerCounts) {
	m.containers.WithLabelValues("known").Set(float64(c.started))
	m.containers.WithLabelValues("waiting").Set(float64(c.waiting))
}

func (m metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.containers, m.writes, m.errors}
}

var _ prometheus.Collector = (*Manager)(nil)

// Describe implements prometheus.Collector.
func (m *Manager) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range m.metrics.all() {
		c.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (m *Manager) Collect(ch chan<- prometheus.Metric) {
	for _, c := range m.metrics.all() {
		c.Collect(ch)
	}
}
