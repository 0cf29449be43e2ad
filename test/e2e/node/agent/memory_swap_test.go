// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"crane.io/crane/test/e2e/node"
)

// swapRules evict batch pods above THRESHOLD bytes of memory in use, after reclaiming page cache.
//
//go:embed testdata/swap-rules.yaml
var swapRules string

// swapFixture is a node with swap, in which an idle pod has memory.
type swapFixture struct {
	*deployment
	cgroups      *node.Cgroups
	idle, reader *corev1.Pod
}

// nodeMemory is the node's memory in the agent's metrics, in bytes.
type nodeMemory struct{ total, used, swapped, use float64 }

// memory reads the metrics.
func (f *swapFixture) memory(ctx context.Context) (m nodeMemory, err error) {
	for series, to := range map[string]*float64{
		"crane_agent_node_memory_bytes": &m.total, "crane_agent_node_memory_usage_bytes": &m.used, "crane_agent_node_memory_swapped_bytes": &m.swapped,
		`crane_agent_elastic_memory_bytes{term="use"}`: &m.use,
	} {
		var problem error
		*to, problem = f.metric(ctx, series)
		err = errors.Join(err, problem)
	}

	return m, err
}

// file reads a number from a file of a pod's container.
func (f *swapFixture) file(t testing.TB, pod *corev1.Pod, name string) (int64, error) {
	t.Helper()

	text, err := f.cgroups.Read(t, containerDir(f.cgroups, pod)+"/"+name)
	if err != nil {
		return 0, err
	}

	return strconv.ParseInt(text, 10, 64)
}

// TestMemoryWithSwap checks that memory in swap is neither offered nor a reason for evictions, and that reclaiming page cache of a pod
// moves no memory of others to swap.
func TestMemoryWithSwap(t *testing.T) {
	const swap, held, out = 192, 96, 40
	f := newMachineFixture(t, node.Options{Machine: true, Cgroup: 2, SwapMiB: swap})
	run := func(name string, ask, limit corev1.ResourceList, args ...string) *corev1.Pod {
		pod := f.Pod(name, "memory-hog", args, ask, limit)
		pod.Labels = batch()
		return f.Run(t, pod)
	}

	n := &swapFixture{
		idle:   run("idle", node.Resources("", "512Mi"), node.Resources("", "768Mi"), "-mib", strconv.Itoa(held)),
		reader: run("reader", nil, nil, "-mib", strconv.Itoa(held), "-file", "/tmp/cache"),
	}

	n.cgroups = f.Cgroups(t)
	for pod, may := range map[*corev1.Pod]bool{n.idle: true, n.reader: false} {
		if most, err := n.file(t, pod, "memory.swap.max"); err != nil || most > 0 != may {
			t.Fatalf("the kubelet lets %s have %d bytes of swap, %v, want swap for the idle pod alone", pod.Name, most, err)
		}
	}

	f.Eventually(t, "the memory is taken", func() error {
		for _, pod := range []*corev1.Pod{n.idle, n.reader} {
			if has, err := n.file(t, pod, "memory.current"); err != nil || has < held*mebi {
				return fmt.Errorf("%s has %d bytes, %w", pod.Name, has, err)
			}
		}

		return nil
	})

	n.deployment = f.deploy(t, "--enforce=node-resource,memory-throttle,evict", "--evict-also=bare-pods", "--collect-interval=2s")
	before := n.settled(t, 0)
	if before.total >= (1536+swap/2)*mebi || before.swapped > mebi {
		t.Errorf("a node of 1536 MiB and %d of swap is %+v, want memory alone to count", swap, before)
	}

	// As a kernel short of memory does; it returns an error if it cannot reclaim as much.
	if err := n.cgroups.Write(t, containerDir(n.cgroups, n.idle)+"/memory.reclaim", strconv.Itoa(64*mebi)); err != nil {
		t.Logf("swap out: %v", err)
	}

	after := n.settled(t, out*mebi)
	inSwap, err := n.file(t, n.idle, "memory.swap.current")
	if err != nil || inSwap < out*mebi {
		t.Fatalf("%d bytes of the idle pod are in swap, %v, want %d MiB", inSwap, err, out)
	}

	t.Logf("%d MiB in swap; in use %.0f MiB, was %.0f; elastic resources leave %.0f MiB to others, it was %.0f; by the kernel %.0f MiB in swap",
		inSwap/mebi, after.used/mebi, before.used/mebi, after.use/mebi, before.use/mebi, after.swapped/mebi)

	// A rule just above the memory in use does nothing, although with swap it would be exceeded.
	remove := f.put(t, strings.ReplaceAll(swapRules, "THRESHOLD", fmt.Sprint(int64(after.used)+out*mebi))+batchMakesRoom)
	n.undisturbed(t, 20*time.Second)
	remove()

	// A rule that always fires reclaims page cache and swaps out no memory within a request.
	f.apply(t, memoryRules)
	f.Eventually(t, "the files are dropped", func() error {
		has, err := n.file(t, n.reader, "memory.current")
		if err == nil && has > held/2*mebi {
			err = fmt.Errorf("the reader has %d bytes", has)
		}

		return err
	})

	if now, err := n.file(t, n.idle, "memory.swap.current"); err != nil || now > inSwap+mebi {
		t.Errorf("%d bytes of the idle pod are in swap, %v, want %d as before", now, err, inSwap)
	}

	f.awaitSame(t, n.idle)
	f.awaitSame(t, n.reader)
}

// settled waits until the given amount is in swap and ten measurements in a row leave as much to others, and returns the metrics.
func (f *swapFixture) settled(t testing.TB, swapped float64) (m nodeMemory) {
	t.Helper()

	const slack = 24 * mebi // less than what is swapped out
	good := 0
	f.Eventually(t, "what is in swap counts", func() error {
		var err error
		if m, err = f.memory(t.Context()); err != nil {
			return err
		}

		if m.swapped < swapped || m.use < m.used+m.swapped-slack {
			good = 0
			return fmt.Errorf("%+v", m)
		}

		good++

		if good < 10 {
			return fmt.Errorf("good for %d looks", good)
		}

		return nil
	})

	return m
}

// undisturbed checks for a while that no pod is evicted or throttled.
func (f *swapFixture) undisturbed(t testing.TB, long time.Duration) {
	t.Helper()

	for begun := time.Now(); time.Since(begun) < long; {
		for _, pod := range []*corev1.Pod{f.idle, f.reader} {
			f.awaitSame(t, pod)
			if high, err := f.cgroups.Read(t, containerDir(f.cgroups, pod)+"/memory.high"); err == nil && high != "max" {
				t.Fatalf("memory.high of %s is %s, want no limit", pod.Name, high)
			}
		}
	}
}
