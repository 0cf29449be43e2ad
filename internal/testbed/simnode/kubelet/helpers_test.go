// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

var epoch = time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC)

// fixture drives one node with its own clock, like package simnode.
type fixture struct {
	t    *testing.T
	node *Node
	now  time.Time
	api  map[types.UID]*corev1.Pod
	load loads
	seen []Event
}

// loads maps container names to their use.
type loads map[string]Use

func (l loads) Use(_ *corev1.Pod, container string, _ time.Time) Use { return l[container] }

func newFixture(t *testing.T, edit ...func(*NodeSpec)) *fixture {
	t.Helper()

	spec := NodeSpec{Name: "n1", CPU: resource.MustParse("4"), Memory: resource.MustParse("8Gi")}
	for _, f := range edit {
		f(&spec)
	}

	if err := spec.Validate(); err != nil {
		t.Fatal(err)
	}

	return &fixture{
		t: t, node: NewNode(spec, DefaultTiming(), "127.0.0.1", "10.192.0."), now: epoch,
		api: map[types.UID]*corev1.Pod{}, load: loads{},
	}
}

// put binds or updates a pod and steps it.
func (w *fixture) put(pod *corev1.Pod) {
	w.api[pod.UID] = pod
	w.node.Observe(pod, w.now)
	w.settle(pod.UID)
}

// settle steps the pod and affected pods until nothing is due, and writes statuses back like the API server.
func (w *fixture) settle(uid types.UID) {
	for range 100 {
		out := w.node.Step(uid, w.now)
		if out.Pod != nil {
			w.api[uid] = out.Pod
			w.node.Observe(out.Pod, w.now)
		}

		w.seen = append(w.seen, w.node.Events()...)
		if out.Remove {
			delete(w.api, uid)
			w.node.Forget(uid)
		}

		dirty := w.node.Dirty()
		if len(dirty) == 0 {
			return
		}

		for _, p := range dirty[1:] {
			w.settle(p.UID)
		}
		uid = dirty[0].UID
	}

	w.t.Fatal("pods are still dirty after 100 steps, want that the node settles")
}

// pass advances time in small steps and steps every pod at each of them.
func (w *fixture) pass(d time.Duration) {
	for end := w.now.Add(d); w.now.Before(end); {
		w.now = w.now.Add(100 * time.Millisecond)
		for uid := range w.api {
			w.settle(uid)
		}
	}
}

func (w *fixture) measure() {
	w.node.Measure(w.load, w.now)
	for _, p := range w.node.Dirty() {
		w.settle(p.UID)
	}
}

func (w *fixture) pod(p *corev1.Pod) *corev1.Pod {
	w.t.Helper()

	got, ok := w.api[p.UID]
	if !ok {
		w.t.Fatalf("pod %s does not exist, want its object", p.Name)
	}

	return got
}

func (w *fixture) eventCount(reason string) int {
	n := 0
	for _, e := range w.seen {
		if e.Reason == reason {
			n++
		}
	}

	return n
}

// update modifies a copy of the pod's spec or metadata like a client.
func (w *fixture) update(p *corev1.Pod, edit func(*corev1.Pod)) {
	next := w.pod(p).DeepCopy()
	next.Generation++
	edit(next)
	w.put(next)
}

func newPod(name, cpu, memory string, edit ...func(*corev1.Pod)) *corev1.Pod {
	list := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID("uid-" + name), Generation: 1},
		Spec: corev1.PodSpec{
			NodeName: "n1", RestartPolicy: corev1.RestartPolicyAlways,
			Containers: []corev1.Container{{
				Name: name, Image: "example.com/app:1",
				Resources: corev1.ResourceRequirements{Requests: list, Limits: list.DeepCopy()},
			}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodPending, QOSClass: corev1.PodQOSGuaranteed},
	}

	for _, f := range edit {
		f(pod)
	}

	return pod
}

func isTrue(p *corev1.Pod, kind corev1.PodConditionType) bool {
	c := findCondition(p.Status.Conditions, kind)
	return c != nil && c.Status == corev1.ConditionTrue
}
