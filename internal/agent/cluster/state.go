// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	corev1 "k8s.io/api/core/v1"

	"crane.io/crane/internal/agent/ruleset"
)

// View returns the current objects of the node. It is safe for concurrent use; objects are read-only.
type View interface {
	// Node returns the Node; nil if unknown.
	Node() *corev1.Node
	// Pods returns the node's pods ordered by namespace and name.
	Pods() []*corev1.Pod
	// Rules returns the rules of the whole cluster; the node's labels select those for the node.
	Rules() ruleset.Set
}

// Source is a View of immutable states.
type Source interface {
	View
	// State returns a consistent state. The same pointer means no change.
	State() *State
}

// State is an immutable snapshot of the known objects.
type State struct {
	Node  *corev1.Node
	Pods  []*corev1.Pod
	Rules ruleset.Set
	// KnowsPods reports that Pods are all pods of the node.
	KnowsPods bool
	// KnowsRules reports that Rules are all rules of the cluster, or that their kinds do not exist.
	KnowsRules bool
	// IgnoreNodeLabels reports that all rules apply while the node's labels are unknown, because there is no API server.
	IgnoreNodeLabels bool
	// Problems lists unreadable objects and a missing Node.
	Problems []string
	// Unavailable lists kinds the API server does not serve, with the reason; their last known objects are kept.
	Unavailable []string
	// Note describes the source.
	Note string
}

// Static is an unchanging View.
type Static struct{ state *State }

// NewStatic returns a view of one state.
func NewStatic(s State) Static { return Static{&s} }

// State implements Source.
func (s Static) State() *State { return s.state }

// Node implements View.
func (s Static) Node() *corev1.Node { return s.state.Node }

// Pods implements View.
func (s Static) Pods() []*corev1.Pod { return s.state.Pods }

// Rules implements View.
func (s Static) Rules() ruleset.Set { return s.state.Rules }
