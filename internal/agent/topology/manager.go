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
	"crane.io/crane/internal/agent/kubeletsocket"
	"crane.io/crane/internal/agent/oncelog"
	"crane.io/crane/internal/agent/report"
	"crane.io/crane/internal/component/backoff"
)

const (
	// readInterval is the interval of reads of /sys and the kubelet's configuration, which change rarely.
	readInterval = 10 * time.Second
	// resyncInterval is the interval at which the object is compared although the node is unchanged, since it may have been deleted.
	// 5,000 nodes cause 17 requests a second.
	resyncInterval = 5 * time.Minute
	// minBackoff and maxBackoff limit the exponential backoff after errors.
	minBackoff = 5 * time.Second
	maxBackoff = 10 * time.Minute
	// maxConflictBackoff limits the backoff while another client keeps changing the object.
	maxConflictBackoff = time.Hour
	// writeTimeout limits a comparison and a write.
	writeTimeout = 10 * time.Second
)

// Config configures a Manager.
type Config struct {
	Root host.Root
	// KubeletDir is the kubelet's root directory on the host.
	KubeletDir string
	// KubeletFile is its configuration file on the host; empty for config.yaml in KubeletDir.
	KubeletFile string
	// AnswerPath is the file that keeps the kubelet's last answer; empty for none.
	AnswerPath string
	View       cluster.View
	// Assignments are what the kubelet's socket reports; nil for none.
	Assignments kubeletsocket.Source
	// Kubelet queries the kubelet's configuration; nil without an API server, in which case its file is read.
	Kubelet *KubeletClient
	// Dynamic writes the object; nil without an API server, in which case the topology is only read.
	Dynamic  dynamic.Interface
	NodeName string
	// PinsCPUs means that this agent assigns CPUs to containers.
	PinsCPUs bool
	// DryRun reports what would be written.
	DryRun bool
	// Report receives each write.
	Report func(report.Action)
	Clock  clock.WithTicker
	Log    logr.Logger
	Beat   func(step string)
}

// Manager maintains the node's NodeResourceTopology.
type Manager struct {
	config  Config
	kubelet KubeletReader
	object  topologyObject
	latest  atomic.Pointer[NodeTopology]

	// lastWritten is the last object and the UID of its Node.
	lastWritten struct {
		want *topologyv1alpha1.NodeResourceTopology
		uid  string
	}
	nextSync time.Time // earliest time of the next comparison
	// backoff is the pause after an error, conflictBackoff after changes by another client; 0 for none.
	backoff, conflictBackoff time.Duration
	problems                 *oncelog.Logger
}

// NewManager returns a Manager.
func NewManager(c Config) *Manager {
	return &Manager{
		config:   c,
		problems: oncelog.New(c.Log),
		object:   topologyObject{client: c.Dynamic, dryRun: c.DryRun},
		kubelet: KubeletReader{
			Root:        c.Root,
			Dir:         c.KubeletDir,
			File:        c.KubeletFile,
			Client:      c.Kubelet,
			AnswerPath:  c.AnswerPath,
			Assignments: c.Assignments,
			Clock:       c.Clock,
		},
	}
}

// Name implements the agent's manager interface.
func (m *Manager) Name() string { return "topology" }

// Latest returns the last topology that was read, nil before the first. It is immutable, and the pointer changes only with the topology.
// Latest is safe for concurrent use.
func (m *Manager) Latest() *NodeTopology { return m.latest.Load() }

// Run reconciles until ctx ends. The object stays; it is deleted with the Node.
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

// Reconcile reads the topology and writes the object if due.
func (m *Manager) Reconcile(ctx context.Context) {
	node := m.config.View.Node()
	topology, err := m.read(ctx, node)
	if err == nil || ctx.Err() == nil {
		m.problems.Error("read", "reading the node's topology; its NodeResourceTopology stays unchanged", err)
	}

	if err == nil {
		if before := m.latest.Load(); before == nil || !reflect.DeepEqual(before, topology) {
			m.latest.Store(topology)
			m.logChanges(before, topology)
		}
	}

	m.config.Beat("read")
	if err != nil || m.config.Dynamic == nil || node == nil {
		return
	}

	m.write(ctx, node, topology.Build())
	m.config.Beat("write")
}

func (m *Manager) read(ctx context.Context, node *corev1.Node) (*NodeTopology, error) {
	machine, err := ReadMachine(m.config.Root)
	if err != nil {
		return nil, err
	}

	kubelet, err := m.kubelet.Read(ctx, node)
	m.problems.Error("kubelet", "querying the kubelet's configuration; its last answer or its file, which lacks flags and drop-in files, is used", m.kubelet.LastError())
	m.problems.Error("answer", "saving the kubelet's answer for the next agent", m.kubelet.SaveError())

	if err != nil {
		return nil, err
	}

	topology := newNodeTopology(machine, kubelet, node)
	topology.PinsCPUs = m.config.PinsCPUs
	return topology, nil
}

// write updates the object after a change of the node, or when it is due for a comparison.
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

	op, err := m.object.sync(ctx, node, want)
	switch {
	case apierrors.IsConflict(err):
		m.nextSync = now // Changed between comparison and write; the next step compares again.
		return
	case err != nil && ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded):
		return // The agent stops.

	case err != nil:
		m.backoff = backoff.Exponential{First: minBackoff, Last: maxBackoff}.Next(m.backoff)
		m.nextSync = now.Add(m.backoff)
		m.problems.Error("write", "writing the NodeResourceTopology; retrying", err)

		return
	}

	m.scheduleNext(now, op, changed, want)
	m.lastWritten.want = want
	m.lastWritten.uid = string(node.UID)
}

// scheduleNext sets the time of the next comparison. If another client keeps changing the object, the intervals grow, so that the two do
// not fight.
func (m *Manager) scheduleNext(now time.Time, op operation, changed bool, want *topologyv1alpha1.NodeResourceTopology) {
	m.problems.Error("write", "", nil)
	m.backoff = 0
	m.nextSync = now.Add(resyncInterval + jitter(m.config.NodeName))
	switch {
	case op == operationNone && m.config.DryRun:
		return
	case op == operationNone:
		m.conflictBackoff = 0
		return

	case op == operationPatch && !changed && !m.config.DryRun:
		m.conflictBackoff = backoff.Exponential{First: 2 * resyncInterval, Last: maxConflictBackoff}.Next(m.conflictBackoff)
		m.nextSync = now.Add(m.conflictBackoff)
		m.config.Log.Info("corrected the NodeResourceTopology after a change by another client; comparing it less often", "retryAfter", m.conflictBackoff.String())

		return

	case m.config.DryRun && !changed:
		return
	}

	// Only the first write and those after changes of the node are news.
	a := report.Action{
		Kind:    report.NodeZones,
		Outcome: report.Done,
		To:      describe(want),
		Reason:  "the NodeResourceTopology does not exist",
	}

	if op == operationPatch {
		a.Reason = "the node or the kubelet's reservations have changed"
	}
	if m.config.DryRun {
		a.Outcome = report.NotEnforced
	}

	m.config.Report(a)
}

// jitter returns a part of a minute derived from the node's name, which spreads the requests of nodes started together.
func jitter(node string) time.Duration {
	h := fnv.New32a()
	_, _ = h.Write([]byte(node)) // never fails
	return time.Duration(h.Sum32()%60) * time.Second
}

// logChanges logs changes of the kubelet's configuration and new problems.
func (m *Manager) logChanges(before, now *NodeTopology) {
	k := &now.Kubelet
	if before == nil || before.Kubelet.Source != k.Source || before.Kubelet.Static != k.Static || before.Kubelet.StaticMemory != k.StaticMemory {
		m.config.Log.Info("read the kubelet's configuration", "source", k.Source, "staticCPUs", k.Static, "staticMemory", k.StaticMemory)
	}

	if problems := strings.Join(now.Problems(), "; "); problems == "" {
		m.problems.Log("topology", "")
	} else {
		m.problems.Log("topology", "the node's topology has problems", "problems", problems)
	}
}

// describe formats a topology in one line.
func describe(t *topologyv1alpha1.NodeResourceTopology) string {
	parts := make([]string, len(t.Zones))
	for i := range t.Zones {
		r := t.Zones[i].Resources
		parts[i] = fmt.Sprintf("%s: cpu %s of %s", t.Zones[i].Name, r.Allocatable.Cpu(), r.Capacity.Cpu())
	}

	return strings.Join(parts, ", ")
}
