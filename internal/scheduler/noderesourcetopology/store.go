// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package noderesourcetopology

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"crane.io/crane/internal/kube/topologyconv"
	"crane.io/crane/pkg/numa"
)

// store is the account of all nodes. What pods hold of a node is read from the scheduler's own view of it, so that both
// always agree (a preemption that saw a pod here that is gone there would evict another one), once for each change of the
// view. What the view does not say yet, the placements of pods on their way, stands in assumed until it does.
type store struct {
	mu    sync.RWMutex
	nodes map[string]*nodeState
	where map[types.UID]string // the node of each assumed placement
	known int                  // nodes with a topology
	// invalidResult is told of annotations that are not understood, once for each.
	invalidResult func(*corev1.Pod, error)
}

// nodeState is a node with a topology or with pods on their way.
type nodeState struct {
	topology *compiled // nil: unknown
	account  *numa.Node
	// generation of the view that account was read from; with no account it means nothing.
	generation int64
	assumed    map[types.UID]assumption
	read       map[types.UID]reading
}

// assumption is a placement that the pod's annotation does not show yet.
type assumption struct {
	reading
	// copied says that the pod's manifest bore the very same annotation before it was placed, so that its sight says nothing.
	copied bool
}

// reading is what an annotation was found to say; nil where it is not understood.
type reading struct {
	placement numa.Placement
	encoded   string
}

// view is the scheduler's view of a node: the one that it schedules by, or a copy on which it tries what would be.
type view struct {
	info  fwk.NodeInfo
	own   fwk.NodeInfo          // the one that it schedules by
	aware []corev1.ResourceName // resources that count of a pod that is only nominated to the node
}

func (v view) trial() bool { return v.info != v.own }

func newStore(invalidResult func(*corev1.Pod, error)) *store {
	return &store{nodes: map[string]*nodeState{}, where: map[types.UID]string{}, invalidResult: invalidResult}
}

// setTopology replaces what is known of a node's zones; nil means that nothing is.
func (s *store) setTopology(node string, t *compiled) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.node(node)
	if n.topology != nil {
		s.known--
	}
	if n.topology = t; t == nil {
		n.account, n.read = nil, nil
		s.tidy(node)
		return
	}
	s.known++
	if n.account != nil && n.account.SetZones(t.zones) != nil {
		n.account = nil // compile has looked at the zones, so that this is not reached
	}
}

// node returns the state of a node, made if need be.
func (s *store) node(name string) *nodeState {
	n := s.nodes[name]
	if n == nil {
		n = &nodeState{assumed: map[types.UID]assumption{}}
		s.nodes[name] = n
	}
	return n
}

// tidy forgets a node of which nothing is known and to which nobody is on the way.
func (s *store) tidy(name string) {
	if n := s.nodes[name]; n != nil && n.topology == nil && len(n.assumed) == 0 {
		delete(s.nodes, name)
	}
}

// fit reports whether r fits on a node as the scheduler sees it.
func (s *store) fit(v view, r *request) (answer verdict) {
	if unassigned := s.look(v, func(n *nodeState, account *numa.Node) { answer = n.fit(account, r) }); unassigned != fits {
		return unassigned
	}
	return answer
}

// spread says over how many zones of a node r would go and how close these are; 0 where no zones are assigned.
func (s *store) spread(v view, r *request) (zones int, closeness float64) {
	s.look(v, func(n *nodeState, account *numa.Node) { zones, closeness = account.Spread(r.on(n.topology)) })
	return zones, closeness
}

// look calls use with the account of a node as v has it, which use must not change. Where no zones are assigned it calls
// nothing and returns the verdict on that, else fits. Many may look at once as long as nothing changes.
func (s *store) look(v view, use func(*nodeState, *numa.Node)) verdict {
	node := v.info.Node().Name
	s.mu.RLock()
	n := s.nodes[node]
	unassigned, done := n.unassigned()
	if done = done || n.current(v); done && unassigned == fits {
		use(n, n.account)
	}
	s.mu.RUnlock()
	if done {
		return unassigned
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	n = s.nodes[node]
	if unassigned, done = n.unassigned(); done {
		return unassigned
	}
	account := s.accountOf(n, v.own)
	if v.trial() {
		m := account.Checkpoint()
		defer account.Undo(m)
		n.try(account, v)
	}
	use(n, account)
	return unassigned
}

// fitNow reports whether r fits on a node as the scheduler saw it last. A node that was never looked at counts as empty.
func (s *store) fitNow(node string, r *request) verdict {
	s.mu.RLock()
	defer s.mu.RUnlock()
	n := s.nodes[node]
	if verdict, ok := n.unassigned(); ok {
		return verdict
	}
	if n.account == nil {
		return n.fit(n.topology.empty, r)
	}
	return n.fit(n.account, r)
}

// leave records that pod uid has left a node, ahead of the scheduler's view.
func (s *store) leave(uid types.UID, node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.release(uid)
	if n := s.nodes[node]; n != nil && n.account != nil {
		n.account.Remove(string(uid))
	}
}

// assume chooses zones of a node for r and holds them for pod. On a node without zones to assign it holds nothing.
func (s *store) assume(pod *corev1.Pod, v view, r *request) (verdict, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	uid := pod.UID
	s.release(uid) // of an earlier try
	node := v.info.Node().Name
	n := s.nodes[node]
	if verdict, ok := n.unassigned(); ok {
		return verdict, nil
	}
	account := s.accountOf(n, v.own)
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
	n.assumed[uid] = assumption{reading: reading{placement: p, encoded: encoded}, copied: encoded == result(pod)}
	s.where[uid] = node
	return fits, nil
}

// release ends what is assumed of pod uid.
func (s *store) release(uid types.UID) {
	node, ok := s.where[uid]
	if !ok {
		return
	}
	delete(s.where, uid)
	n := s.nodes[node]
	delete(n.assumed, uid)
	if n.account != nil {
		n.account.Remove(string(uid))
	}
	s.tidy(node)
}

// forget ends what is assumed of pod uid.
func (s *store) forget(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.release(uid)
}

// assumedOn returns the node of what is assumed of pod uid, or "".
func (s *store) assumedOn(uid types.UID) string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.where[uid]
}

// result is the annotation of a pod that is on its way to a node; empty where it holds no zones.
func (s *store) result(uid types.UID, node string) string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if n := s.nodes[node]; n != nil {
		return n.assumed[uid].encoded
	}
	return ""
}

// knownNodes is the number of nodes with a topology.
func (s *store) knownNodes() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.known
}
