// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package noderesourcetopology

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	topology "crane.io/crane/api/topology/v1alpha1"
	"crane.io/crane/pkg/numa"
)

// TestCachedAnswersEqualComputedOnes checks the answers to random pods on random nodes, across reservations, bindings,
// deletions, changed topologies and trials.
func TestCachedAnswersEqualComputedOnes(t *testing.T) {
	const nodes = 12
	rng := rand.New(rand.NewPCG(5, 6))
	f := newPlugin(t)
	cached := 0

	check := func(pod *corev1.Pod, info fwk.NodeInfo) *answer {
		r := f.core.store.requests.intern(f.request(pod))
		if f.core.store.cached(info, r) != nil {
			cached++
		}

		got := f.answer(info, r)
		f.core.store.withAccount(f.view(info), func(n *nodeState, account *numa.Node) {
			if want := n.answer(account, info, r); got.verdict != want.verdict || got.score != want.score {
				t.Fatalf("%s on %s: verdict %d and score %d, want %d and %d", pod.Name, info.Node().Name, got.verdict, got.score, want.verdict, want.score)
			}
		})

		return got
	}

	held := map[types.UID]*corev1.Pod{} // with the node's name
	for step := range 5000 {
		name := fmt.Sprint("n-", rng.IntN(nodes))
		pod := newPod(fmt.Sprint("p-", step), strconv.Itoa(1+min(rng.IntN(6), rng.IntN(6))))
		if rng.IntN(5) == 0 {
			pod = newPod(pod.Name, "3", annotated(topology.AnnotationPodTopologyAwareness, strconv.FormatBool(rng.IntN(2) == 0)))
		}

		switch rng.IntN(10) {
		case 0:
			changed := nrt(name, 2+rng.IntN(8), 2+rng.IntN(8))
			if rng.IntN(2) == 0 {
				spreading(changed)
			}
			if rng.IntN(6) == 0 {
				kubelets(changed)
			}

			f.core.topologyChanged(klog.Background(), changed)

		case 1:
			if rng.IntN(10) == 0 {
				f.core.topologyDeleted(klog.Background(), name)
			}

		case 2, 3, 4:
			state, status := f.filter(t, pod, name)
			if status.IsSuccess() && f.Reserve(t.Context(), state, pod, name).IsSuccess() {
				check(pod, f.info(name)) // before the scheduler's view shows the pod
				held[pod.UID] = bindCopy(pod, name)
				f.info(name).add(held[pod.UID])
			}
		}

		for uid, p := range held { // any of them
			switch rng.IntN(4) {
			case 0:
				held[uid] = f.bound(p, p.Spec.NodeName)

			case 1:
				other := newPod("other", "6")
				check(other, f.info(p.Spec.NodeName))
				f.Unreserve(t.Context(), newCycleState(), p, p.Spec.NodeName)
				check(other, f.info(p.Spec.NodeName))
				f.info(p.Spec.NodeName).remove(uid)
				delete(held, uid)

			case 2:
				check(newPod("other", "2"), f.info(p.Spec.NodeName))
				if _, err := f.podDeleted(klog.Background(), newPod("waiting", "2"), p, nil); err != nil {
					t.Fatalf("podDeleted: %v, want no error", err)
				}

				check(newPod("other", "2"), f.info(p.Spec.NodeName)) // before the scheduler's view shows the deletion
				f.info(p.Spec.NodeName).remove(uid)
				delete(held, uid)
			}

			break
		}

		for i := range nodes {
			info := f.info(fmt.Sprint("n-", i))
			check(pod, info)

			if rng.IntN(20) == 0 { // a preemption's trial: without one pod
				trial := info.copy()
				if len(trial.pods) > 0 {
					trial.remove(trial.pods[0].GetPod().UID)
				}

				check(pod, trial)
			}
		}
	}

	if cached < 20_000 {
		t.Errorf("%d of some 60,000 answers were cached, want 20,000 or more", cached)
	}
}

func bindCopy(pod *corev1.Pod, node string) *corev1.Pod {
	c := pod.DeepCopy()
	c.Spec.NodeName = node
	return c
}

// TestEqualScoresAreSkipped checks that Score runs only if a node can give a pod more than one zone.
func TestEqualScoresAreSkipped(t *testing.T) {
	free := annotated(topology.AnnotationPodTopologyAwareness, "false")
	one := annotated(topology.AnnotationPodTopologyAwareness, "true")
	f := newPlugin(t, nrt("a", 4, 4), kubelets(spreading(nrt("b", 4, 4))), spreading(nrt("c")))

	check := func(what string, pod *corev1.Pod, want fwk.Code) {
		t.Helper()

		state := newCycleState()
		f.PreFilter(t.Context(), state, pod, nil)

		if s := f.PreScore(t.Context(), state, pod, nil); s.Code() != want {
			t.Errorf("%s: PreScore returned %v, want %v", what, s.Code(), want)
		}
	}

	check("single zones", newPod("p", "2"), fwk.Skip)
	check("single zones, a pod that may spread", newPod("p", "2", free), fwk.Success)
	f.core.topologyChanged(klog.Background(), spreading(nrt("d", 4, 4)))
	check("a node spreads", newPod("p", "2"), fwk.Success)
	check("a node spreads, a pod that may not", newPod("p", "2", one), fwk.Skip)
	f.core.topologyChanged(klog.Background(), nrt("d", 4, 4))
	check("the node does not spread any more", newPod("p", "2"), fwk.Skip)
	f.core.topologyChanged(klog.Background(), spreading(nrt("d", 4, 4)))
	f.core.topologyDeleted(klog.Background(), "d")
	check("the node is gone", newPod("p", "2"), fwk.Skip)
}

// BenchmarkCycle measures the plugin for one pod: PreFilter, Filter of 1,000 nodes with two zones and ten pods each,
// PreScore, Score where it is not skipped, and Reserve; an operation is one node. In each case a second pod is compared:
// like the one before, or unlike the four before, whose answers have to be computed.
func BenchmarkCycle(b *testing.B) {
	const nodes = 1000
	for _, policy := range []string{"single zone", "spreading"} {
		for _, pods := range []string{"alike", "unlike"} {
			b.Run(policy+", "+pods, func(b *testing.B) {
				f := newPlugin(b)
				infos := make([]fwk.NodeInfo, nodes)
				for i := range nodes {
					name := fmt.Sprint("node-", i)
					t := nrt(name, 16, 16)
					if policy == "spreading" {
						spreading(t)
					}

					f.core.topologyChanged(klog.Background(), t)
					for j := range 10 {
						pod := newPod(fmt.Sprint(name, "-", j), "1")
						if s := f.reserve(b, pod, name); !s.IsSuccess() {
							b.Fatalf("Reserve of %s = %v, want success", pod.Name, s)
						}

						f.bound(pod, name)
					}

					infos[i] = f.info(name)
				}

				ctx := b.Context()
				b.ReportAllocs()
				b.ResetTimer()

				for done := 0; done < b.N; done += nodes {
					cpus := 1
					if pods == "unlike" {
						cpus += done / nodes % (maxRequests + 1)
					}

					pod := newPod(fmt.Sprint("web-", done), strconv.Itoa(cpus))
					state := newCycleState()
					f.PreFilter(ctx, state, pod, infos)

					for _, info := range infos {
						if s := f.Filter(ctx, state, pod, info); !s.IsSuccess() {
							b.Fatalf("Filter of %s on %s = %v, want success", pod.Name, info.Node().Name, s)
						}
					}

					if f.PreScore(ctx, state, pod, infos).IsSuccess() {
						for _, info := range infos {
							f.Score(ctx, state, pod, info)
						}
					}

					node := infos[done/nodes%nodes].Node().Name
					f.Reserve(ctx, state, pod, node)
					f.Unreserve(ctx, state, pod, node)
				}
			})
		}
	}
}
