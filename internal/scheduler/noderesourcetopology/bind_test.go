// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package noderesourcetopology

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	topology "crane.io/crane/api/topology/v1alpha1"
)

const zonesOfTwo = `[{"name":"node0","type":"Node","resources":{"capacity":{"cpu":"2"}}}]`

// TestBind checks the writes of a pod's binding cycle: one Binding with the annotation for pods with zones, none for others, and a patch
// only to remove an annotation.
func TestBind(t *testing.T) {
	stale := annotated(topology.AnnotationPodTopologyResult, "[]")
	for name, c := range map[string]struct {
		pod     *corev1.Pod
		node    *topology.NodeResourceTopology
		binding string // the annotation of the Binding
		skips   bool   // the default binder binds
		patched bool
	}{
		"zones":                           {pod: newPod("p", "2"), node: nrt("n", 4), binding: zonesOfTwo},
		"in place of a stale annotation":  {pod: newPod("p", "2", stale), node: nrt("n", 4), binding: zonesOfTwo},
		"no zones":                        {pod: newPod("p", "2"), skips: true},
		"no zones and a stale annotation": {pod: newPod("p", "2", stale), skips: true, patched: true},
		"shared CPUs":                     {pod: newPod("p", "500m"), node: nrt("n", 4), skips: true},
		"shared CPUs and a stale one":     {pod: newPod("p", "500m", stale), node: nrt("n", 4), skips: true, patched: true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newPlugin(t)
			if c.node != nil {
				f.core.topologyChanged(klog.Background(), c.node)
			}

			clients := fake.NewClientset(c.pod)
			f.api = apiOf{clients}
			state, s := f.filter(t, c.pod, "n")
			if s.IsSuccess() {
				s = f.Reserve(t.Context(), state, c.pod, "n")
			}

			if !s.IsSuccess() && s.Code() != fwk.Skip {
				t.Fatalf("Filter and Reserve = %v, want success or Skip", s)
			}

			r, s := f.PreBindPreFlight(t.Context(), state, c.pod, "n")
			if c.patched != s.IsSuccess() {
				t.Fatalf("PreBindPreFlight = %v, want success %t", s, c.patched)
			}

			if c.patched {
				if r == nil || !r.AllowParallel {
					t.Errorf("PreBindPreFlight = %+v, want AllowParallel", r)
				}
				if s := f.PreBind(t.Context(), state, c.pod, "n"); !s.IsSuccess() {
					t.Fatalf("PreBind = %v, want success", s)
				}
			}

			if s := f.Bind(t.Context(), state, c.pod, "n"); c.skips != (s.Code() == fwk.Skip) || !c.skips && !s.IsSuccess() {
				t.Fatalf("Bind = %v, want skipped %t, otherwise success", s, c.skips)
			}

			f.PostBind(t.Context(), state, c.pod, "n")
			wrote := writes(clients)
			if wrote.patches != 0 != c.patched || len(wrote.bindings) != 0 == c.skips {
				t.Errorf("the cycle wrote %+v, want a patch %t and a Binding %t", wrote, c.patched, !c.skips)
			}

			for _, b := range wrote.bindings {
				if b.Annotations[topology.AnnotationPodTopologyResult] != c.binding || b.Target.Name != "n" || b.UID != c.pod.UID {
					t.Errorf("Bind wrote %+v, want pod %s on node n with annotation %s", b, c.pod.UID, c.binding)
				}
			}

			if got, err := clients.CoreV1().Pods("default").Get(t.Context(), "p", metav1.GetOptions{}); err != nil || c.patched && result(got) != "" {
				t.Errorf("the pod's annotation is %q (%v), want it removed", result(got), err)
			}
		})
	}
}

// TestFailedBindingLeavesNothing checks that a pod whose binding fails has no annotation and holds no zones.
func TestFailedBindingLeavesNothing(t *testing.T) {
	f := newPlugin(t, nrt("n", 4))
	pod := newPod("p", "2")
	clients := fake.NewClientset(pod)
	clients.PrependReactor("create", "pods/binding", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("refused")
	})

	f.api = apiOf{clients}
	state, _ := f.filter(t, pod, "n")
	if s := f.Reserve(t.Context(), state, pod, "n"); !s.IsSuccess() {
		t.Fatalf("Reserve = %v, want success", s)
	}

	if s := f.Bind(t.Context(), state, pod, "n"); s.Code() != fwk.Error {
		t.Fatalf("Bind with a refusing API server = %v, want Error", s)
	}

	f.Unreserve(t.Context(), state, pod, "n")
	if wrote := writes(clients); wrote.patches != 0 || len(f.core.store.assumedNodes) != 0 {
		t.Errorf("after Unreserve: wrote %+v and assumes %v, want no patch and no assumption", wrote, f.core.store.assumedNodes)
	}
}

// TestOtherBinder checks that a pod with zones which an extender has bound gets its annotation afterward.
func TestOtherBinder(t *testing.T) {
	f := newPlugin(t, nrt("n", 4))
	pod := newPod("p", "2")
	clients := fake.NewClientset(pod)

	f.api = apiOf{clients}
	state, _ := f.filter(t, pod, "n")
	if s := f.Reserve(t.Context(), state, pod, "n"); !s.IsSuccess() {
		t.Fatalf("Reserve = %v, want success", s)
	}

	f.PostBind(t.Context(), state, pod, "n")
	if got, err := clients.CoreV1().Pods("default").Get(t.Context(), "p", metav1.GetOptions{}); err != nil || result(got) != zonesOfTwo {
		t.Errorf("PostBind wrote annotation %q (%v), want %s", result(got), err, zonesOfTwo)
	}

	// A pod that is gone is logged.
	f.api = apiOf{fake.NewClientset()}
	f.PostBind(t.Context(), state, pod, "n")
}

// written are the writes of a client.
type written struct {
	patches  int
	bindings []*corev1.Binding
}

func writes(c *fake.Clientset) written {
	var w written
	for _, a := range c.Actions() {
		if a.GetVerb() == "patch" {
			w.patches++
		}

		if create, ok := a.(clienttesting.CreateAction); ok && a.GetSubresource() == "binding" {
			b, _ := create.GetObject().(*corev1.Binding)
			w.bindings = append(w.bindings, b)
		}
	}

	return w
}
