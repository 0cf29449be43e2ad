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
func (f *fixture) put(pod *corev1.Pod) {
	f.api[pod.UID] = pod
	f.node.Observe(pod, f.now)
	f.settle(pod.UID)
}

// settle steps the pod and affected pods until nothing is due, and writes statuses back like the API server.
func (f *fixture) settle(uid types.UID) {
	for range 100 {
		out := f.node.Step(uid, f.now)
		if out.Pod != nil {
			f.api[uid] = out.Pod
			f.node.Observe(out.Pod, f.now)
		}

		f.seen = append(f.seen, f.node.Events()...)
		if out.Remove {
			delete(f.api, uid)
			f.node.Forget(uid)
		}

		dirty := f.node.Dirty()
		if len(dirty) == 0 {
			return
		}

		for _, p := range dirty[1:] {
			f.settle(p.UID)
		}
		uid = dirty[0].UID
	}

	f.t.Fatal("pods are still dirty after 100 steps, want that the node settles")
}

// pass advances time in small steps and steps every pod at each of them.
func (f *fixture) pass(d time.Duration) {
	for end := f.now.Add(d); f.now.Before(end); {
		f.now = f.now.Add(100 * time.Millisecond)
		for uid := range f.api {
			f.settle(uid)
		}
	}
}

func (f *fixture) measure() {
	f.node.Measure(f.load, f.now)
	for _, p := range f.node.Dirty() {
		f.settle(p.UID)
	}
}

func (f *fixture) pod(p *corev1.Pod) *corev1.Pod {
	f.t.Helper()

	got, ok := f.api[p.UID]
	if !ok {
		f.t.Fatalf("pod %s does not exist, want its object", p.Name)
	}

	return got
}

func (f *fixture) eventCount(reason string) int {
	n := 0
	for _, e := range f.seen {
		if e.Reason == reason {
			n++
		}
	}

	return n
}

// update modifies a copy of the pod's spec or metadata like a client.
func (f *fixture) update(p *corev1.Pod, edit func(*corev1.Pod)) {
	next := f.pod(p).DeepCopy()
	next.Generation++
	edit(next)
	f.put(next)
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
