// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	corev1 "k8s.io/api/core/v1"

	"crane.io/crane/internal/agent/ruleset"
)

// View is what is known of the node at the moment of the call. It is safe for concurrent use; objects are read-only.
type View interface {
	// Node is the node's object; nil where it is not known.
	Node() *corev1.Node
	// Pods are those of this node, ordered by namespace and name.
	Pods() []*corev1.Pod
	// Rules are those of the whole cluster; which of them are for this node follows from its labels.
	Rules() ruleset.Set
}

// Source is a View whose moments can be told apart.
type Source interface {
	View
	// State is everything of one moment. The same pointer means that nothing has changed.
	State() *State
}

// State is what is known at one moment. It is never changed.
type State struct {
	Node  *corev1.Node
	Pods  []*corev1.Pod
	Rules ruleset.Set
	// KnowsPods tells that Pods are all pods of the node; else nobody has said which there are.
	KnowsPods bool
	// KnowsRules tells that Rules are all rules of the cluster, or that it has no such kinds; else nobody has said which there are.
	KnowsRules bool
	// IgnoreNodeLabels tells that rules hold whatever the labels of the node are, where these are not known: there is no API server to ask.
	IgnoreNodeLabels bool
	// Problems are objects that cannot be read, and a node that is not there, each with its name.
	Problems []string
	// Unavailable are kinds that the API server does not tell of, each with why; what was known of them holds.
	Unavailable []string
	// Note says where this is from.
	Note string
}

// Static is a view that stays as it is; NewStatic makes one.
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
