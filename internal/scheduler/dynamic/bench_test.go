// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package dynamic

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"crane.io/crane/pkg/nodeload"
)

// newLargeFixture has 5,000 nodes with 30 pods each, five of them arriving.
func newLargeFixture(b testing.TB) *fixture {
	rng := rand.New(rand.NewPCG(1, 2))
	var machines []*corev1.Node
	for i := range 5000 {
		machines = append(machines, newNode(fmt.Sprintf("node-%04d", i), loadAnnotations(0.1+0.5*rng.Float64(), 0.1+0.5*rng.Float64(), start())))
	}

	bed := newFixture(b, nodeload.Strategy{}, machines...)
	bed.schedule(newPod("first", "100m", "1Gi"))

	for _, m := range machines {
		for i := range 30 {
			pod := newPod(fmt.Sprint(m.Name, "-", i), "10m", "100Mi")
			if i < 5 {
				bed.pods.added(bindTo(pod, m.Name))
			} else {
				bed.pods.added(newRunningPod(pod, m.Name, start().Add(-24*time.Hour)))
			}
		}
	}

	return bed
}

// BenchmarkFilterAndScore measures the plugin for one node and one pod: Filter and Score of 5,000 nodes with 30 pods
// each, with cycle state, explanations and normalizing; an operation is one node. best-ns/op is that of the fastest
// run over all nodes, which is more stable on a busy machine.
func BenchmarkFilterAndScore(b *testing.B) {
	bed := newLargeFixture(b)
	ctx := b.Context()
	pod := newPod("web", "100m", "1Gi")
	s := &state{}
	bed.PreFilter(ctx, s, pod, bed.infos)
	scores := make(fwk.NodeScoreList, len(bed.infos))
	best := time.Duration(math.MaxInt64)
	b.ReportAllocs()
	b.ResetTimer()

	for done := 0; done < b.N; done += len(bed.infos) {
		began := time.Now()
		for at, info := range bed.infos {
			if status := bed.Filter(ctx, s, pod, info); !status.IsSuccess() {
				b.Fatalf("Filter on %s = %v, want success", info.Node().Name, status)
			}

			score, _ := bed.Score(ctx, s, pod, info)
			scores[at].Score = score
		}

		bed.NormalizeScore(ctx, s, pod, scores)
		best = min(best, time.Since(began))
	}

	b.ReportMetric(float64(best)/float64(len(bed.infos)), "best-ns/op")
}

// BenchmarkScoreOfTheNext measures Score for one node and a pod like the one before: one node has changed since.
func BenchmarkScoreOfTheNext(b *testing.B) {
	bed := newLargeFixture(b)
	ctx := b.Context()
	b.ReportAllocs()
	b.ResetTimer()

	for done := 0; done < b.N; done += len(bed.infos) {
		pod := newPod(fmt.Sprint("web-", done), "100m", "1Gi")
		s := &state{}
		bed.PreFilter(ctx, s, pod, bed.infos)

		for _, info := range bed.infos {
			bed.Score(ctx, s, pod, info)
		}
		bed.Reserve(ctx, s, pod, bed.infos[done%len(bed.infos)].Node().Name)
	}
}

// BenchmarkPreFilter measures the plugin for one pod before the nodes, without a new fleet snapshot.
func BenchmarkPreFilter(b *testing.B) {
	bed := newLargeFixture(b)
	ctx := b.Context()
	pod := newPod("web", "100m", "1Gi")
	b.ReportAllocs()
	b.ResetTimer()

	for range b.N {
		bed.PreFilter(ctx, &state{}, pod, bed.infos)
	}
}

// BenchmarkCensus measures a fleet snapshot, which is built once per second.
func BenchmarkCensus(b *testing.B) {
	bed := newLargeFixture(b)
	b.ReportAllocs()
	b.ResetTimer()

	for range b.N {
		bed.takeSnapshot(bed.rules.Load(), bed.infos, bed.clock.Now())
	}
}

// BenchmarkReserve measures a placement on nodes with ever more arriving pods.
func BenchmarkReserve(b *testing.B) {
	bed := newLargeFixture(b)
	ctx := b.Context()
	pod := newPod("web", "100m", "1Gi")
	s := &state{}
	bed.PreFilter(ctx, s, pod, bed.infos)

	pods := make([]*corev1.Pod, b.N)
	for i := range pods {
		pods[i] = newPod(fmt.Sprint("web-", i), "100m", "1Gi")
	}

	b.ReportAllocs()
	b.ResetTimer()

	for i := range b.N {
		bed.Reserve(ctx, s, pods[i], bed.infos[i%100].Node().Name)
	}
}

// BenchmarkNodeChange measures a changed node object: parsing its annotations and computing the pending load.
func BenchmarkNodeChange(b *testing.B) {
	bed := newLargeFixture(b)
	e := bed.entry("node-0000")
	rules := bed.rules.Load()
	objects := []*corev1.Node{newNode("node-0000", loadAnnotations(0.2, 0.2, start())), newNode("node-0000", loadAnnotations(0.3, 0.3, start()))}
	b.ReportAllocs()
	b.ResetTimer()

	for i := range b.N {
		e.refresh(&bed.reader, objects[i%2], rules, start())
	}
}

// TestConcurrentUse runs everything that is concurrent in a scheduler, for the race detector: cycles with parallel
// filters, pod events, policies, queueing hints and explanations.
func TestConcurrentUse(t *testing.T) {
	var machines []*corev1.Node
	for i := range 50 {
		machines = append(machines, newNode(fmt.Sprint("n-", i), loadAnnotations(float64(i)/60, 0.3, start())))
	}

	b := newFixture(t, nodeload.Strategy{}, machines...)
	ctx, cancel := context.WithCancel(t.Context())
	var others sync.WaitGroup
	repeat := func(do func(i int)) {
		others.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				do(i)
			}
		})
	}

	b.schedule(newPod("first", "100m", "1Gi"))
	repeat(func(i int) {
		pod := newPod(fmt.Sprint("other-", i), "10m", "10Mi")
		node := fmt.Sprint("n-", i%60)
		b.pods.added(bindTo(pod, node))
		b.pods.updated(bindTo(pod, node), newRunningPod(pod, node, start()))
		b.pods.deleted(newRunningPod(pod, node, start()))
	})

	repeat(func(i int) {
		b.Explain("shop", fmt.Sprint("web-", i%200))
		b.Recent()
	})
	repeat(func(i int) {
		if _, err := b.nodeHint(klog.Background(), newPod("waiting", "100m", "1Gi"), machines[0], machines[i%50]); err != nil {
			t.Errorf("nodeHint: %v, want no error", err)
		}
	})

	repeat(func(int) { b.clock.Step(time.Millisecond) })
	for i := range 50 {
		pod := newPod(fmt.Sprint("web-", i), "10m", "10Mi")
		s := &state{}
		b.PreFilter(ctx, s, pod, b.infos)

		var filters sync.WaitGroup
		for part := range 4 {
			filters.Go(func() {
				for j := part; j < len(b.infos); j += 4 {
					if b.Filter(ctx, s, pod, b.infos[j]).IsSuccess() {
						b.Score(ctx, s, pod, b.infos[j])
					}
				}
			})
		}

		filters.Wait()
		node := fmt.Sprint("n-", i%50)
		b.Reserve(ctx, s, pod, node)

		if i%3 == 0 {
			b.Unreserve(ctx, s, pod, node)
		}
	}

	cancel()
	others.Wait()
}
