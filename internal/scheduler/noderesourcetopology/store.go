// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package noderesourcetopology

import (
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"crane.io/crane/internal/kube/topologyconv"
	"crane.io/crane/pkg/numa"
)

// store is the account of all nodes. What pods hold of a node is read from the scheduler's own view, once per change
// of the view, so that both always agree (otherwise a preemption could evict a pod for one that is gone). Placements
// of arriving pods that the view does not show yet are in assumed.
type store struct {
	mu sync.RWMutex
	// nodes maps names to *nodeState. It changes under mu and is read without it.
	nodes        sync.Map
	assumedNodes map[types.UID]string // the node of each assumed placement
	topologies   int                  // nodes with a topology
	spreading    atomic.Int64         // nodes that spread pods over zones by policy
	requests     recentRequests
	answers      [maxRequests]answerTable
	// invalidResult is called for invalid annotations, once each.
	invalidResult func(*corev1.Pod, error)
}

// nodeState is a node with a topology or with arriving pods.
type nodeState struct {
	topology *compiled // nil: unknown
	account  *numa.Node
	// generation of the view that account was read from; meaningless without an account.
	generation int64
	assumed    map[types.UID]assumption
	readings   map[types.UID]reading
	// version increases when the state changes; it is read without the lock.
	version atomic.Uint64
}

// assumption is a placement that the pod's annotation does not show yet.
type assumption struct {
	reading
	// copied means that the pod's manifest had the same annotation before it was placed, so that seeing it proves
	// nothing.
	copied bool
}

// reading is the parsed annotation; nil if invalid.
type reading struct {
	placement numa.Placement
	encoded   string
}

// view is the scheduler's view of a node: that of its snapshot, or a copy for a trial.
type view struct {
	info     fwk.NodeInfo
	snapshot fwk.NodeInfo          // the node in the scheduler's own snapshot
	aware    []corev1.ResourceName // resources that count of a pod that is only nominated to the node
}

func (v view) trial() bool { return v.info != v.snapshot }

func newStore(invalidResult func(*corev1.Pod, error)) *store {
	return &store{assumedNodes: map[types.UID]string{}, invalidResult: invalidResult}
}

// state returns the state of a node, or nil.
func (s *store) state(node string) *nodeState {
	n, _ := s.nodes.Load(node)
	found, _ := n.(*nodeState)
	return found
}

// setTopology replaces the topology of a node; nil removes it.
func (s *store) setTopology(node string, t *compiled) {
	s.mu.Lock()
	defer s.mu.Unlock()

	n := s.node(node)
	n.forgetAnswers()

	if n.topology != nil {
		s.topologies--
	}

	s.spreading.Add(t.spreads() - n.topology.spreads())
	n.topology = t

	if t == nil {
		n.account = nil
		n.readings = nil
		s.dropIfEmpty(node)

		return
	}

	s.topologies++
	if n.account != nil && n.account.SetZones(t.zones) != nil {
		n.account = nil // not reached: compile has validated the zones
	}
}

// node returns the state of a node, created if needed.
func (s *store) node(name string) *nodeState {
	n := s.state(name)
	if n == nil {
		n = &nodeState{assumed: map[types.UID]assumption{}}
		s.nodes.Store(name, n)
	}

	return n
}

// dropIfEmpty removes a node without topology and arriving pods.
func (s *store) dropIfEmpty(name string) {
	if n := s.state(name); n != nil && n.topology == nil && len(n.assumed) == 0 {
		s.nodes.Delete(name)
	}
}

// withAccount calls use with the state of a node, which is nil for an unknown one, and its account in view v, which is
// nil without assigned zones. use must change neither. Calls are concurrent unless the state changes.
func (s *store) withAccount(v view, use func(*nodeState, *numa.Node)) {
	node := v.info.Node().Name
	// An account that is up to date is read under the shared lock, because Filter runs for many nodes at once.
	s.mu.RLock()

	n := s.state(node)
	_, unassigned := n.unassigned()
	done := unassigned || n.current(v)
	switch {
	case unassigned:
		use(n, nil)
	case done:
		use(n, n.account)
	}

	s.mu.RUnlock()
	if done {
		return
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	// The topology may have changed between the locks.
	n = s.state(node)
	if _, unassigned := n.unassigned(); unassigned {
		use(n, nil)
		return
	}

	account := s.accountOf(n, v.snapshot)
	if v.trial() {
		m := account.Checkpoint()
		defer account.Undo(m)

		n.try(account, v)
	}

	use(n, account)
}

// fitNow reports whether r fits on a node in the scheduler's last view. A node that was never viewed counts as empty.
func (s *store) fitNow(node string, r *request) verdict {
	s.mu.RLock()
	defer s.mu.RUnlock()

	n := s.state(node)
	if verdict, ok := n.unassigned(); ok {
		return verdict
	}

	// Before the first view, no pod of the node is known.
	if n.account == nil {
		return n.fit(n.topology.empty, r)
	}

	return n.fit(n.account, r)
}

// recordDeparture records that a pod has left a node before the scheduler's view shows it.
func (s *store) recordDeparture(uid types.UID, node string) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.release(uid)
	if n := s.state(node); n != nil && n.account != nil && n.account.Remove(string(uid)) {
		n.forgetAnswers()
	}
}

// assume selects zones of a node for r and holds them for pod. On a node without assigned zones it holds nothing.
func (s *store) assume(pod *corev1.Pod, v view, r *request) (verdict, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	uid := pod.UID
	s.release(uid) // of an earlier try
	node := v.info.Node().Name

	n := s.state(node)
	if verdict, ok := n.unassigned(); ok {
		return verdict, nil
	}

	account := s.accountOf(n, v.snapshot)
	if verdict := n.fit(account, r); verdict != fits {
		return verdict, nil
	}

	p, _ := account.Assign(r.on(n.topology))
	encoded, err := topologyconv.EncodeResult(p)
	if err != nil {
		return unknown, err
	}

	if err := account.Place(string(uid), p); err != nil {
		return unknown, err
	}

	n.forgetAnswers()
	n.assumed[uid] = assumption{reading: reading{placement: p, encoded: encoded}, copied: encoded == result(pod)}
	s.assumedNodes[uid] = node

	return fits, nil
}

// release ends the assumption of a pod.
func (s *store) release(uid types.UID) {
	node, ok := s.assumedNodes[uid]
	if !ok {
		return
	}

	delete(s.assumedNodes, uid)
	n := s.state(node)
	n.forgetAnswers()
	delete(n.assumed, uid)

	if n.account != nil {
		n.account.Remove(string(uid))
	}
	s.dropIfEmpty(node)
}

// forget ends the assumption of a pod and updates the account.
func (s *store) forget(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.release(uid)
}

// assumedOn returns the node of a pod's assumption, or "".
func (s *store) assumedOn(uid types.UID) string {
	s.mu.RLock()
	defer s.mu.RUnlock()

	return s.assumedNodes[uid]
}

// result returns the annotation of an arriving pod; empty if it holds no zones.
func (s *store) result(uid types.UID, node string) string {
	s.mu.RLock()
	defer s.mu.RUnlock()

	if n := s.state(node); n != nil {
		return n.assumed[uid].encoded
	}

	return ""
}

// knownNodes returns the number of nodes with a topology.
func (s *store) knownNodes() int {
	s.mu.RLock()
	defer s.mu.RUnlock()

	return s.topologies
}
