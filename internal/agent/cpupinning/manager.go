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
	// lookEvery is how often it is looked for pods and containers that came or went: a container that is new runs on CPUs that others
	// have alone until then.
	lookEvery = time.Second
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
	// Facts are the node's topology; nil where it is not known.
	Facts func() *topology.Facts
	// Journal is nil in a dry run, which logs what would be done.
	Journal *act.Journal
	// StatePath is the state file. In a dry run it is read and not written.
	StatePath string
	// Predecessor is the state file of gocrane's agent, which is taken over where there is none of our own; empty for none.
	Predecessor string
	// Policy is that of pods that name none.
	Policy numa.Policy
	// Period is how often it is looked whether somebody else has changed a container's CPUs.
	Period time.Duration
	// Did is told of each decision about a container: which CPUs it gets, or why none.
	Did   func(report.Action)
	Clock clock.WithTicker
	Log   logr.Logger
	Beat  func(step string)
}

// Status is what the manager does.
type Status struct {
	// Active tells that it assigns CPUs; else Why says why not.
	Active bool
	Why    string
	// Unsupported tells that it cannot on this host.
	Unsupported bool
	// Exclusive are CPUs that a container has alone, Shared all others.
	Exclusive, Shared numa.CPUSet
	// Containers is how many have CPUs by a policy, Refused how many do not get what they ask for.
	Containers, Refused int
}

// Manager assigns CPUs to containers.
type Manager struct {
	config Config
	tree   *cgroup.Tree
	sets   cpusets
	status atomic.Pointer[Status]
	counts counts

	loaded bool
	// inherits tells that gocrane's agent has set where containers run, and unsaved that the state file does not have it.
	inherits, unsaved bool
	// plan is in force; it was saved before anything of it was done.
	plan  cpumanager.Plan
	saved []cpumanager.Holding
	known decided
	last  time.Time // of the last look at all files

	// there are the groups of containers by the pod's UID, as of the tree's number thereAt.
	there   map[string][]*cgroup.Container
	thereAt uint64

	// names are those of containers by their ids, as long as their groups are there: pods may be gone before.
	names map[string]string
	// refused and noted are what was told of containers.
	refused, noted map[cpumanager.ID]string
	told           map[string]string
}

// decided is what the plan was made of: while it is the same there is nothing to decide.
type decided struct {
	state *cluster.State
	facts *topology.Facts
	// cpus and mems are what pods may have, where that is limited.
	cpus, mems               numa.CPUSet
	limitedCPUs, limitedMems bool
	// groups is another number where containers came or went.
	groups uint64
}

// NewManager returns a manager that has done nothing yet.
func NewManager(c Config) *Manager {
	reader := &host.Reader{}
	m := &Manager{
		config: c, tree: cgroup.NewTree(c.Layout, reader), sets: cpusets{layout: c.Layout, reader: reader, journal: c.Journal},
		names: map[string]string{}, refused: map[cpumanager.ID]string{}, noted: map[cpumanager.ID]string{}, told: map[string]string{},
	}
	m.tree.LookClosely() // A container that is new runs on CPUs that others have alone until it is seen.
	m.status.Store(&Status{Why: "has not begun"})
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
	ticker := m.config.Clock.NewTicker(min(lookEvery, m.config.Period))
	defer ticker.Stop()
	for {
		m.Step()
		select {
		case <-ctx.Done():
			if err := m.sets.undo(); err != nil {
				return fmt.Errorf("undo at the end: %w", err)
			}
			return nil
		case <-ticker.C():
		}
	}
}

// Step looks once, decides where something has changed, and brings containers to where they are to run.
func (m *Manager) Step() {
	defer m.config.Beat("reconcile")
	facts, why := m.standsAside()
	if why != "" {
		m.aside(why)
		return
	}
	state := m.config.View.State()
	if !state.KnowsPods {
		m.tell("pods", "Does not assign CPUs before the node's pods are known; what is stays")
		return
	}
	m.tell("pods", "")
	if !m.load() {
		return
	}
	if state != m.known.state {
		m.tree.LookAtAll() // A container may have been started anew.
	}
	there, err := m.containers()
	if err != nil {
		m.tell("groups", err.Error())
		return
	}
	m.tell("groups", "")
	m.inherit(there)
	now := decided{state: state, facts: facts, groups: m.thereAt}
	now.cpus, now.limitedCPUs = m.sets.allowed(cgroup.FileCPUs)
	now.mems, now.limitedMems = m.sets.allowed(cgroup.FileMems)
	changed := now != m.known
	if !changed && m.config.Clock.Since(m.last) < m.config.Period {
		return
	}
	m.last = m.config.Clock.Now()
	machine, err := now.machine()
	if err != nil {
		m.tell("machine", err.Error())
		return
	}
	m.tell("machine", "")
	pods := podsOf(state.Pods, m.config.Policy)
	claims := claimsOf(pods, m.plan.Holdings, there)
	if changed && m.decide(machine, claims, pods) {
		m.known = now
	}
	m.write(m.groups(machine, claims, pods, there), changed)
}

// standsAside says why no CPUs are assigned on this node.
func (m *Manager) standsAside() (*topology.Facts, string) {
	if why := m.sets.unsupported(); why != "" {
		return nil, why
	}
	facts := m.config.Facts()
	switch {
	case facts == nil:
		return nil, "the node's topology is not known"
	case facts.Kubelet.Static:
		return facts, "the kubelet assigns CPUs itself (policy static, by " + facts.Kubelet.Source + ")"
	}
	return facts, ""
}

// aside gives everything back where the kubelet assigns CPUs. Where only the topology is not known yet nothing is held either.
func (m *Manager) aside(why string) {
	m.tell("aside", "Does not assign CPUs: "+why)
	m.status.Store(&Status{Why: why, Unsupported: m.sets.unsupported() != ""})
	if err := m.sets.undo(); err != nil {
		m.tell("undo", err.Error())
		return
	}
	m.tell("undo", "")
	m.known, m.last = decided{}, time.Time{}
}

// load reads the state file once. A damaged one is moved aside: containers then get CPUs as if they were new. One that cannot be read is
// tried again, since what it holds would be given to others.
func (m *Manager) load() bool {
	if m.loaded {
		return true
	}
	path := m.config.StatePath
	holdings, found, err := readState(path)
	inherits := !found && m.config.Predecessor != ""
	if inherits {
		path = m.config.Predecessor
		holdings, inherits, err = readState(path)
	}
	if err != nil {
		m.tell("state", err.Error())
		if !errors.Is(err, errDamaged) {
			return false
		}
		if m.config.Journal != nil && path == m.config.StatePath {
			if err := setAside(path); err != nil {
				m.tell("state", err.Error())
				return false
			}
		}
	}
	m.plan.Holdings, m.saved, m.loaded, m.inherits, m.unsaved = holdings, holdings, true, inherits, inherits || err != nil
	if inherits {
		m.config.Log.Info(m.verb("Takes over", "Would take over")+" the CPUs that gocrane's agent has given", "file", path, "containers", len(holdings))
	}
	return true
}

// inherit lets all containers run everywhere once, where gocrane's agent has set where they run: this agent would put that back with the end of
// a pod, or its own, and nobody would ever lift it.
func (m *Manager) inherit(there map[string][]*cgroup.Container) {
	if !m.inherits {
		return
	}
	m.inherits = false
	if err := m.sets.lift(there); err != nil {
		m.tell("inherit", "Cannot let containers run everywhere that gocrane's agent has set CPUs for: "+err.Error())
	}
}

// machine is which CPUs and zones of memory pods may have at all.
func (d *decided) machine() (cpumanager.Machine, error) {
	cpus := d.facts.Machine.CPUs()
	if d.limitedCPUs {
		cpus = cpus.Intersection(d.cpus)
	}
	if cpus == (numa.CPUSet{}) {
		return cpumanager.Machine{}, errors.New("pods may run on no CPU that is known")
	}
	reserved, err := d.facts.ReservedCPUs()
	if err != nil {
		return cpumanager.Machine{}, fmt.Errorf("reserved CPUs: %w", err)
	}
	layout, err := d.facts.Machine.Layout(cpus)
	if err != nil {
		return cpumanager.Machine{}, fmt.Errorf("CPUs: %w", err)
	}
	m := cpumanager.Machine{Layout: layout, Reserved: reserved, Memory: d.facts.UsableMemory(), MemoryIsOthers: d.facts.Kubelet.StaticMemory}
	for i := range d.facts.Machine.Zones {
		if z := &d.facts.Machine.Zones[i]; d.limitedMems && !d.mems.Contains(z.ID) {
			delete(m.Memory, z.Name())
		}
	}
	return m, nil
}

// decide makes a plan and tells whether it is in force: it is saved before anything of it is done. Where it cannot be saved, as on a full
// disk, what was decided before stays, so that an agent that starts anew knows all that was given.
func (m *Manager) decide(machine cpumanager.Machine, claims []cpumanager.Pod, pods []podFacts) bool {
	plan := cpumanager.Assign(machine, m.plan.Holdings, claims)
	if m.config.Journal != nil && (m.unsaved || !reflect.DeepEqual(plan.Holdings, m.saved)) {
		content, err := encodeState(plan.Holdings)
		if err == nil {
			err = durablefile.Replace(m.config.StatePath, content)
		}
		if err != nil {
			m.tell("save", "Cannot save who has which CPUs; what was decided before stays: "+err.Error())
			if m.plan.Shared == (numa.CPUSet{}) { // It was only read from the file.
				m.plan = cpumanager.Assign(machine, m.saved, asClaims(m.saved))
			}
			m.show()
			return false
		}
		m.saved, m.unsaved = plan.Holdings, false
	}
	m.tell("save", "")
	m.announce(&plan, pods)
	m.plan = plan
	m.show()
	return true
}

func (m *Manager) show() {
	m.status.Store(&Status{
		Active: true, Exclusive: m.plan.Exclusive(), Shared: m.plan.Shared, Containers: len(m.plan.Holdings), Refused: len(m.plan.Refused),
	})
}
