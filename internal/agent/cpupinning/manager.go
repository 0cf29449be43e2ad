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
	"k8s.io/utils/clock"

	"crane.io/crane/internal/agent/act"
	"crane.io/crane/internal/agent/cluster"
	"crane.io/crane/internal/agent/durablefile"
	"crane.io/crane/internal/agent/host"
	"crane.io/crane/internal/agent/host/cgroup"
	"crane.io/crane/internal/agent/report"
	"crane.io/crane/internal/agent/topology"
	"crane.io/crane/pkg/cpumanager"
	"crane.io/crane/pkg/numa"
)

const (
	// DefaultPeriod is how often it is looked whether containers still run where they should.
	DefaultPeriod = 5 * time.Second
	// scanInterval is how often it is looked for pods and containers that came or went: a container that is new runs on CPUs that others
	// have alone until then.
	scanInterval = time.Second
)

// Reasons of events.
const (
	ReasonRefused  = "CPUsRefused"
	ReasonAssigned = "CPUsAssigned"
	ReasonReleased = "CPUsReleased"
)

// Config is what a Manager works with.
type Config struct {
	Layout cgroup.Layout
	View   cluster.Source
	// Topology are the node's topology; nil where it is not known.
	Topology func() *topology.NodeTopology
	// Journal is nil in a dry run, which logs what would be done.
	Journal *act.Journal
	// StatePath is the state file. In a dry run it is read and not written.
	StatePath string
	// PredecessorStatePath is the state file of gocrane's agent, which is taken over where there is none of our own; empty for none.
	PredecessorStatePath string
	// Policy is that of pods that name none.
	Policy numa.Policy
	// Period is how often it is looked whether somebody else has changed a container's CPUs.
	Period time.Duration
	// Report is told of each decision about a container: which CPUs it gets, or why none.
	Report func(report.Action)
	Clock  clock.WithTicker
	Log    logr.Logger
	Beat   func(step string)
}

// Status is what the manager does.
type Status struct {
	// Active tells that it assigns CPUs; else Why says why not.
	Active bool
	Reason string
	// Unsupported tells that it cannot on this host.
	Unsupported bool
	// Exclusive are CPUs that a container has alone, Shared all others.
	Exclusive, Shared numa.CPUSet
	// Containers is how many have CPUs by a policy, Refused how many do not get what they ask for.
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
	// inheritsState tells that gocrane's agent has set where containers run, and unsaved that the state file does not have it.
	inheritsState, unsaved bool
	// plan is in force; it was saved before anything of it was done.
	plan         cpumanager.Plan
	saved        []cpumanager.Assignment
	lastInputs   planInputs
	lastCompared time.Time // of the last look at all files

	// containersByPod are the groups of containers by the pod's UID, as of the tree's number containersVersion.
	containersByPod   map[string][]*cgroup.Container
	containersVersion uint64

	// containerNames are those of containers by their ids, as long as their groups are there: pods may be gone before.
	containerNames map[string]string
	// reportedRefusals and noted are what was told of containers.
	reportedRefusals, loggedMemory map[cpumanager.ID]string
	logged                         map[string]string
}

// planInputs is what the plan was made of: while it is the same there is nothing to decide.
type planInputs struct {
	state    *cluster.State
	topology *topology.NodeTopology
	// cpus and mems are what pods may have, where that is limited.
	cpus, mems               numa.CPUSet
	limitedCPUs, limitedMems bool
	// containersVersion is another number where containers came or went.
	containersVersion uint64
}

// NewManager returns a manager that has done nothing yet.
func NewManager(c Config) *Manager {
	reader := &host.Reader{}
	m := &Manager{
		config: c, tree: cgroup.NewTree(c.Layout, reader), cpusets: cpusetWriter{layout: c.Layout, reader: reader, journal: c.Journal},
		containerNames: map[string]string{}, reportedRefusals: map[cpumanager.ID]string{}, loggedMemory: map[cpumanager.ID]string{}, logged: map[string]string{},
	}
	m.tree.CheckLinks() // A container that is new runs on CPUs that others have alone until it is seen.
	m.status.Store(&Status{Reason: "has not begun"})
	return m
}

// Name implements the agent's manager.
func (m *Manager) Name() string { return "cpu-manager" }

// Status is what it does now. It is safe for concurrent use.
func (m *Manager) Status() Status { return *m.status.Load() }

// Run assigns until ctx ends, and then puts back what it changed: with nobody to move new containers off them, CPUs are nobody's own. The
// state file stays, so that the next agent gives containers the same.
func (m *Manager) Run(ctx context.Context) error {
	defer m.tree.Close()
	ticker := m.config.Clock.NewTicker(min(scanInterval, m.config.Period))
	defer ticker.Stop()
	for {
		m.Reconcile()
		select {
		case <-ctx.Done():
			if err := m.cpusets.undoAll(); err != nil {
				return fmt.Errorf("undo at the end: %w", err)
			}
			return nil
		case <-ticker.C():
		}
	}
}

// Reconcile looks once, decides where something has changed, and brings containers to where they are to run.
func (m *Manager) Reconcile() {
	defer m.config.Beat("reconcile")
	facts, why := m.inactiveReason()
	if why != "" {
		m.deactivate(why)
		return
	}
	state := m.config.View.State()
	if !state.KnowsPods {
		m.logOnce("pods", "Does not assign CPUs before the node's pods are known; what is stays")
		return
	}
	m.logOnce("pods", "")
	if !m.loadState() {
		return
	}
	if state != m.lastInputs.state {
		m.tree.RescanAll() // A container may have been started anew.
	}
	there, err := m.listContainers()
	if err != nil {
		m.logOnce("groups", err.Error())
		return
	}
	m.logOnce("groups", "")
	m.clearInheritedCPUs(there)
	now := planInputs{state: state, topology: facts, containersVersion: m.containersVersion}
	now.cpus, now.limitedCPUs = m.cpusets.readAllowed(cgroup.FileCPUs)
	now.mems, now.limitedMems = m.cpusets.readAllowed(cgroup.FileMems)
	changed := now != m.lastInputs
	if !changed && m.config.Clock.Since(m.lastCompared) < m.config.Period {
		return
	}
	m.lastCompared = m.config.Clock.Now()
	machine, err := now.machine()
	if err != nil {
		m.logOnce("machine", err.Error())
		return
	}
	m.logOnce("machine", "")
	pods := readPods(state.Pods, m.config.Policy)
	claims := collectRequests(pods, m.plan.Assignments, there)
	if changed && m.updatePlan(machine, claims, pods) {
		m.lastInputs = now
	}
	m.applyTargets(m.buildTargets(machine, claims, pods, there), changed)
}

// inactiveReason says why no CPUs are assigned on this node.
func (m *Manager) inactiveReason() (*topology.NodeTopology, string) {
	if why := m.cpusets.unsupportedReason(); why != "" {
		return nil, why
	}
	facts := m.config.Topology()
	switch {
	case facts == nil:
		return nil, "the node's topology is not known"
	case facts.Kubelet.Static:
		return facts, "the kubelet assigns CPUs itself (policy static, by " + facts.Kubelet.Source + ")"
	}
	return facts, ""
}

// deactivate gives everything back where the kubelet assigns CPUs. Where only the topology is not known yet nothing is held either.
func (m *Manager) deactivate(why string) {
	m.logOnce("aside", "Does not assign CPUs: "+why)
	m.status.Store(&Status{Reason: why, Unsupported: m.cpusets.unsupportedReason() != ""})
	if err := m.cpusets.undoAll(); err != nil {
		m.logOnce("undo", err.Error())
		return
	}
	m.logOnce("undo", "")
	m.lastInputs, m.lastCompared = planInputs{}, time.Time{}
}

// loadState reads the state file once. A damaged one is moved aside: containers then get CPUs as if they were new. One that cannot be read is
// tried again, since what it holds would be given to others.
func (m *Manager) loadState() bool {
	if m.loaded {
		return true
	}
	path := m.config.StatePath
	holdings, found, err := readState(path)
	inherits := !found && m.config.PredecessorStatePath != ""
	if inherits {
		path = m.config.PredecessorStatePath
		holdings, inherits, err = readState(path)
	}
	if err != nil {
		m.logOnce("state", err.Error())
		if !errors.Is(err, errDamaged) {
			return false
		}
		if m.config.Journal != nil && path == m.config.StatePath {
			if err := moveDamaged(path); err != nil {
				m.logOnce("state", err.Error())
				return false
			}
		}
	}
	m.plan.Assignments, m.saved, m.loaded, m.inheritsState, m.unsaved = holdings, holdings, true, inherits, inherits || err != nil
	if inherits {
		m.config.Log.Info(m.dryRunVerb("Takes over", "Would take over")+" the CPUs that gocrane's agent has given", "file", path, "containers", len(holdings))
	}
	return true
}

// clearInheritedCPUs lets all containers run everywhere once, where gocrane's agent has set where they run: this agent would put that back with the end of
// a pod, or its own, and nobody would ever lift it.
func (m *Manager) clearInheritedCPUs(there map[string][]*cgroup.Container) {
	if !m.inheritsState {
		return
	}
	m.inheritsState = false
	if err := m.cpusets.clearInherited(there); err != nil {
		m.logOnce("inherit", "Cannot let containers run everywhere that gocrane's agent has set CPUs for: "+err.Error())
	}
}

// machine is which CPUs and zones of memory pods may have at all.
func (d *planInputs) machine() (cpumanager.Machine, error) {
	cpus := d.topology.Machine.CPUs()
	if d.limitedCPUs {
		cpus = cpus.Intersection(d.cpus)
	}
	if cpus == (numa.CPUSet{}) {
		return cpumanager.Machine{}, errors.New("pods may run on no CPU that is known")
	}
	reserved, err := d.topology.ReservedCPUs()
	if err != nil {
		return cpumanager.Machine{}, fmt.Errorf("reserved CPUs: %w", err)
	}
	layout, err := d.topology.Machine.Layout(cpus)
	if err != nil {
		return cpumanager.Machine{}, fmt.Errorf("CPUs: %w", err)
	}
	m := cpumanager.Machine{Layout: layout, Reserved: reserved, Memory: d.topology.UsableMemory(), MemoryBoundByKubelet: d.topology.Kubelet.StaticMemory}
	for i := range d.topology.Machine.Zones {
		if z := &d.topology.Machine.Zones[i]; d.limitedMems && !d.mems.Contains(z.ID) {
			delete(m.Memory, z.Name())
		}
	}
	return m, nil
}

// updatePlan makes a plan and tells whether it is in force: it is saved before anything of it is done. Where it cannot be saved, as on a full
// disk, what was decided before stays, so that an agent that starts anew knows all that was given.
func (m *Manager) updatePlan(machine cpumanager.Machine, claims []cpumanager.Pod, pods []nodePod) bool {
	plan := cpumanager.Assign(machine, m.plan.Assignments, claims)
	if m.config.Journal != nil && (m.unsaved || !reflect.DeepEqual(plan.Assignments, m.saved)) {
		content, err := encodeState(plan.Assignments)
		if err == nil {
			err = durablefile.Replace(m.config.StatePath, content)
		}
		if err != nil {
			m.logOnce("save", "Cannot save who has which CPUs; what was decided before stays: "+err.Error())
			if m.plan.Shared == (numa.CPUSet{}) { // It was only read from the file.
				m.plan = cpumanager.Assign(machine, m.saved, requestsForAssignments(m.saved))
			}
			m.publishStatus()
			return false
		}
		m.saved, m.unsaved = plan.Assignments, false
	}
	m.logOnce("save", "")
	m.reportPlan(&plan, pods)
	m.plan = plan
	m.publishStatus()
	return true
}

func (m *Manager) publishStatus() {
	m.status.Store(&Status{
		Active: true, Exclusive: m.plan.Exclusive(), Shared: m.plan.Shared, Containers: len(m.plan.Assignments), Refused: len(m.plan.Refused),
	})
}
