// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package elasticresource

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"crane.io/crane/internal/agent/cluster"
	"crane.io/crane/internal/agent/elasticrequest"
	"crane.io/crane/internal/agent/observe"
	tell "crane.io/crane/internal/agent/report"
	model "crane.io/crane/pkg/elastic"
	"crane.io/crane/pkg/series"
)

const (
	// lookEvery is the time between two looks at the latest measurement, decideEvery that between two decisions, which is gocrane's.
	lookEvery   = time.Second
	decideEvery = 10 * time.Second
	// refresh is the age at which the annotation is written anew though nothing has changed, so that its time tells who is alive. 5,000
	// nodes make eight such writes a second.
	refresh = 10 * time.Minute
	// apart is the least time between two writes of the annotation alone.
	apart = time.Minute
	// settles is how long a write may take to be seen by the watch, where versions do not tell.
	settles = 3 * time.Second
	// within bounds a request.
	within = 10 * time.Second
)

// Reserves are the shares of a node that are never offered, where its annotations say nothing.
type Reserves struct{ CPU, Memory series.Ratio }

// Config is what a Manager works with.
type Config struct {
	// View has the Node and its pods, Latest what was measured last.
	View   cluster.Source
	Latest *observe.Latest
	// Changed tells that the Node has changed, so that what is no longer shown is soon shown again; nil where nobody says so.
	Changed <-chan struct{}
	Client  kubernetes.Interface
	// Objects reads and writes the node's TimeSeriesPrediction, in Namespace.
	Objects   dynamic.Interface
	Namespace string
	Reserves  Reserves
	// Enforce writes to the API server; else the manager says what it would write.
	Enforce bool
	Clock   clock.WithTicker
	Log     logr.Logger
	Beat    func(step string)
	// Did tells of what was written.
	Did func(tell.Action)
}

// Manager keeps what the node advertises. Its metrics are for one registry.
type Manager struct {
	Config

	predictions predictions
	usage       usage
	claimed     struct {
		of     *cluster.State
		claims map[string]elasticrequest.Amounts
	}
	policy struct {
		cpu    model.Policy[series.MilliCPU]
		memory model.Policy[series.Bytes]
	}

	node   types.UID // whom the states are about
	cpu    model.State[series.MilliCPU]
	memory model.State[series.Bytes]
	dry    shadow
	told   told

	mu            sync.Mutex
	latest        *report
	wrote, failed float64
}

// report is what was decided last.
type report struct {
	at     time.Time
	cpu    model.Result[series.MilliCPU]
	memory model.Result[series.Bytes]
	// forecast tells that forecasts count.
	forecast struct{ cpu, memory bool }
}

// shadow is what the node would show, where nothing is written.
type shadow struct {
	cpu       series.MilliCPU
	memory    series.Bytes
	hasCPU    bool
	hasMemory bool
}

// New returns a manager that has looked at nothing yet.
func New(c Config) *Manager {
	m := &Manager{Config: c}
	m.policy.cpu, m.policy.memory = model.CPU(), model.Memory()
	m.predictions = predictions{core: c.Client, objects: c.Objects, namespace: c.Namespace, write: c.Enforce, log: c.Log}
	return m
}

// Name implements the agent's manager.
func (m *Manager) Name() string { return "node-resource" }

// Run decides until ctx ends, and then leaves nothing on offer but what pods hold: what nobody watches is not to be given out.
func (m *Manager) Run(ctx context.Context) error {
	var reading sync.WaitGroup
	reading.Go(func() { m.readPredictions(ctx) })
	defer reading.Wait()
	ticker := m.Clock.NewTicker(lookEvery)
	defer ticker.Stop()
	// The first decision waits for the first measurement, as long as one may take.
	decided := m.Clock.Now()
	m.look(m.View.State())
	for {
		now := m.Clock.Now()
		if d := now.Sub(decided); d >= decideEvery || d < 0 || m.last() == nil && m.usage.complete() || m.undone(now) {
			decided = now
			m.decide(ctx, now)
		}
		m.Beat("decide")
		select {
		case <-ctx.Done():
			return m.withdraw(context.WithoutCancel(ctx))
		case <-m.Changed:
		case <-ticker.C():
			m.look(m.View.State())
		}
	}
}

// look takes the latest measurement in.
func (m *Manager) look(state *cluster.State) {
	if m.claimed.of != state {
		m.claimed.of, m.claimed.claims = state, claimsOf(state.Pods)
	}
	m.usage.add(m.Latest.Load(), m.claimed.claims)
}

// readPredictions reads in a goroutine of its own, so that an API server that is slow with it holds up nothing.
func (m *Manager) readPredictions(ctx context.Context) {
	for {
		pause := lookEvery
		if node := m.View.Node(); node != nil {
			pause = wait.Jitter(readEvery, readJitter)
			bounded, cancel := context.WithTimeout(ctx, within)
			m.predictions.sync(bounded, node)
			cancel()
		}
		select {
		case <-ctx.Done():
			return
		case <-m.Clock.After(pause):
		}
	}
}

// undone tells that the node does not show what was written: a kubelet that takes its node for a new one sets extended resources to 0,
// and does not let pods in until they are back. Somebody who goes on writing others is answered with each decision, and not sooner.
func (m *Manager) undone(now time.Time) bool {
	node, latest := m.View.Node(), m.last()
	if !m.Enforce || node == nil || latest == nil || node.UID != m.node || now.Sub(m.told.undone) < apart || now.Sub(m.told.tried) < settles && !atLeast(node.ResourceVersion, m.told.version) {
		return false
	}
	cpu, noCPU := shownCPU(node)
	memory, noMemory := shownMemory(node)
	if !differs(cpu, noCPU, latest.cpu.Advertise) && !differs(memory, noMemory, latest.memory.Advertise) {
		return false
	}
	m.told.undone = now
	return true
}

// atLeast tells that a version of an object is another one or later. Versions can be compared as numbers (KEP-5504); of what is none
// nothing is known.
func atLeast(version, other string) bool {
	a, errA := strconv.ParseUint(version, 10, 64)
	b, errB := strconv.ParseUint(other, 10, 64)
	return errA == nil && errB == nil && a >= b
}

func differs[T model.Amount](shown T, absent bool, advertised T) bool {
	return shown != advertised && (!absent || advertised != 0)
}

func (m *Manager) last() *report {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.latest
}

// decide is one decision and what follows.
func (m *Manager) decide(ctx context.Context, now time.Time) {
	state := m.View.State()
	node := state.Node
	if node == nil {
		return // Nothing is known, and nothing can be written.
	}
	if node.UID != m.node {
		m.begin(node, now)
	}
	r := m.judge(state, now)
	m.mu.Lock()
	m.latest = r
	m.mu.Unlock()
	m.publish(ctx, node, r)
}

// begin forgets the node of before.
func (m *Manager) begin(node *corev1.Node, now time.Time) {
	m.node, m.cpu, m.memory, m.told = node.UID, model.State[series.MilliCPU]{}, model.State[series.Bytes]{}, told{}
	m.dry.cpu, m.dry.hasCPU = present(shownCPU(node))
	m.dry.memory, m.dry.hasMemory = present(shownMemory(node))
	before := parseAccount(node.Annotations[annotation])
	if before == nil || !before.Ended || before.At.After(now.Add(apart)) {
		return
	}
	cpu, memory := before.CPU.was(), before.Memory.was()
	m.cpu.Resume(series.MilliCPU(min(max(cpu.Value(), 0), mostShown)*1000), before.At, m.policy.cpu)
	m.memory.Resume(series.Bytes(max(memory.Value(), 0)), before.At, m.policy.memory)
}

func present[T model.Amount](v T, absent bool) (T, bool) { return v, !absent }

// judge lets the policies decide.
func (m *Manager) judge(state *cluster.State, now time.Time) *report {
	node := state.Node
	m.look(state)
	cpuUse, memoryUse := m.usage.take()
	expected := m.predictions.known()
	r, held := &report{at: now}, elasticrequest.Held(state.Pods)
	cpu := model.Input[series.MilliCPU]{
		At: now, Allocatable: series.MilliCPU(node.Status.Allocatable.Cpu().MilliValue()), Use: cpuUse, Allocated: held.CPU, PodsKnown: state.KnowsPods,
		Forecast: forecastOf(expected, node, corev1.ResourceCPU, now, model.FromCores),
	}
	cpu.Reserve, cpu.ReserveWhy = reserveOf(node, reserveCPU, m.Reserves.CPU)
	memory := model.Input[series.Bytes]{
		At: now, Allocatable: series.Bytes(node.Status.Allocatable.Memory().Value()), Use: memoryUse, Allocated: held.Memory, PodsKnown: state.KnowsPods,
		Forecast: forecastOf(expected, node, corev1.ResourceMemory, now, model.FromBytes),
	}
	memory.Reserve, memory.ReserveWhy = reserveOf(node, reserveMemory, m.Reserves.Memory)
	r.forecast.cpu, r.forecast.memory = cpu.Forecast.OK, memory.Forecast.OK
	if m.Enforce {
		cpu.Shown, cpu.Absent = shownCPU(node)
		memory.Shown, memory.Absent = shownMemory(node)
	} else {
		cpu.Shown, cpu.Absent = m.dry.cpu, !m.dry.hasCPU
		memory.Shown, memory.Absent = m.dry.memory, !m.dry.hasMemory
	}
	r.cpu = model.Decide(cpu, m.policy.cpu, &m.cpu)
	r.memory = model.Decide(memory, m.policy.memory, &m.memory)
	return r
}

// Bears is how much the node can bear for elastic pods: the offer, also where what the node shows is held above it by what pods hold. It
// is not known while the offer is not, nor when nobody has decided for a minute: nobody is to be evicted
// for that.
func (m *Manager) Bears() (room elasticrequest.Room) {
	latest := m.last()
	if latest == nil {
		return room
	}
	if age := m.Clock.Since(latest.at); age < 0 || age > m.policy.cpu.MaxAge {
		return room
	}
	if latest.cpu.Known {
		room.CPU = new(latest.cpu.Offer)
	}
	if latest.memory.Known {
		room.Memory = new(latest.memory.Offer)
	}
	return room
}

// String says what is offered, for logs.
func (r *report) String() string {
	return fmt.Sprintf("cpu %s, memory %s", quantity(r.cpu.Advertise), quantity(r.memory.Advertise))
}
