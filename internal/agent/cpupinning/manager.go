// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cpupinning

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"crane.io/crane/internal/agent/act"
	"crane.io/crane/internal/agent/cluster"
	"crane.io/crane/internal/agent/host"
	"crane.io/crane/internal/agent/host/cgroup"
	"crane.io/crane/internal/agent/observe"
	"crane.io/crane/internal/agent/oncelog"
	"crane.io/crane/internal/agent/report"
	"crane.io/crane/internal/agent/topology"
	"crane.io/crane/internal/component/atomicfile"
	"crane.io/crane/pkg/cpumanager"
	"crane.io/crane/pkg/numa"
)

const (
	// DefaultPeriod is the interval at which all containers are compared with their desired CPUs.
	DefaultPeriod = 5 * time.Second
	// scanInterval is the interval at which new pods and containers are detected. Until then a new container may run on exclusive CPUs of
	// others.
	scanInterval = time.Second
)

// Event reasons.
const (
	ReasonRefused  = "CPUsRefused"
	ReasonAssigned = "CPUsAssigned"
	ReasonReleased = "CPUsReleased"
)

// Config configures a Manager.
type Config struct {
	Layout cgroup.Layout
	View   cluster.Source
	// Topology returns the node's topology, or nil while it is unknown.
	Topology func() *topology.NodeTopology
	// Journal is nil in a dry run, which logs what would be done.
	Journal *act.Journal
	// StatePath is the state file. A dry run reads it but does not write it.
	StatePath string
	// PredecessorStatePath is the state file of gocrane's agent, used if StatePath does not exist; empty for none.
	PredecessorStatePath string
	// BindMemory lets containers allocate memory only in the zones of their CPUs; Latest returns the use of memory that this is decided by.
	BindMemory bool
	Latest     *observe.Latest
	// Policy applies to pods that name none.
	Policy numa.Policy
	// Period is the interval at which all containers are compared with their desired CPUs.
	Period time.Duration
	// Keep reports at the end that containers keep their CPUs, for the next agent; nil for never.
	Keep func() bool
	// Report receives each assignment, release and refusal.
	Report func(report.Action)
	Clock  clock.WithTicker
	Log    logr.Logger
	Beat   func(step string)
}

// Status is the state of a Manager.
type Status struct {
	// Active is false if no CPUs are assigned; Reason is the cause.
	Active bool
	Reason string
	// Unsupported means that this host cannot assign CPUs.
	Unsupported bool
	// Exclusive holds CPUs of single containers, Shared all others.
	Exclusive, Shared numa.CPUSet
	// Containers counts containers with CPUs by a policy, Refused those whose request was refused.
	Containers, Refused int
}

// Manager assigns CPUs to containers.
type Manager struct {
	config  Config
	tree    *cgroup.Tree
	cpusets cpusetWriter
	status  atomic.Pointer[Status]
	counts  counts

	loaded bool
	// inheritsState is set after gocrane's state was loaded, unsaved while the own state file does not hold the assignments.
	inheritsState, unsaved bool
	// plan is in force and was saved before it was applied.
	plan         cpumanager.Plan
	saved        []cpumanager.Assignment
	lastInputs   planInputs
	lastCompared time.Time // when all files were compared last

	// containersByPod holds container cgroups by pod UID, as of version containersVersion of the tree.
	containersByPod   map[string][]*cgroup.Container
	containersVersion uint64

	// containerNames maps container IDs to names while their cgroups exist: the pod may be deleted before.
	containerNames map[string]string
	// boundMemory holds the memory zones that containers are bound to.
	boundMemory map[cpumanager.ID][]string
	// reportedRefusals and loggedMemory hold the last messages by container.
	reportedRefusals, loggedMemory map[cpumanager.ID]string
	problems                       *oncelog.Logger
}

// planInputs holds the inputs of a plan. A plan is computed only after they changed.
type planInputs struct {
	state    *cluster.State
	topology *topology.NodeTopology
	// cpus and mems are valid if pods are limited to them.
	cpus, mems               numa.CPUSet
	limitedCPUs, limitedMems bool
	// containersVersion changes when containers come or go.
	containersVersion uint64
}

// NewManager returns a Manager.
func NewManager(c Config) *Manager {
	reader := &host.Reader{}
	m := &Manager{
		config:           c,
		tree:             cgroup.NewTree(c.Layout, reader),
		cpusets:          cpusetWriter{layout: c.Layout, reader: reader, journal: c.Journal},
		containerNames:   map[string]string{},
		reportedRefusals: map[cpumanager.ID]string{},
		loggedMemory:     map[cpumanager.ID]string{},
		problems:         oncelog.New(c.Log),
	}

	m.tree.CheckLinks() // A new container runs on exclusive CPUs of others until it is detected.
	m.status.Store(&Status{Reason: "not started"})
	return m
}

// Name implements the agent's manager interface.
func (m *Manager) Name() string { return "cpu-manager" }

// Status returns the current state. It is safe for concurrent use.
func (m *Manager) Status() Status { return *m.status.Load() }

// Run reconciles until ctx ends and then restores all containers: without the agent nothing would keep new containers off exclusive CPUs.
// The state file stays, so that the next agent assigns the same CPUs.
func (m *Manager) Run(ctx context.Context) error {
	defer m.tree.Close()

	ticker := m.config.Clock.NewTicker(min(scanInterval, m.config.Period))
	defer ticker.Stop()

	for {
		m.Reconcile()
		select {
		case <-ctx.Done():
			if m.config.Keep != nil && m.config.Keep() {
				return nil
			}

			if err := m.cpusets.undoAll(); err != nil {
				return fmt.Errorf("restoring containers: %w", err)
			}

			return nil

		case <-ticker.C():
		}
	}
}

// Reconcile detects changes, computes a new plan if there are any, and applies it.
func (m *Manager) Reconcile() {
	defer m.config.Beat("reconcile")

	nodeTopology, why := m.inactiveReason()
	if why != "" {
		m.deactivate(why)
		return
	}

	// What is unknown is no reason to take CPUs from containers.
	state := m.config.View.State()
	switch {
	case nodeTopology == nil:
		waitUntilKnown(m, "assigning no CPUs until the node's topology is known; previous CPUs stay")
		return
	case !state.KnowsPods:
		waitUntilKnown(m, "assigning no CPUs until the node's pods are known; previous CPUs stay")
		return
	}

	m.problems.Log("wait", "")
	if !m.loadState() {
		return
	}

	if state != m.lastInputs.state {
		m.tree.RescanAll() // A container may have restarted.
	}

	containers, err := m.listContainers()
	if err != nil {
		m.problems.Error("groups", "listing containers", err)
		return
	}

	m.problems.Log("groups", "")
	if !m.clearInheritedCPUs(containers) {
		return
	}

	inputs := planInputs{state: state, topology: nodeTopology, containersVersion: m.containersVersion}
	inputs.cpus, inputs.limitedCPUs = m.cpusets.readAllowed(cgroup.FileCPUs)

	inputs.mems, inputs.limitedMems = m.cpusets.readAllowed(cgroup.FileMems)
	changed := inputs != m.lastInputs
	if !changed && m.config.Clock.Since(m.lastCompared) < m.config.Period {
		return
	}

	m.lastCompared = m.config.Clock.Now()
	machine, err := inputs.machine()
	if err != nil {
		m.problems.Error("machine", "determining the CPUs that pods may use", err)
		return
	}

	m.problems.Log("machine", "")
	pods := readPods(state.Pods, m.config.Policy)
	requests := collectRequests(pods, m.plan.Assignments, containers)
	if changed && m.updatePlan(machine, requests, pods) {
		m.lastInputs = inputs
	}

	m.bindMemory(machine, nodeTopology, requests)
	m.applyTargets(m.buildTargets(machine, pods, containers), pods, changed)
}

// inactiveReason returns the topology, nil if it is unknown, or why no CPUs are assigned on this node.
func (m *Manager) inactiveReason() (*topology.NodeTopology, string) {
	if why := UnsupportedReason(m.config.Layout); why != "" {
		return nil, why
	}

	nodeTopology := m.config.Topology()
	if nodeTopology != nil && nodeTopology.Kubelet.Static {
		return nodeTopology, "the kubelet assigns CPUs itself (policy static, by " + nodeTopology.Kubelet.Source + ")"
	}

	return nodeTopology, ""
}

// waitUntilKnown leaves all containers as they are. The CPUs that this agent or the previous one assigned still count as exclusive.
func waitUntilKnown(m *Manager, why string) {
	m.problems.Log("wait", why)
	s := Status{Reason: why}
	if m.cpusets.changed() && m.loadState() {
		s.Exclusive = m.plan.Exclusive()
	}

	m.status.Store(&s)
	m.lastInputs = planInputs{} // Everything is compared again afterward.
}

// deactivate restores all containers while the kubelet assigns CPUs.
func (m *Manager) deactivate(why string) {
	m.problems.Log("aside", "assigning no CPUs: "+why)
	m.status.Store(&Status{Reason: why, Unsupported: UnsupportedReason(m.config.Layout) != ""})

	if err := m.cpusets.undoAll(); err != nil {
		m.problems.Error("undo", "restoring containers", err)
		return
	}

	m.problems.Log("undo", "")
	m.lastInputs = planInputs{}
	m.lastCompared = time.Time{}
	m.boundMemory = nil
}

// loadState reads the state file once. A damaged file is moved aside, and containers get CPUs as if they were new. An unreadable file is
// retried, because its CPUs must not be assigned to other containers.
func (m *Manager) loadState() bool {
	if m.loaded {
		return true
	}

	path := m.config.StatePath
	assignments, found, err := readState(path)
	inherits := !found && m.config.PredecessorStatePath != ""
	if inherits {
		path = m.config.PredecessorStatePath
		assignments, inherits, err = readState(path)
	}

	if err != nil {
		m.problems.Log("state", err.Error())
		if !errors.Is(err, errDamaged) {
			return false
		}

		// A dry run writes nothing, and gocrane's file is not ours to move.
		if m.config.Journal != nil && path == m.config.StatePath {
			if err := moveDamaged(path); err != nil {
				m.problems.Log("state", err.Error())
				return false
			}
		}
	}

	m.plan.Assignments = assignments
	m.saved = assignments
	m.loaded = true

	m.inheritsState = inherits
	m.unsaved = inherits || err != nil
	if inherits {
		m.config.Log.Info("adopting the CPUs assigned by gocrane's agent", "file", path, "containers", len(assignments), "dryRun", m.config.Journal == nil)
	}

	return true
}

// clearInheritedCPUs lets all containers run on all CPUs once after gocrane's agent had set theirs. Otherwise this agent would restore
// gocrane's CPUs when a pod ends or the agent stops, and they would stay. It returns false while Crane is paused.
func (m *Manager) clearInheritedCPUs(containers map[string][]*cgroup.Container) bool {
	if !m.inheritsState {
		return true
	}

	err := m.cpusets.clearInherited(containers)
	m.problems.Error("inherit", "resetting the CPUs set by gocrane's agent", err)
	m.inheritsState = errors.Is(err, act.ErrPaused)

	return !m.inheritsState
}

// machine returns the CPUs and memory zones that pods may use.
func (p *planInputs) machine() (cpumanager.Machine, error) {
	cpus := p.topology.Machine.CPUs()
	if p.limitedCPUs {
		cpus = cpus.Intersection(p.cpus)
	}

	if cpus == (numa.CPUSet{}) {
		return cpumanager.Machine{}, errors.New("pods may not run on any known CPU")
	}

	reserved, err := p.topology.ReservedCPUs()
	if err != nil {
		return cpumanager.Machine{}, fmt.Errorf("reserved CPUs: %w", err)
	}

	layout, err := p.topology.Machine.Layout(cpus)
	if err != nil {
		return cpumanager.Machine{}, fmt.Errorf("CPUs: %w", err)
	}

	m := cpumanager.Machine{
		Layout:               layout,
		Reserved:             reserved,
		Isolated:             p.topology.Machine.Isolated,
		Memory:               p.topology.UsableMemory(),
		MemoryBoundByKubelet: p.topology.Kubelet.StaticMemory,
	}

	// Memory is bound only to zones that pods may use.
	for i := range p.topology.Machine.Zones {
		if z := &p.topology.Machine.Zones[i]; p.limitedMems && !p.mems.Contains(z.ID) {
			delete(m.Memory, z.Name())
		}
	}

	return m, nil
}

// updatePlan computes a plan, saves it and reports whether it is in force. If it cannot be saved, as on a full disk, the previous plan
// stays, so that a restarted agent knows all assignments.
func (m *Manager) updatePlan(machine cpumanager.Machine, requests []cpumanager.Pod, pods []nodePod) bool {
	plan := cpumanager.Assign(machine, m.plan.Assignments, requests)
	if m.config.Journal != nil && (m.unsaved || !reflect.DeepEqual(plan.Assignments, m.saved)) {
		content, err := encodeState(plan.Assignments)
		if err == nil {
			err = atomicfile.Replace(m.config.StatePath, content)
		}

		if err != nil {
			m.problems.Error("save", "saving the CPU assignments; the previous ones stay", err)
			if m.plan.Shared == (numa.CPUSet{}) { // loaded from the file, not planned yet
				m.plan = cpumanager.Assign(machine, m.saved, requestsForAssignments(m.saved))
			}

			m.publishStatus()
			return false
		}

		m.saved = plan.Assignments
		m.unsaved = false
	}

	m.problems.Log("save", "")
	m.reportPlan(&plan, pods)
	m.plan = plan
	m.publishStatus()

	return true
}

func (m *Manager) publishStatus() {
	m.status.Store(&Status{
		Active:     true,
		Exclusive:  m.plan.Exclusive(),
		Shared:     m.plan.Shared,
		Containers: len(m.plan.Assignments),
		Refused:    len(m.plan.Refused),
	})
}

var (
	activeDesc     = prometheus.NewDesc("crane_agent_cpu_manager_active", "1 if the agent assigns CPUs to containers, else 0.", nil, nil)
	cpusDesc       = prometheus.NewDesc("crane_agent_cpu_manager_cpus", "Number of CPUs by set: exclusive to one container, or shared.", []string{"set"}, nil)
	containersDesc = prometheus.NewDesc("crane_agent_cpu_manager_containers", "Number of containers by state: assigned CPUs by a policy, or refused.", []string{"state"}, nil)
	writesDesc     = prometheus.NewDesc("crane_agent_cpu_manager_writes_total", "Writes of container CPUs by outcome: moved, mended after a change from outside, or failed.", []string{"outcome"}, nil)
)

type counts struct{ moved, corrected, failed atomic.Int64 }

// Describe implements prometheus.Collector.
func (m *Manager) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{activeDesc, cpusDesc, containersDesc, writesDesc} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (m *Manager) Collect(to chan<- prometheus.Metric) {
	s := m.Status()
	active := 0.0
	gauge := func(d *prometheus.Desc, value int, label string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(value), label)
	}

	if s.Active {
		active = 1
		gauge(cpusDesc, s.Exclusive.Len(), "exclusive")
		gauge(cpusDesc, s.Shared.Len(), "shared")
		gauge(containersDesc, s.Containers, "assigned")
		gauge(containersDesc, s.Refused, "refused")
	}

	to <- prometheus.MustNewConstMetric(activeDesc, prometheus.GaugeValue, active)
	for outcome, n := range map[string]*atomic.Int64{"moved": &m.counts.moved, "mended": &m.counts.corrected, "failed": &m.counts.failed} {
		to <- prometheus.MustNewConstMetric(writesDesc, prometheus.CounterValue, float64(n.Load()), outcome)
	}
}

// ExclusiveCPUs returns the CPUs of single containers, and false while there are none by this manager. It is safe for concurrent use.
func (m *Manager) ExclusiveCPUs() (cpus numa.CPUSet, ok bool) {
	s := m.Status()
	return s.Exclusive, s.Active || s.Exclusive.Len() > 0
}
