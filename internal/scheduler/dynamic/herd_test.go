// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package dynamic

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"crane.io/crane/pkg/nodeload"
)

// TestHerd covers a case in which scheduling by measured load alone fails: one node reports 10 %, the others 50 %,
// requests are uneven, metrics are frozen, and a burst of equal pods arrives. With the plugin no node ends above the
// mean by more than one pod's estimate; by gocrane's formula nearly all pods land on the one node.
func TestHerd(t *testing.T) {
	const nodes = 20
	for _, burst := range []int{1, 5, 17, 60, 200} {
		for seed := range uint64(5) {
			ours, estimate := herd(t, nodes, burst, seed)
			theirs := gocraneHerd(nodes, burst, estimate)
			t.Logf("burst of %d, seed %d: above the mean by %.4f, a pod is %.4f; gocrane's formula %.4f", burst, seed, above(ours), estimate, above(theirs))

			// The mean is that of the nodes that got pods: until the cold node has filled up, those at 50 % are above
			// it.
			if over := overshoot(ours, estimate); over > estimate+1e-9 {
				t.Errorf("burst of %d, seed %d: a node ends %.4f above the mean, want %.4f (one pod) or less", burst, seed, over, estimate)
			}
			if burst >= 60 && above(theirs) < 5*estimate {
				t.Errorf("burst of %d: gocrane's formula ends %.4f above the mean, want five pods or more: the case is not the intended one", burst, above(theirs))
			}
		}
	}
}

// herd places a burst with the plugin and returns the load of each node with all its pods.
func herd(t *testing.T, count, burst int, seed uint64) (loadOf []float64, estimate float64) {
	rng := rand.New(rand.NewPCG(seed, 0))
	var machines []*corev1.Node
	for i := range count {
		load := 0.5
		if i == 0 {
			load = 0.1
		}

		machines = append(machines, newNode(fmt.Sprintf("node-%02d", i), loadAnnotations(load, load, start())))
	}

	b := newFixture(t, nodeload.Strategy{}, machines...)
	// No limit: the test is about Score.
	spec := nodeload.GocraneSpec()
	spec.Predicates = nil

	b.policies.policy = policyOf(t, spec)
	for i, info := range b.infos {
		b.infos[i] = &nodeInfo{node: info.Node(), requested: requested{cpu: 1_000 + rng.Int64N(8_000), memory: (10 + rng.Int64N(80)) << 30}}
	}

	for i := range burst {
		if pod := newPod(fmt.Sprintf("burst-%d", i), "100m", "1Gi"); b.placePod(pod) == "" {
			t.Fatalf("%s is not placed, want a node", pod.Name)
		}
	}

	for _, info := range b.infos {
		l := b.entry(info.Node().Name).view.Load().Loads[0]
		loadOf = append(loadOf, float64(l.Value+l.OnWay))
	}

	e, ok := b.Explain("shop", fmt.Sprintf("burst-%d", burst-1))
	if !ok {
		t.Fatalf("Explain found no attempt of burst-%d, want one", burst-1)
	}

	return loadOf, float64(e.CPU) / 10_000
}

// gocraneHerd places the same burst by gocrane's formula, whose inputs do not change while metrics are frozen: score
// = int(sum(weight*(1-load)*100)/sum(weight)) - int(10*hot value), and the hot value is written with the metrics.
func gocraneHerd(count, burst int, estimate float64) []float64 {
	loadOf := make([]float64, count)
	score := make([]int, count)
	for i := range loadOf {
		loadOf[i] = 0.5
		if i == 0 {
			loadOf[i] = 0.1
		}

		score[i] = int((1 - loadOf[i]) * 100)
	}

	best := slices.Index(score, slices.Max(score))
	loadOf[best] += float64(burst) * estimate
	return loadOf
}

func above(loads []float64) float64 {
	var sum float64
	for _, l := range loads {
		sum += l
	}

	return slices.Max(loads) - sum/float64(len(loads))
}

// overshoot returns how far the most loaded node that got pods is above the mean of all; 0 if none is.
func overshoot(loads []float64, estimate float64) float64 {
	var sum, most float64
	for i, l := range loads {
		sum += l
		before := 0.5
		if i == 0 {
			before = 0.1
		}
		if l > before+estimate/2 {
			most = max(most, l)
		}
	}

	return most - sum/float64(len(loads))
}
