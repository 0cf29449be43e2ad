// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// rank orders the phases: a pod never moves to an earlier one.
func rank(p corev1.PodPhase) int {
	switch p {
	case corev1.PodPending:
		return 0
	case corev1.PodRunning:
		return 1
	default:
		return 2
	}
}

// TestInvariants applies random pods, loads, resizes, crashes and deletions to a node and checks the invariants after
// each step.
func TestInvariants(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { invariants(t, rand.New(rand.NewPCG(seed, 7))) })
	}
}

func invariants(t *testing.T, rnd *rand.Rand) {
	t.Helper()

	w := newFixture(t)
	prev := map[types.UID]*corev1.Pod{}
	created := 0
	for range 300 {
		var pods []*corev1.Pod
		for _, p := range w.node.Pods() {
			pods = append(pods, w.api[p.UID])
		}

		pick := func() *corev1.Pod {
			if len(pods) == 0 {
				return nil
			}

			return pods[rnd.IntN(len(pods))]
		}

		switch op := rnd.IntN(10); {
		case op < 3:
			created++
			w.put(randomPod(rnd, created))
		case op < 5:
			if p := pick(); p != nil && p.DeletionTimestamp == nil {
				w.update(p, want(fmt.Sprintf("%dm", 100+rnd.IntN(5000)), fmt.Sprintf("%dMi", 64+rnd.IntN(4000))))
			}

		case op == 5:
			if p := pick(); p != nil && p.DeletionTimestamp == nil {
				w.update(p, func(p *corev1.Pod) {
					p.DeletionTimestamp = new(metav1.NewTime(w.now))
					p.DeletionGracePeriodSeconds = new(rnd.Int64N(40))
				})
			}

		case op == 6:
			if p := pick(); p != nil {
				w.node.Kill(p.Namespace, p.Name, p.Spec.Containers[0].Name, 1, w.now)
			}

		case op == 7:
			if p := pick(); p != nil {
				w.load[p.Spec.Containers[0].Name] = Use{CPU: rnd.Float64(), Memory: rnd.Float64() * (4 << 30), Known: rnd.IntN(5) > 0}
			}
		case op == 8:
			w.measure()
		default:
			w.pass(time.Duration(rnd.IntN(3000)) * time.Millisecond)
		}

		check(t, w, prev)
	}
}

func randomPod(rnd *rand.Rand, n int) *corev1.Pod {
	policies := []corev1.RestartPolicy{corev1.RestartPolicyAlways, corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever}
	return newPod(fmt.Sprintf("p%d", n), fmt.Sprintf("%dm", 100+rnd.IntN(1500)), fmt.Sprintf("%dMi", 64+rnd.IntN(1500)), func(p *corev1.Pod) {
		p.Spec.RestartPolicy = policies[rnd.IntN(len(policies))]
		p.Spec.Priority = new(rnd.Int32N(3))
		if rnd.IntN(3) == 0 {
			p.Annotations = map[string]string{AnnotationDuration: fmt.Sprintf("%dms", 200+rnd.IntN(4000)), AnnotationExitCode: fmt.Sprint(rnd.IntN(2))}
		}
		if rnd.IntN(4) == 0 {
			p.Spec.InitContainers = []corev1.Container{{Name: "init"}}
		}
	})
}

// check compares every pod with its previous state, and the node with its capacity.
func check(t *testing.T, w *fixture, prev map[types.UID]*corev1.Pod) {
	t.Helper()

	cpu := resource.Quantity{}
	memory := resource.Quantity{}
	ips := map[string]string{}
	for _, p := range w.node.Pods() {
		if old, ok := prev[p.UID]; ok {
			if rank(p.Status.Phase) < rank(old.Status.Phase) || rank(old.Status.Phase) == 2 && p.Status.Phase != old.Status.Phase {
				t.Fatalf("phase of %s went from %s to %s, want no step back", p.Name, old.Status.Phase, p.Status.Phase)
			}

			for i := range old.Status.ContainerStatuses {
				if a, b := old.Status.ContainerStatuses[i].RestartCount, p.Status.ContainerStatuses[i].RestartCount; b < a {
					t.Fatalf("restartCount of %s went from %d to %d, want no decrease", p.Name, a, b)
				}
			}
		}

		prev[p.UID] = p
		if isTrue(p, corev1.PodReady) && (!isTrue(p, corev1.ContainersReady) || p.Status.Phase != corev1.PodRunning) {
			t.Fatalf("%s is Ready in phase %s, want Running and ContainersReady", p.Name, p.Status.Phase)
		}

		if rank(p.Status.Phase) == 2 {
			continue
		}

		if ip := p.Status.PodIP; ip != "" && ips[ip] != "" {
			t.Fatalf("%s and %s both have address %s, want distinct ones", p.Name, ips[ip], ip)
		}

		ips[p.Status.PodIP] = p.Name
		r := w.node.pods[p.UID]
		cpu.Add(r.requests[corev1.ResourceCPU])
		memory.Add(r.requests[corev1.ResourceMemory])
	}

	alloc := w.node.allocatable
	if cpu.Cmp(*alloc.Cpu()) > 0 || memory.Cmp(*alloc.Memory()) > 0 {
		t.Fatalf("admitted cpu %s, memory %s, want at most %s, %s", cpu.String(), memory.String(), alloc.Cpu(), alloc.Memory())
	}
}
