// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package noderesourcetopology

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"crane.io/crane/internal/kube/topologyconv"
	"crane.io/crane/pkg/numa"
)

// unassigned returns the verdict for a node without assigned zones, independent of the request; fits and false for
// other nodes. A nil node is unknown.
func (n *nodeState) unassigned() (verdict, bool) {
	switch {
	case n == nil || n.topology == nil:
		return unknown, true
	case !n.topology.managed:
		return unmanaged, true
	case !n.topology.empty.HasZones():
		return zoneless, true
	}

	return fits, false
}

// fit reports whether r fits into an account of the node.
func (n *nodeState) fit(account *numa.Node, r *request) verdict {
	req := r.on(n.topology)
	switch fit := account.Fit(req); {
	case fit == numa.Fits:
		return fits
	case fit == numa.NotNow && req.SingleZone:
		return noZone
	case fit == numa.NotNow:
		return tooLittle
	case req.SingleZone:
		return noZoneEver
	}

	return tooLittleEver
}

// current reports whether the account was read from this view.
func (n *nodeState) current(v view) bool {
	return n.account != nil && !v.trial() && n.generation == v.info.GetGeneration()
}

// accountOf returns the account of a node as the scheduler sees it, rebuilt only if that has changed. The caller
// holds the write lock; the node has zones.
func (s *store) accountOf(n *nodeState, info fwk.NodeInfo) *numa.Node {
	if n.account != nil && n.generation == info.GetGeneration() {
		return n.account
	}

	account := n.topology.empty.Clone()
	readings := make(map[types.UID]reading, len(n.readings))
	seen := map[types.UID]bool{}
	for _, p := range info.GetPods() {
		pod := p.GetPod()
		encoded := result(pod)
		if a, ok := n.assumed[pod.UID]; ok {
			seen[pod.UID] = true
			released := releasesZones(pod)
			if released || a.encoded == encoded && !a.copied {
				// The annotation has arrived and replaces the assumption, or the pod needs neither any more.
				delete(n.assumed, pod.UID)
				delete(s.assumedNodes, pod.UID)
				readings[pod.UID] = a.reading
			}

			// The pod is in the view and its annotation is not, or not yet.
			if !released {
				s.place(account, pod, a.placement)
			}
			continue
		}

		if encoded == "" || releasesZones(pod) {
			continue
		}

		parsed, ok := n.readings[pod.UID]
		if !ok || parsed.encoded != encoded {
			parsed = s.readResult(pod, encoded)
		}

		readings[pod.UID] = parsed
		s.place(account, pod, parsed.placement)
	}

	// Pods that were reserved since the view was made.
	for uid, a := range n.assumed {
		if !seen[uid] {
			_ = account.Place(string(uid), a.placement) // it was checked when it was assumed
		}
	}

	n.account = account
	n.generation = info.GetGeneration()
	n.readings = readings

	return account
}

// try changes the account to that of a copy of the scheduler's view: without removed pods (a preemption's victims),
// and with nominated ones on the zones that they would get.
func (n *nodeState) try(account *numa.Node, v view) {
	present := make(map[types.UID]bool, len(v.info.GetPods()))
	for _, p := range v.info.GetPods() {
		present[p.GetPod().UID] = true
	}

	for _, p := range v.snapshot.GetPods() {
		if uid := p.GetPod().UID; !present[uid] {
			account.Remove(string(uid))
		}
	}

	for _, p := range v.info.GetPods() {
		pod := p.GetPod()
		if pod.Spec.NodeName != "" {
			continue
		}

		if r := requestOf(pod, v.aware); r != nil {
			if placement, ok := account.Assign(r.on(n.topology)); ok {
				_ = account.Place(string(pod.UID), placement) // what is assigned can be placed
			}
		}
	}
}

func (s *store) place(account *numa.Node, pod *corev1.Pod, p numa.Placement) {
	if len(p) == 0 {
		return
	}

	if err := account.Place(string(pod.UID), p); err != nil {
		s.invalidResult(pod, err)
	}
}

func (s *store) readResult(pod *corev1.Pod, encoded string) reading {
	p, err := topologyconv.DecodeResult(encoded)
	if err != nil {
		s.invalidResult(pod, err)
	}

	return reading{encoded: encoded, placement: p}
}
