// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"
)

// Names of the plugins.
const (
	randomName  = "Random"
	choicesName = "BestOfTwo"
	oracleName  = "Oracle"
)

// scorer is a plugin that only scores.
type scorer struct {
	name  string
	score func(pod *corev1.Pod, info fwk.NodeInfo) int64
	// prepare is called with all feasible nodes before the first score; nil for none.
	prepare func(pod *corev1.Pod, nodes []fwk.NodeInfo)
}

var (
	_ fwk.PreScorePlugin = &scorer{}
	_ fwk.ScorePlugin    = &scorer{}
)

func (s *scorer) Name() string { return s.name }

// PreScore implements fwk.PreScorePlugin.
func (s *scorer) PreScore(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, nodes []fwk.NodeInfo) *fwk.Status {
	if s.prepare != nil {
		s.prepare(pod, nodes)
	}

	return nil
}

// Score implements fwk.ScorePlugin.
func (s *scorer) Score(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, info fwk.NodeInfo) (int64, *fwk.Status) {
	return s.score(pod, info), nil
}

// ScoreExtensions implements fwk.ScorePlugin.
func (s *scorer) ScoreExtensions() fwk.ScoreExtensions { return nil }

func always(p fwk.Plugin) Factory {
	return func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) { return p, nil }
}

// Default is the default profile as it is.
func Default(Env) Policy { return Policy{} }

// Random takes any node that fits.
func Random(env Env) Policy {
	s := &scorer{name: randomName}
	s.score = func(pod *corev1.Pod, info fwk.NodeInfo) int64 {
		return int64(env.Random(env.Pod(pod), index(env, info)) * float64(fwk.MaxScore))
	}

	return Policy{
		Plugin: randomName,
		New:    always(s),
		Weight: 1,
		Alone:  true,
	}
}

// BestOfTwo takes two nodes that fit at random and of them the one with the lower load, as last reported: the average of five
// minutes, written each minute (Mitzenmacher, How Useful Is Old Information?, 2000).
func BestOfTwo(env Env) Policy {
	loads := newReports(env, len(env.World().Nodes))
	best := ""
	s := &scorer{name: choicesName}

	// Both nodes are drawn once for a pod, so that Score is the same for all nodes of the cycle.
	s.prepare = func(pod *corev1.Pod, nodes []fwk.NodeInfo) {
		p := env.Pod(pod)
		draw := func(i int) string {
			return nodes[min(len(nodes)-1, int(env.Random(p, -1-i)*float64(len(nodes))))].Node().Name
		}
		first := draw(0)
		second := draw(1)
		best = first
		if loads.cpu(env.Node(second)) < loads.cpu(env.Node(first)) {
			best = second
		}
	}

	s.score = func(_ *corev1.Pod, info fwk.NodeInfo) int64 {
		if info.Node().Name == best {
			return fwk.MaxScore
		}

		return fwk.MinScore
	}

	return Policy{
		Plugin: choicesName,
		New:    always(s),
		Weight: 1,
		Alone:  true,
		Start:  loads.start,
	}
}

// Oracle takes the node with the least true use, that of the pod and of pods that are starting included. It is the greedy rule
// that others follow with less knowledge.
func Oracle(env Env) Policy {
	w := env.World()
	demand := make([]float64, len(w.Nodes))
	score := make([]int64, len(w.Nodes))
	var computedAt int64 = -1
	s := &scorer{name: oracleName}

	s.prepare = func(pod *corev1.Pod, nodes []fwk.NodeInfo) {
		// Demand covers all nodes and is computed once per moment; bindings within it are added one by one.
		if now := int64(env.Now()); now != computedAt || computedAt < 0 {
			env.Truth().Demand(env.Now(), demand)
			computedAt = now
		}

		incoming := float64(w.MeanUse(env.Pod(pod), env.Now()))
		best := -1
		lowest := 0.0
		for _, info := range nodes {
			i := index(env, info)
			score[i] = fwk.MinScore

			if u := demand[i] + share(incoming, w, i); best < 0 || u < lowest {
				best = i
				lowest = u
			}
		}

		score[best] = fwk.MaxScore
	}

	s.score = func(_ *corev1.Pod, info fwk.NodeInfo) int64 { return score[index(env, info)] }
	bound := func(pod, node int) { demand[node] += share(float64(w.MeanUse(pod, env.Now())), w, node) }
	removed := func(int, int) { computedAt = -1 }

	return Policy{
		Plugin:  oracleName,
		New:     always(s),
		Weight:  1,
		Alone:   true,
		Bound:   bound,
		Removed: removed,
	}
}
