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
	"k8s.io/utils/clock"

	"crane.io/crane/internal/agent/cluster"
	"crane.io/crane/internal/agent/elasticrequest"
	"crane.io/crane/internal/agent/observe"
	"crane.io/crane/internal/agent/oncelog"
	"crane.io/crane/internal/agent/report"
	"crane.io/crane/internal/kube/slimclient"
	model "crane.io/crane/pkg/elastic"
	"crane.io/crane/pkg/units"
)

const (
	// collectInterval is the interval of measurements; decideInterval is the interval of decisions, the same as gocrane's.
	collectInterval = time.Second
	decideInterval  = 10 * time.Second
	// refreshInterval is the age at which an unchanged annotation is written again, to show that the agent runs. 5,000 nodes make eight
	// such writes a second.
	refreshInterval = 10 * time.Minute
	// minAnnotationInterval is the minimum time between two writes of the annotation alone.
	minAnnotationInterval = time.Minute
	// watchDelay is the maximum delay of the watch after a write, used if resource versions cannot be compared.
	watchDelay     = 3 * time.Second
	requestTimeout = 10 * time.Second
)

// Reserves holds the shares of a node that are never advertised, from 0 to 1, unless its annotations override them.
type Reserves struct{ CPU, Memory units.Ratio }

// Config configures a Manager.
type Config struct {
	// View returns the Node and its pods, Latest the last measurement.
	View   cluster.Source
	Latest *observe.Latest
	// NodeChanged signals a changed Node, so that overwritten resources are restored at once; nil for polling only.
	NodeChanged <-chan struct{}
	Client      slimclient.Interface
	// Objects reads and writes the node's TimeSeriesPrediction in Namespace.
	Objects   dynamic.Interface
	Namespace string
	Reserves  Reserves
	// Enforce writes to the API server; otherwise the manager only reports.
	Enforce bool
	Clock   clock.WithTicker
	Log     logr.Logger
	Beat    func(step string)
	// Report receives each write.
	Report func(report.Action)
}

// Manager maintains the elastic resources of the node. Its metrics belong in one registry.
type Manager struct {
	Config

	predictions predictionSync
	usage       usage
	requests    struct {
		state       *cluster.State
		byContainer map[string]elasticrequest.Amounts
	}

	node    types.UID // the Node of the trackers
	cpu     tracker[units.MilliCPU]
	memory  tracker[units.Bytes]
	written writeRecord

	mu            sync.Mutex
	latest        *decision
	wrote, failed float64
}

// decision is the last decision.
type decision struct {
	at     time.Time
	cpu    result[units.MilliCPU]
	memory result[units.Bytes]
}

// New returns a Manager.
func New(c Config) *Manager {
	m := &Manager{Config: c, cpu: newCPUTracker(), memory: newMemoryTracker()}
	m.predictions = predictionSync{
		core:      c.Client,
		objects:   c.Objects,
		namespace: c.Namespace,
		write:     c.Enforce,
		changes:   oncelog.New(c.Log),
	}

	return m
}

// Name implements the agent's manager interface.
func (m *Manager) Name() string { return "node-resource" }

// Run decides until ctx ends and then advertises only what pods hold, because nothing would shrink the offer any more.
func (m *Manager) Run(ctx context.Context) error {
	var readers sync.WaitGroup
	readers.Go(func() { m.readPredictions(ctx) })
	defer readers.Wait()

	ticker := m.Clock.NewTicker(collectInterval)
	defer ticker.Stop()

	// The first decision waits for the first measurement, at most one interval.
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

// collectUse adds the latest measurement.
func (m *Manager) collectUse(state *cluster.State) {
	if m.requests.state != state {
		m.requests.state = state
		m.requests.byContainer = readContainerRequests(state.Pods)
	}

	m.usage.add(m.Latest.Load(), m.requests.byContainer)
}

// readPredictions runs in its own goroutine, so that a slow API server does not delay decisions.
func (m *Manager) readPredictions(ctx context.Context) {
	for {
		pause := collectInterval
		if node := m.View.Node(); node != nil {
			pause = wait.Jitter(predictionInterval, predictionJitter)
			syncCtx, cancel := context.WithTimeout(ctx, requestTimeout)
			m.predictions.sync(syncCtx, node)
			cancel()
		}

		select {
		case <-ctx.Done():
			return
		case <-m.Clock.After(pause):
		}
	}
}

// isOverwritten reports whether the node no longer shows what was written. A kubelet that registers its node again sets extended
// resources to 0 and admits no pods until they are back. Repeated overwrites are answered once per decision.
func (m *Manager) isOverwritten(now time.Time) bool {
	node := m.View.Node()
	latest := m.lastDecision()
	if !m.Enforce || node == nil || latest == nil || node.UID != m.node || now.Sub(m.written.overwritten) < minAnnotationInterval || now.Sub(m.written.tried) < watchDelay && !isAtLeastVersion(node.ResourceVersion, m.written.version) {
		return false
	}
	if !m.cpu.differs(node, latest.cpu.Advertise) && !m.memory.differs(node, latest.memory.Advertise) {
		return false
	}

	m.written.overwritten = now
	return true
}

// isAtLeastVersion reports whether a resource version is the other one or a later one. Resource versions are comparable as numbers
// (KEP-5504); non-numeric versions compare as unknown.
func isAtLeastVersion(version, other string) bool {
	a, errA := strconv.ParseUint(version, 10, 64)
	b, errB := strconv.ParseUint(other, 10, 64)
	return errA == nil && errB == nil && a >= b
}

func (m *Manager) lastDecision() *decision {
	m.mu.Lock()
	defer m.mu.Unlock()

	return m.latest
}

// reconcile makes a decision and publishes it.
func (m *Manager) reconcile(ctx context.Context, now time.Time) {
	state := m.View.State()
	node := state.Node
	if node == nil {
		return // The pods and the patch need a Node.
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

// resetNode drops the state of the previous Node and resumes from its annotation.
func (m *Manager) resetNode(node *corev1.Node, now time.Time) {
	m.node = node.UID
	m.written = writeRecord{}
	m.cpu.reset(node)
	m.memory.reset(node)

	before := parseAnnotation(node.Annotations[annotationName])
	if before == nil || !before.Ended || before.At.After(now.Add(minAnnotationInterval)) {
		return
	}

	m.cpu.state.Resume(m.cpu.parseElastic(before.CPU.previousQuantity()), before.At, m.cpu.policy)
	m.memory.state.Resume(m.memory.parseElastic(before.Memory.previousQuantity()), before.At, m.memory.policy)
}

// evaluate applies the policies to the current inputs.
func (m *Manager) evaluate(state *cluster.State, now time.Time) *decision {
	m.collectUse(state)
	cpuUse, memoryUse := m.usage.drain()
	node := state.Node
	forecast := m.predictions.latest()
	allocated := elasticrequest.SumAllocated(state.Pods)

	cpu := model.Input[units.MilliCPU]{
		At:          now,
		Allocatable: units.MilliCPU(node.Status.Allocatable.Cpu().MilliValue()),
		Use:         cpuUse,
		Allocated:   allocated.CPU,
		PodsKnown:   state.KnowsPods,
	}

	memory := model.Input[units.Bytes]{
		At:          now,
		Allocatable: units.Bytes(node.Status.Allocatable.Memory().Value()),
		Use:         memoryUse,
		Allocated:   allocated.Memory,
		PodsKnown:   state.KnowsPods,
	}

	return &decision{
		at: now, cpu: m.cpu.decide(cpu, node, forecast, m.Reserves.CPU, m.Enforce),
		memory: m.memory.decide(memory, node, forecast, m.Reserves.Memory, m.Enforce),
	}
}

// ReclaimableCapacity returns the offer, which is below what the node advertises while pods hold more. It is unknown while the offer is
// unknown and if there was no decision for a minute, so that no pod is evicted for a stale value.
func (m *Manager) ReclaimableCapacity() (capacity elasticrequest.ReclaimableCapacity) {
	latest := m.lastDecision()
	if latest == nil {
		return capacity
	}

	if age := m.Clock.Since(latest.at); age < 0 || age > m.cpu.policy.MaxAge {
		return capacity
	}

	if latest.cpu.Known {
		capacity.CPU = new(latest.cpu.Offer)
	}
	if latest.memory.Known {
		capacity.Memory = new(latest.memory.Offer)
	}

	return capacity
}

// String formats the advertised amounts for logs.
func (d *decision) String() string {
	return fmt.Sprintf("cpu %s, memory %s", formatQuantity(d.cpu.Advertise), formatQuantity(d.memory.Advertise))
}
