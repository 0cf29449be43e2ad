// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"reflect"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/clock"

	topologyv1alpha1 "crane.io/crane/api/topology/v1alpha1"
	"crane.io/crane/internal/agent/cluster"
	"crane.io/crane/internal/agent/host"
	"crane.io/crane/internal/agent/report"
)

const (
	// readInterval is the time between two looks at /sys and the kubelet's configuration. Both change when somebody does something to the
	// machine, so that nobody waits for seconds.
	readInterval = 10 * time.Second
	// resyncInterval is the time after which the object is looked at although nothing has changed here: somebody may have deleted it. 5,000
	// nodes make 17 requests a second of it.
	resyncInterval = 5 * time.Minute
	// minBackoff and maxBackoff are the pauses after an error, doubled each time.
	minBackoff = 5 * time.Second
	maxBackoff = 10 * time.Minute
	// maxConflictBackoff is the longest pause after somebody else has changed the object again and again.
	maxConflictBackoff = time.Hour
	// writeTimeout is how long the API server may take for a look and a write.
	writeTimeout = 10 * time.Second
)

// Config is what a Manager works with.
type Config struct {
	Root host.Root
	// KubeletDir is the kubelet's root directory as the host sees it.
	KubeletDir string
	// KubeletFile is its configuration as the host sees it; empty for config.yaml in KubeletDir.
	KubeletFile string
	View        cluster.View
	// Kubelet asks the kubelet for its configuration; nil without an API server: then its file is read.
	Kubelet *KubeletClient
	// Dynamic keeps the object; nil without an API server: then the topology is only read.
	Dynamic dynamic.Interface
	// NodeName is the node's.
	NodeName string
	// DryRun logs what would be written.
	DryRun bool
	// Report is told of each write.
	Report func(report.Action)
	Clock  clock.WithTicker
	Log    logr.Logger
	Beat   func(step string)
}

// Manager keeps a node's NodeResourceTopology.
type Manager struct {
	config  Config
	kubelet KubeletReader
	object  topologyObject
	latest  atomic.Pointer[NodeTopology]

	// lastWritten is what was asked for last, with the node that it was for.
	lastWritten struct {
		want *topologyv1alpha1.NodeResourceTopology
		uid  string
	}
	nextSync time.Time // no look at the object before
	// backoff is the pause after an error, calm that after somebody else has changed the object; 0 for none.
	backoff, conflictBackoff      time.Duration
	readLog, writeLog, kubeletLog onceLogger
	loggedProblems                string // the last problems
}

// onceLogger tells of a trouble once, and that it is over.
type onceLogger struct{ last string }

func (o *onceLogger) log(log logr.Logger, err error, what string) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text == o.last {
		return
	}
	if err == nil {
		log.Info("Is over", "trouble", o.last)
	} else {
		log.Info(what, "error", text)
	}
	o.last = text
}

// NewManager returns a manager that has read nothing yet.
func NewManager(c Config) *Manager {
	return &Manager{
		config: c, object: topologyObject{client: c.Dynamic, dryRun: c.DryRun},
		kubelet: KubeletReader{Root: c.Root, Dir: c.KubeletDir, File: c.KubeletFile, Client: c.Kubelet, Clock: c.Clock},
	}
}

// Name implements the agent's manager.
func (m *Manager) Name() string { return "topology" }

// Latest is what was read last, for others in the agent; nil as long as the machine and the kubelet's configuration have never been known.
// It is never changed, the same pointer means that nothing has, and Latest is safe for concurrent use.
func (m *Manager) Latest() *NodeTopology { return m.latest.Load() }

// Run reads and writes until ctx ends. The object stays: it is the node's and goes with it.
func (m *Manager) Run(ctx context.Context) error {
	ticker := m.config.Clock.NewTicker(readInterval)
	defer ticker.Stop()
	for {
		m.Reconcile(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
	}
}

// Reconcile reads once and, where that is due, brings the object up to date.
func (m *Manager) Reconcile(ctx context.Context) {
	node := m.config.View.Node()
	facts, err := m.read(ctx, node)
	if err == nil || ctx.Err() == nil {
		m.readLog.log(m.config.Log, err, "Cannot know the node's topology; its NodeResourceTopology stays as it is")
	}
	if err == nil {
		if before := m.latest.Load(); before == nil || !reflect.DeepEqual(before, facts) {
			m.latest.Store(facts)
			m.logChanges(before, facts)
		}
	}
	m.config.Beat("read")
	if err != nil || m.config.Dynamic == nil || node == nil {
		return
	}
	m.write(ctx, node, facts.Build())
	m.config.Beat("write")
}

// read reads the facts.
func (m *Manager) read(ctx context.Context, node *corev1.Node) (*NodeTopology, error) {
	machine, err := ReadMachine(m.config.Root)
	if err != nil {
		return nil, err
	}
	kubelet, err := m.kubelet.Read(ctx, node)
	m.kubeletLog.log(m.config.Log, m.kubelet.LastError(), "The kubelet does not say what its configuration is; flags and files beside the one that is read are not seen, or what it said before holds")
	if err != nil {
		return nil, err
	}
	return newNodeTopology(machine, kubelet, node), nil
}

// write brings the object up to date where something has changed here, or when it is time to look at it again.
func (m *Manager) write(ctx context.Context, node *corev1.Node, want *topologyv1alpha1.NodeResourceTopology) {
	now := m.config.Clock.Now()
	changed := m.lastWritten.want == nil || m.lastWritten.uid != string(node.UID) || !equality.Semantic.DeepEqual(m.lastWritten.want, want)
	if changed && m.backoff == 0 {
		m.nextSync = now
	}
	if now.Before(m.nextSync) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	did, err := m.object.sync(ctx, node, want)
	switch {
	case apierrors.IsConflict(err):
		m.nextSync = now // It changed between the look and the write; the next step looks again.
		return
	case err != nil && ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded):
		return // The agent ends.
	case err != nil:
		m.backoff = min(max(2*m.backoff, minBackoff), maxBackoff)
		m.nextSync = now.Add(m.backoff)
		m.writeLog.log(m.config.Log, err, "Cannot write the NodeResourceTopology; it is tried again")
		return
	}
	m.scheduleNext(now, did, changed, want)
	m.lastWritten.want, m.lastWritten.uid = want, string(node.UID)
}

// scheduleNext says when to look again. Where the object was found changed though nothing has changed here, somebody else writes it: then ever
// less often, so that nobody fights.
func (m *Manager) scheduleNext(now time.Time, did operation, changed bool, want *topologyv1alpha1.NodeResourceTopology) {
	m.writeLog.log(m.config.Log, nil, "")
	m.backoff = 0
	m.nextSync = now.Add(resyncInterval + jitter(m.config.NodeName))
	switch {
	case did == operationNone && m.config.DryRun:
		return
	case did == operationNone:
		m.conflictBackoff = 0
		return
	case did == operationPatch && !changed && !m.config.DryRun:
		m.conflictBackoff = min(max(2*m.conflictBackoff, 2*resyncInterval), maxConflictBackoff)
		m.nextSync = now.Add(m.conflictBackoff)
		m.config.Log.Info("Somebody else changed the NodeResourceTopology; it is put right, and looked at less often", "next", m.conflictBackoff.String())
		return
	case m.config.DryRun && !changed:
		return
	}
	a := report.Action{Kind: report.NodeZones, Outcome: report.Done, To: describe(want), Reason: "the NodeResourceTopology is made"}
	if did == operationPatch {
		a.Reason = "the node, or what the kubelet reserves of it, has changed"
	}
	if m.config.DryRun {
		a.Outcome = report.NotEnforced
	}
	m.config.Report(a)
}

// jitter is a part of a minute by the node's name, so that nodes started together do not all ask together.
func jitter(node string) time.Duration {
	h := fnv.New32a()
	_, _ = h.Write([]byte(node)) // It cannot fail.
	return time.Duration(h.Sum32()%60) * time.Second
}

// logChanges tells what has changed about the machine and the kubelet.
func (m *Manager) logChanges(before, now *NodeTopology) {
	k := &now.Kubelet
	if before == nil || before.Kubelet.Source != k.Source || before.Kubelet.Static != k.Static || before.Kubelet.StaticMemory != k.StaticMemory {
		m.config.Log.Info("Knows the kubelet's configuration", "from", k.Source, "assigns CPUs itself", k.Static, "assigns memory itself", k.StaticMemory)
	}
	if problems := strings.Join(now.Problems(), "; "); problems != m.loggedProblems {
		m.loggedProblems = problems
		if problems != "" {
			m.config.Log.Info("The node's topology has problems", "problems", problems)
		}
	}
}

// describe is a topology in a line.
func describe(t *topologyv1alpha1.NodeResourceTopology) string {
	parts := make([]string, len(t.Zones))
	for i := range t.Zones {
		r := t.Zones[i].Resources
		parts[i] = fmt.Sprintf("%s: cpu %s of %s", t.Zones[i].Name, r.Allocatable.Cpu(), r.Capacity.Cpu())
	}
	return strings.Join(parts, ", ")
}
