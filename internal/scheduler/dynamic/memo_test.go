// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package dynamic

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"crane.io/crane/pkg/nodeload"
)

// TestMemosTellTheTruth checks that cached scores equal computed ones, across placements, changed and new nodes,
// other pods, time and another policy.
func TestMemosTellTheTruth(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	random := func(i int, at time.Time) *corev1.Node {
		return newNode(fmt.Sprint("n-", i), loadAnnotations(0.1+0.5*rng.Float64(), 0.1+0.5*rng.Float64(), at))
	}

	var machines []*corev1.Node
	for i := range 20 {
		machines = append(machines, random(i, start()))
	}

	b := newFixture(t, nodeload.Strategy{}, machines...)
	requests := []string{"50m", "100m", "200m", "300m", "400m", "500m", "600m", "700m", "800m", "900m", "1"}
	remembered := 0
	for step := range 2000 {
		switch rng.IntN(12) {
		case 0:
			node := random(rng.IntN(len(b.infos)), b.clock.Now())
			b.replace(node)
			b.NodeChanged(node)
		case 1:
			b.clock.Step(time.Duration(rng.IntN(700)) * time.Millisecond)
		case 2:
			b.pods.deleted(newRunningPod(newPod(fmt.Sprint("web-", rng.IntN(step+1)), "100m", "1Gi"), "n-1", b.clock.Now()))

		case 3:
			if rng.IntN(20) == 0 {
				b.infos = append(b.infos, &nodeInfo{node: random(len(b.infos), b.clock.Now())})
			}
		case 4:
			if rng.IntN(20) == 0 {
				b.policies.policy = policyOf(t, nodeload.GocraneSpec())
			}
		}

		pod := newPod(fmt.Sprint("web-", step), requests[min(rng.IntN(len(requests)), rng.IntN(len(requests)))], "1Gi")
		s := &state{}
		b.PreFilter(t.Context(), s, pod, b.infos)

		c, err := b.cycle(s, pod)
		if err != nil {
			t.Fatalf("cycle of %s: %v, want no error", pod.Name, err)
		}

		for _, info := range b.infos {
			e := b.find(c, info.Node())
			if c.memo.find(int(e.slot.Load()), e, info.Node()) != nil {
				remembered++
			}

			got, _ := b.Score(t.Context(), s, pod, info)
			parts := c.CostOf(&b.viewOf(c.fleetSnapshot, e, info.Node()).Node, c.use, c.now)
			if want := int64(float64(parts.Cost) * costScale); got != want {
				t.Fatalf("step %d: the cost of %s is %d, want %d", step, info.Node().Name, got, want)
			}

			if slot := e.slot.Load(); c.attempt.answers[slot].score.Load() != scoreWord(parts) {
				t.Fatalf("step %d: the recorded score of %s differs from that of its cost, want %#x", step, info.Node().Name, scoreWord(parts))
			}
		}

		if rng.IntN(3) > 0 {
			b.Reserve(t.Context(), s, pod, b.infos[rng.IntN(len(b.infos))].Node().Name)
		}
	}

	if remembered < 10_000 {
		t.Errorf("%d of some 40,000 scores were cached, want 10,000 or more", remembered)
	}
}
