// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ensurancev1alpha1 "crane.io/crane/api/ensurance/v1alpha1"
	"crane.io/crane/internal/testbed/controlplane"
	"crane.io/crane/test/integration/harness"
)

// everyFault rejects the first write of each object and every second one after it, with alternating faults that depend only on the object
// and the number of writes.
func everyFault(_, path string, n int) harness.Fault {
	turns := []harness.Fault{harness.Busy, harness.Overtaken, harness.Failing, harness.Unavailable, harness.Lost}
	switch {
	case n%2 == 0:
		return harness.None
	case strings.HasSuffix(path, "/first/eviction"):
		return harness.Lost // It is executed, so no other pod may be evicted.
	case strings.HasSuffix(path, "/second/eviction"):
		return harness.Overtaken
	}

	return turns[(n/2+len(path))%len(turns)]
}

// TestEveryFault checks that taint, condition, evictions, zones and elastic resources end up right with rejected writes and lost answers,
// and that nothing is left at the end.
func TestEveryFault(t *testing.T) {
	f := newEvictFixture(t, "faults", 7000)
	configureKubelet(t, f.dir, "kubeReserved: {cpu: \"1\"}\n")

	node, err := readNode(t.Context(), f.c, f.name)
	if err != nil {
		t.Fatal(err)
	}

	node.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("16000Mi")}
	node.Status.Capacity = node.Status.Allocatable
	if err := f.c.Status().Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}

	first := f.pod("first", 1500)
	second := f.pod("second", 1400)
	proxy := harness.ServeFaults(t, control, everyFault)
	a := f.agent("--enforce=evict,taint,node-resource", "--feature-gates=NodeResourceTopology=true",
		"--kubeconfig="+proxy.Kubeconfig(t, "crane-agent", controlplane.ServiceAccount("crane-system", "crane-agent")))
	a.awaitLog(t, "phase=calm", "faults/memory")

	for _, victim := range []*corev1.Pod{first, second} {
		f.uses(9000)
		f.evicted(victim.Name)
		becomes(t, f.c, f.name, true)
		a.awaitSnapshots(t, 2)
		f.evicted(victim.Name)
		f.uses(1000)
		f.end(victim)
		becomes(t, f.c, f.name, false)
	}

	awaitEvent(t, f.c, "Node", f.name, "NewPodsKeptAway", "rule faults/memory is firing")
	awaitEvent(t, f.c, "Node", f.name, "NewPodsWelcome")
	zones := zonesClient(t)
	o := topologyOf(t, zones, f.name, reserves(1))
	t.Cleanup(func() { harness.Delete(t, zones, o) })

	offer := func(ended bool) {
		t.Helper()

		eventually(t, "what is offered", func(ctx context.Context) error {
			n, err := readNode(ctx, f.c, f.name)
			if err != nil {
				return err
			}

			var account struct{ Ended bool }
			if err := json.Unmarshal([]byte(n.Annotations[ensurancev1alpha1.AnnotationElasticResources]), &account); err != nil {
				return err
			}

			if account.Ended != ended {
				return errors.New(n.Annotations[ensurancev1alpha1.AnnotationElasticResources])
			}

			return nil
		})
	}

	offer(false)
	// The offer may still rise and features may change; a quiet node is not written otherwise.
	quiet := func() int {
		return proxy.Writes("/eviction") + proxy.Writes("/noderesourcetopologies/"+f.name) + proxy.Writes("/noderesourcetopologies")
	}
	calm := becomes(t, f.c, f.name, false)
	before := quiet()
	a.awaitSnapshots(t, 3)

	if n := quiet(); n != before {
		t.Errorf("%d writes, then %d, want no more", before, n)
	}
	if now := becomes(t, f.c, f.name, false); !interference(now).LastHeartbeatTime.Equal(&interference(calm).LastHeartbeatTime) {
		t.Errorf("condition %+v, then %+v, want the same heartbeat", interference(calm), interference(now))
	}
	if err := a.Terminate(t); err != nil {
		t.Error(err)
	}

	offer(true)
	becomes(t, f.c, f.name, false)

	if n := proxy.Writes("/second/eviction"); n != 2 {
		t.Errorf("the eviction of second was requested %d times, want 2", n)
	}
	proxy.Check(t)
}

// TestRulesReinstalled checks that rules end when their definitions are removed, and that new rules apply after a reinstallation without a
// restart.
func TestRulesReinstalled(t *testing.T) {
	c := newClient(t)
	definitions := definitionsClient(t)
	f := newHostFixture(t, c, 8000)
	harness.Create(t, c, newNode("reinstalled"), nodeQOS("reinstalled", "reinstalled", halfUsed, "40"), soon("reinstalled"))
	a := startAgent(t, "reinstalled", "--enforce=taint", "--host-root="+f.dir)
	becomes(t, c, "reinstalled", true)

	var restores []func()
	for _, kind := range []string{"nodeqoss", "podqoss", "avoidanceactions"} {
		restores = append(restores, uninstall(t, definitions, kind+".ensurance.crane.io"))
	}

	a.awaitLog(t, "watch failed", "NodeQOS", "is not installed")
	for _, restore := range restores {
		restore()
	}

	// At the latest when the kind is served again; the order in which the API server deletes objects and definitions is undefined.
	becomes(t, c, "reinstalled", false)

	for _, o := range []client.Object{nodeQOS("reinstalled", "reinstalled", halfUsed, "40"), soon("reinstalled")} {
		eventually(t, "the kinds are served again", func(ctx context.Context) error { return client.IgnoreAlreadyExists(c.Create(ctx, o)) })
		t.Cleanup(func() { harness.Delete(t, c, o) })
	}
	becomes(t, c, "reinstalled", true)
}
