// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	_ "embed"
	"fmt"
	"runtime"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"crane.io/crane/test/e2e/node"
)

// heldRules evict batch pods while elastic pods request more CPU than is reclaimable.
//
//go:embed testdata/held-rules.yaml
var heldRules string

// TestElasticFollowsLoad checks that the offer falls within seconds with other load and does not rise at once afterward. A pod keeps its
// request beyond the reclaimable capacity until a rule evicts it, and it only. Load is that of the whole machine, so the test checks
// directions, and that every state adds up.
func TestElasticFollowsLoad(t *testing.T) {
	f := newFixture(t, node.Options{})
	f.leaveBehind(t, elasticMemory)
	pod := f.Run(t, f.elastic("elastic"))
	tr := f.record(t)
	d := f.deploy(t, "--enforce=node-resource,pod-resource,evict", "--evict-also=bare-pods", "--collect-interval=250ms")
	calm := f.awaitOffer(t, tr, "memory is on offer", func(o offered) bool {
		return !o.account.Ended && o.memory.terms.Problem == "" && o.memory.allocatable > o.memory.amount(o.memory.terms.Allocated)
	})

	// It grows until the node follows, whatever other processes release meanwhile.
	most := min(calm.memory.amount(calm.memory.terms.Allocatable)/8, calm.memory.allocatable/3)
	if most < 4*calm.memory.material() {
		t.Skipf("this machine has too little memory left to show anything: %+v", calm.memory)
	}

	batchPod := func(name, program string, args ...string) *corev1.Pod {
		p := f.Pod(name, program, args, nil, nil)
		p.Labels = batch()
		return f.Run(t, p)
	}

	cpu := batchPod("cpu", "cpu-hog", "-threads", strconv.Itoa(2*runtime.NumCPU()))
	memory := batchPod("memory", "memory-hog", "-mib", strconv.FormatInt(most>>20, 10), "-pause", (30 * time.Second / time.Duration(most>>23)).String())

	loaded := f.awaitOffer(t, tr, "less memory is on offer", func(o offered) bool { return o.memory.allocatable < calm.memory.allocatable })
	if need, was := loaded.memory.amount(loaded.memory.terms.Need), calm.memory.amount(calm.memory.terms.Need); need <= was {
		t.Errorf("%d of memory is needed, want more than %d, as before the load", need, was)
	}

	f.Eventually(t, "more is held than the node can bear", func() error {
		for series, want := range map[string]float64{
			`crane_agent_elastic_cpu_cores{term="offer"}`: 0, `crane_agent_elastic_cpu_cores{term="deficit"}`: 1, `crane_agent_elastic_cpu_cores{term="advertised"}`: 1,
		} {
			if v, err := d.metric(t.Context(), series); err != nil || v != want {
				return fmt.Errorf("%s is %g, %w", series, v, err)
			}
		}

		return nil
	})

	if now, err := tr.last(); err != nil || !holds(now) {
		t.Errorf("the node shows %+v, %v, want the offer under load", now, err)
	}

	f.awaitSame(t, pod)

	f.apply(t, heldRules+batchMakesRoom)
	f.Eventually(t, "the elastic pod is evicted", func() error { return f.gone(t, pod) })
	f.awaitOffer(t, tr, "nothing of it is left on offer", func(o offered) bool { return o.cpu.allocatable == 0 && o.memory.terms.Allocated == "0" })
	f.awaitSame(t, cpu)
	f.awaitSame(t, memory)

	f.Delete(t, cpu)
	f.Delete(t, memory)
	low := f.awaitOffer(t, tr, "a state", func(offered) bool { return true })
	f.Eventually(t, "the offer is higher than what is shown", func() error { return d.waits(t.Context(), &low.memory) })

	if now, err := tr.last(); err != nil || now.memory.allocatable > low.memory.allocatable {
		t.Errorf("the offer changed from %+v to %+v, %v, want no rise at once", low, now, err)
	}
	if !testing.Short() {
		d.rises(t, tr, low.memory.allocatable)
	}

	d.remove(t)
	f.awaitOffer(t, tr, "nothing is on offer", func(o offered) bool { return o.account.Ended && o.cpu.absent && o.memory.absent })
}

// gone returns an error if a pod still exists.
func (f fixture) gone(t testing.TB, pod *corev1.Pod) error {
	t.Helper()

	now, err := f.Client.CoreV1().Pods(pod.Namespace).Get(t.Context(), pod.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return err
	}

	return fmt.Errorf("it is there: %s, deleted at %v", now.Status.Phase, now.DeletionTimestamp)
}

// rises waits until the node advertises more memory than at least. If other load leaves no more for that long, it logs so.
func (d *deployment) rises(t testing.TB, tr *trace, least int64) {
	t.Helper()

	// An offer must be stable for two minutes, and decisions are ten seconds apart.
	const takes, patience = 4 * time.Minute, 6 * time.Minute

	var more time.Time // since when more could be advertised without interruption
	for begin := time.Now(); ; {
		now, err := tr.last()
		if err != nil {
			t.Fatal(err)
		}

		if now.memory.allocatable > least {
			return
		}

		least = now.memory.allocatable
		stable, err := d.metric(t.Context(), `crane_agent_elastic_memory_bytes{term="stable"}`)
		switch {
		case err != nil && time.Since(begin) > patience:
			t.Fatal(err)
		case err != nil: // It may be busy.
		case stable < float64(least+now.memory.material()):
			more = time.Time{}
			if time.Since(begin) > patience {
				t.Logf("others use what could be shown: %+v", now.memory)
				return
			}

		case more.IsZero():
			more = time.Now()
		case time.Since(more) > takes:
			t.Fatalf("after %s the node shows %+v, want %g", takes, now.memory, stable)
		}

		<-time.After(time.Second)
	}
}

// waits returns an error unless the agent holds back memory it could offer, or other load still needs as much.
func (d *deployment) waits(ctx context.Context, before *shown) error {
	var v struct{ offer, advertised, need float64 }
	for term, to := range map[string]*float64{"offer": &v.offer, "advertised": &v.advertised, "need": &v.need} {
		var err error
		if *to, err = d.metric(ctx, fmt.Sprintf("crane_agent_elastic_memory_bytes{term=%q}", term)); err != nil {
			return err
		}
	}

	if v.offer <= v.advertised && v.need < float64(before.amount(before.terms.Need)) {
		return fmt.Errorf("%+v", v)
	}

	return nil
}
