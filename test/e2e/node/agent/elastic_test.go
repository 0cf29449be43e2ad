// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"fmt"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	ensurancev1alpha1 "crane.io/crane/api/ensurance/v1alpha1"
	"crane.io/crane/test/e2e/node"
)

// elasticMemory is the memory request of the elastic pod, beside a core.
const elasticMemory = "64Mi"

// elastic returns a pod on elastic resources, to be placed on this node by the scheduler.
func (f fixture) elastic(name string) *corev1.Pod {
	ask := corev1.ResourceList{
		ensurancev1alpha1.ResourceReclaimedCPU: resource.MustParse("1"), ensurancev1alpha1.ResourceReclaimedMemory: resource.MustParse(elasticMemory),
	}
	pod := f.Pod(name, "pause", nil, ask, ask)
	pod.Labels = batch()
	pod.Spec.NodeName = ""
	pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: f.Name()}

	return pod
}

// awaitElasticLimits waits until the elastic pod and its container, which get no limits from the kubelet, have their requested quota,
// memory and the weight of a core.
func (f fixture) awaitElasticLimits(t testing.TB, pod *corev1.Pod) {
	t.Helper()

	cgroups := f.Cgroups(t)
	memory := resource.MustParse(elasticMemory)
	f.Eventually(t, "the limits that "+pod.Name+" asks for", func() error {
		ofPod, err := cgroups.PodLimits(t, pod)
		if err != nil {
			return err
		}

		of, err := cgroups.ContainerLimits(t, pod)
		if err != nil {
			return err
		}

		for _, l := range []node.Limits{of, ofPod} {
			if math.Abs(l.Cores-1) > 1e-6 || l.Memory != memory.Value() {
				return fmt.Errorf("pod %+v, container %+v", ofPod, of)
			}
		}

		container := filepath.Dir(f.file("cpu", "cpu.shares", pod))
		for _, dir := range []string{container, filepath.Dir(container)} {
			name, want := "cpu.shares", "1024"
			if f.Cgroup() == 2 {
				name, want = "cpu.weight", "39"
			}

			if text, err := os.ReadFile(filepath.Join(dir, name)); err != nil || strings.TrimSpace(string(text)) != want {
				return fmt.Errorf("%s of %s is %q, want %s: %w", name, path.Base(dir), text, want, err)
			}
		}

		return nil
	})
}

// awaitSame checks that the pod is still the started one.
func (f fixture) awaitSame(t testing.TB, pod *corev1.Pod) {
	t.Helper()

	now := f.Await(t, pod, "is there", func(*corev1.Pod) bool { return true })
	if now.UID != pod.UID || now.DeletionTimestamp != nil || now.Status.Phase != corev1.PodRunning || len(now.Status.ContainerStatuses) != 1 ||
		now.Status.ContainerStatuses[0].ContainerID != pod.Status.ContainerStatuses[0].ContainerID {
		t.Errorf("%s has the status %+v, want it running in the same container", pod.Name, now.Status)
	}
}

// restartKubelet kills the kubelet and returns when the next one works.
func (f fixture) restartKubelet(t testing.TB, after string) {
	t.Helper()

	if err := f.Kill("kubelet"); err != nil {
		t.Fatal(err)
	}

	// Only a working kubelet can start it.
	f.Delete(t, f.Run(t, f.Pod(after, "pause", nil, nil, nil)))
}

// holds reports whether a node advertises at least the requests of the elastic pod.
func holds(o offered) bool {
	memory := resource.MustParse(elasticMemory)
	return !o.cpu.absent && o.cpu.allocatable >= 1000 && o.memory.allocatable >= memory.Value()
}

// TestElasticAcrossRestarts checks that a placed elastic pod keeps its limits across kubelet restarts with and without an agent, that
// resources reset by a kubelet are soon restored, and that a stopped agent leaves the requests of pods advertised and the next one
// continues.
func TestElasticAcrossRestarts(t *testing.T) {
	f := newFixture(t, node.Options{Restart: true})
	f.bystander(t)
	f.leaveBehind(t, elasticMemory)
	pod := f.Run(t, f.elastic("elastic"))
	before := f.Settings(t)
	tr := f.record(t)
	d := f.deploy(t, "--enforce=node-resource,pod-resource", "--collect-interval=250ms")
	f.awaitOffer(t, tr, "an offer", func(o offered) bool { return !o.account.Ended && holds(o) })
	f.awaitElasticLimits(t, pod)
	f.onlyOf(t, pod, before)

	seen := tr.len()
	f.restartKubelet(t, "after-kubelet")

	for _, o := range tr.since(seen) {
		if !holds(o) {
			t.Errorf("after the restart of a kubelet the node shows %+v, want what it showed before", o)
		}
	}

	f.awaitSame(t, pod)
	f.awaitElasticLimits(t, pod)

	seen = tr.len()
	f.showNothing(t)
	f.Eventually(t, "the node shows nothing", func() error {
		if states := tr.since(seen); !slices.ContainsFunc(states, func(o offered) bool { return o.cpu.allocatable == 0 && o.memory.allocatable == 0 }) {
			return fmt.Errorf("%d states", len(states))
		}

		return nil
	})

	begin := time.Now()
	f.awaitOffer(t, tr, "what pods hold is back", holds)
	t.Logf("back after %s", time.Since(begin))
	f.restartKubelet(t, "after-nothing")

	d.remove(t)
	left := f.awaitOffer(t, tr, "the agent has ended", func(o offered) bool { return o.account.Ended })
	if !holds(left) || left.cpu.allocatable != 1000 {
		t.Errorf("an agent that ends leaves %+v, want the offer as it was", left)
	}

	f.awaitAsBefore(t, before)
	f.restartKubelet(t, "without-an-agent")
	f.awaitSame(t, pod)
	f.deploy(t, "--enforce=node-resource", "--collect-interval=250ms")

	next := f.awaitOffer(t, tr, "the next agent", func(o offered) bool { return !o.account.Ended && o.memory.terms.Problem == "" })
	if want := min(next.memory.amount(left.memory.terms.Was), next.memory.amount(next.memory.terms.Offer)) - next.memory.material(); next.memory.allocatable < want {
		t.Errorf("the next agent offers %+v after %+v, want at least %d", next.memory, left.memory, want)
	}

	// A kubelet that rejects a pod needs time to end it.
	f.awaitSame(t, pod)
}
