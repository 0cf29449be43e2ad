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
	// collectInterval is the time between two looks at the latest measurement, decideInterval that between two decisions, which is gocrane's.
	collectInterval = time.Second
	decideInterval  = 10 * time.Second
	// refreshInterval is the age at which the annotation is written anew though nothing has changed, so that its time tells who is alive. 5,000
	// nodes make eight such writes a second.
	refreshInterval = 10 * time.Minute
	// minAnnotationInterval is the least time between two writes of the annotation alone.
	minAnnotationInterval = time.Minute
	// watchDelay is how long a write may take to be seen by the watch, where versions do not tell.
	watchDelay = 3 * time.Second
	// requestTimeout bounds a request.
	requestTimeout = 10 * time.Second
)

// Reserves are the shares of a node that are never offered, where its annotations say nothing.
type Reserves struct{ CPU, Memory series.Ratio }

// Config is what a Manager works with.
type Config struct {
	// View has the Node and its pods, Latest what was measured last.
	View   cluster.Source
	Latest *observe.Latest
	// NodeChanged tells that the Node has changed, so that what is no longer shown is soon shown again; nil where nobody says so.
	NodeChanged <-chan struct{}
	Client      kubernetes.Interface
	// Objects reads and writes the node's TimeSeriesPrediction, in Namespace.
	Objects   dynamic.Interface
	Namespace string
	Reserves  Reserves
	// Enforce writes to the API server; else the manager says what it would write.
	Enforce bool
	Clock   clock.WithTicker
	Log     logr.Logger
	Beat    func(step string)
	// Report tells of what was written.
	Report func(tell.Action)
}

// Manager keeps what the node advertises. Its metrics are for one registry.
type Manager struct {
	Config

	predictions predictionSync
	usage       usage
	requests    struct {
		of     *cluster.State
		claims map[string]elasticrequest.Amounts
	}
	policy struct {
		cpu    model.Policy[series.MilliCPU]
		memory model.Policy[series.Bytes]
	}

	node    types.UID // whom the states are about
	cpu     model.State[series.MilliCPU]
	memory  model.State[series.Bytes]
	dryRun  dryRunNode
	written writeRecord

	mu            sync.Mutex
	latest        *decision
	wrote, failed float64
}

// decision is what was decided last.
type decision struct {
	at     time.Time
	cpu    model.Result[series.MilliCPU]
	memory model.Result[series.Bytes]
	// forecast tells that forecasts count.
	forecast struct{ cpu, memory bool }
}

// dryRunNode is what the node would show, where nothing is written.
type dryRunNode struct {
	cpu       series.MilliCPU
	memory    series.Bytes
	hasCPU    bool
	hasMemory bool
}

// New returns a manager that has looked at nothing yet.
func New(c Config) *Manager {
	m := &Manager{Config: c}
	m.policy.cpu, m.policy.memory = model.CPU(), model.Memory()
	m.predictions = predictionSync{core: c.Client, objects: c.Objects, namespace: c.Namespace, write: c.Enforce, log: c.Log}
	return m
}

// Name implements the agent's manager.
func (m *Manager) Name() string { return "node-resource" }

// Run decides until ctx ends, and then leaves nothing on offer but what pods hold: what nobody watches is not to be given out.
func (m *Manager) Run(ctx context.Context) error {
	var reading sync.WaitGroup
	reading.Go(func() { m.readPredictions(ctx) })
	defer reading.Wait()
	ticker := m.Clock.NewTicker(collectInterval)
	defer ticker.Stop()
	// The first decision waits for the first measurement, as long as one may take.
	decided := m.Clock.Now()
	m.collectUse(m.View.State())
	for {
		now := m.Clock.Now()
		if d := now.Sub(decided); d >= decideInterval || d < 0 || m.lastDecision() == nil && m.usage.complete() || m.isOverwritten(now) {
			decided = now
			m.reconcile(ctx, now)
		}
		m.Beat("decide")
		select {
		case <-ctx.Done():
			return m.withdraw(context.WithoutCancel(ctx))
		case <-m.NodeChanged:
		case <-ticker.C():
			m.collectUse(m.View.State())
		}
	}
}

// collectUse takes the latest measurement in.
func (m *Manager) collectUse(state *cluster.State) {
	if m.requests.of != state {
		m.requests.of, m.requests.claims = state, readContainerRequests(state.Pods)
	}
	m.usage.add(m.Latest.Load(), m.requests.claims)
}

// readPredictions reads in a goroutine of its own, so that an API server that is slow with it holds up nothing.
func (m *Manager) readPredictions(ctx context.Context) {
	for {
		pause := collectInterval
		if node := m.View.Node(); node != nil {
			pause = wait.Jitter(predictionInterval, predictionJitter)
			bounded, cancel := context.WithTimeout(ctx, requestTimeout)
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

// isOverwritten tells that the node does not show what was written: a kubelet that takes its node for a new one sets extended resources to 0,
// and does not let pods in until they are back. Somebody who goes on writing others is answered with each decision, and not sooner.
func (m *Manager) isOverwritten(now time.Time) bool {
	node, latest := m.View.Node(), m.lastDecision()
	if !m.Enforce || node == nil || latest == nil || node.UID != m.node || now.Sub(m.written.overwritten) < minAnnotationInterval || now.Sub(m.written.tried) < watchDelay && !isAtLeastVersion(node.ResourceVersion, m.written.version) {
		return false
	}
	cpu, noCPU := advertisedCPU(node)
	memory, noMemory := advertisedMemory(node)
	if !differs(cpu, noCPU, latest.cpu.Advertise) && !differs(memory, noMemory, latest.memory.Advertise) {
		return false
	}
	m.written.overwritten = now
	return true
}

// isAtLeastVersion tells that a version of an object is another one or later. Versions can be compared as numbers (KEP-5504); of what is none
// nothing is known.
func isAtLeastVersion(version, other string) bool {
	a, errA := strconv.ParseUint(version, 10, 64)
	b, errB := strconv.ParseUint(other, 10, 64)
	return errA == nil && errB == nil && a >= b
}

func differs[T model.Amount](shown T, absent bool, advertised T) bool {
	return shown != advertised && (!absent || advertised != 0)
}

func (m *Manager) lastDecision() *decision {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.latest
}

// reconcile is one decision and what follows.
func (m *Manager) reconcile(ctx context.Context, now time.Time) {
	state := m.View.State()
	node := state.Node
	if node == nil {
		return // Nothing is known, and nothing can be written.
	}
	if node.UID != m.node {
		m.resetNode(node, now)
	}
	r := m.evaluate(state, now)
	m.mu.Lock()
	m.latest = r
	m.mu.Unlock()
	m.publish(ctx, node, r)
}

// resetNode forgets the node of before.
func (m *Manager) resetNode(node *corev1.Node, now time.Time) {
	m.node, m.cpu, m.memory, m.written = node.UID, model.State[series.MilliCPU]{}, model.State[series.Bytes]{}, writeRecord{}
	m.dryRun.cpu, m.dryRun.hasCPU = present(advertisedCPU(node))
	m.dryRun.memory, m.dryRun.hasMemory = present(advertisedMemory(node))
	before := parseAnnotation(node.Annotations[annotationName])
	if before == nil || !before.Ended || before.At.After(now.Add(minAnnotationInterval)) {
		return
	}
	cpu, memory := before.CPU.previousQuantity(), before.Memory.previousQuantity()
	m.cpu.Resume(series.MilliCPU(min(max(cpu.Value(), 0), maxCores)*1000), before.At, m.policy.cpu)
	m.memory.Resume(series.Bytes(max(memory.Value(), 0)), before.At, m.policy.memory)
}

func present[T model.Amount](v T, absent bool) (T, bool) { return v, !absent }

// evaluate lets the policies decide.
func (m *Manager) evaluate(state *cluster.State, now time.Time) *decision {
	node := state.Node
	m.collectUse(state)
	cpuUse, memoryUse := m.usage.drain()
	expected := m.predictions.latest()
	r, held := &decision{at: now}, elasticrequest.SumAllocated(state.Pods)
	cpu := model.Input[series.MilliCPU]{
		At: now, Allocatable: series.MilliCPU(node.Status.Allocatable.Cpu().MilliValue()), Use: cpuUse, Allocated: held.CPU, PodsKnown: state.KnowsPods,
		Forecast: readForecast(expected, node, corev1.ResourceCPU, now, model.ParseCores),
	}
	cpu.Reserve, cpu.ReserveProblem = readReserve(node, reserveCPU, m.Reserves.CPU)
	memory := model.Input[series.Bytes]{
		At: now, Allocatable: series.Bytes(node.Status.Allocatable.Memory().Value()), Use: memoryUse, Allocated: held.Memory, PodsKnown: state.KnowsPods,
		Forecast: readForecast(expected, node, corev1.ResourceMemory, now, model.ParseBytes),
	}
	memory.Reserve, memory.ReserveProblem = readReserve(node, reserveMemory, m.Reserves.Memory)
	r.forecast.cpu, r.forecast.memory = cpu.Forecast.OK, memory.Forecast.OK
	if m.Enforce {
		cpu.Advertised, cpu.NotAdvertised = advertisedCPU(node)
		memory.Advertised, memory.NotAdvertised = advertisedMemory(node)
	} else {
		cpu.Advertised, cpu.NotAdvertised = m.dryRun.cpu, !m.dryRun.hasCPU
		memory.Advertised, memory.NotAdvertised = m.dryRun.memory, !m.dryRun.hasMemory
	}
	r.cpu = model.Decide(cpu, m.policy.cpu, &m.cpu)
	r.memory = model.Decide(memory, m.policy.memory, &m.memory)
	return r
}

// ReclaimableCapacity is how much the node can bear for elastic pods: the offer, also where what the node shows is held above it by what pods hold. It
// is not known while the offer is not, nor when nobody has decided for a minute: nobody is to be evicted
// for that.
func (m *Manager) ReclaimableCapacity() (room elasticrequest.ReclaimableCapacity) {
	latest := m.lastDecision()
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
func (r *decision) String() string {
	return fmt.Sprintf("cpu %s, memory %s", formatQuantity(r.cpu.Advertise), formatQuantity(r.memory.Advertise))
}
