// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package simnode

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	ktesting "k8s.io/client-go/testing"

	"crane.io/crane/internal/testbed/simnode/kubelet"
)

func node(name string) NodeSpec {
	return NodeSpec{Name: name, CPU: resource.MustParse("4"), Memory: resource.MustParse("8Gi"), Labels: map[string]string{"pool": "p"}}
}

// running runs a fleet against a fake API until the test ends. The tests use virtual time (synctest).
func running(t *testing.T) (*Fleet, *fake.Clientset) {
	t.Helper()

	client := fake.NewClientset()
	config, err := Config{Client: &rest.Config{}, Nodes: []NodeSpec{node("n1"), node("n2")}, Load: kubelet.Idle{}}.complete()
	if err != nil {
		t.Fatal(err)
	}

	f := newFleet(config, client)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})

	<-f.Ready()
	return f, client
}

func bound(name, node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: "uid-1", Generation: 1},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "app"}}},
	}
}

func get(t *testing.T, client *fake.Clientset, name string) *corev1.Pod {
	t.Helper()

	pod, err := client.CoreV1().Pods("default").Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}

	return pod
}

func TestFleetRunsAndRemovesPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, client := running(t)
		pods := client.CoreV1().Pods("default")
		if _, err := pods.Create(t.Context(), bound("web", "n1"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}

		if _, err := pods.Create(t.Context(), bound("elsewhere", "real-node"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}

		time.Sleep(3 * time.Second)
		if got := get(t, client, "web"); got.Status.Phase != corev1.PodRunning || !got.Status.ContainerStatuses[0].Ready {
			t.Fatalf("status of web after 3 s = %+v, want Running and ready", got.Status)
		}

		if got := get(t, client, "elsewhere").Status; got.Phase != "" {
			t.Errorf("status of a pod of another node = %+v, want none", got)
		}

		time.Sleep(DefaultSample)
		if s := f.Snapshot(); len(s) != 1 || s[0].Node != "n1" || !s[0].Use.Known || !s[0].Reachable {
			t.Errorf("Snapshot() = %+v, want one measured container on n1", s)
		}

		web := get(t, client, "web")
		web.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		web.DeletionGracePeriodSeconds = new(int64(30))
		if _, err := pods.Update(t.Context(), web, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}

		time.Sleep(3 * time.Second)
		if _, err := pods.Get(t.Context(), "web", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("Get of the deleted pod web = %v, want that it is not found", err)
		}
		if s := f.Snapshot(); len(s) != 0 {
			t.Errorf("Snapshot() after the deletion = %+v, want none", s)
		}
	})
}

func TestFleetKeepsLeasesAndFailsNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, client := running(t)
		age := func(name string) time.Duration {
			lease, err := client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}

			return time.Since(lease.Spec.RenewTime.Time)
		}

		time.Sleep(time.Minute)
		if err := f.FailNode("n2"); err != nil {
			t.Fatal(err)
		}

		if _, err := client.CoreV1().Pods("default").Create(t.Context(), bound("web", "n2"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}

		time.Sleep(time.Minute)
		if a, b := age("n1"), age("n2"); a > DefaultHeartbeat || b < time.Minute-DefaultHeartbeat {
			t.Errorf("ages of the leases: %v, of the failed node %v; want at most %v, and a minute", a, b, DefaultHeartbeat)
		}
		if got := get(t, client, "web").Status; got.Phase != "" {
			t.Errorf("status of a pod on a failed node = %+v, want none", got)
		}
		if nodes := f.Nodes(); nodes[1].Reachable || !nodes[0].Reachable {
			t.Errorf("Nodes() = %+v, want only the first reachable", nodes)
		}

		if err := f.RecoverNode("n2"); err != nil {
			t.Fatal(err)
		}

		time.Sleep(3 * time.Second)
		if got := get(t, client, "web").Status; got.Phase != corev1.PodRunning || age("n2") > DefaultHeartbeat {
			t.Errorf("after RecoverNode: phase %s, lease of %v; want Running and at most %v", got.Phase, age("n2"), DefaultHeartbeat)
		}
		if f.FailNode("none") == nil || f.RecoverNode("none") == nil {
			t.Error("FailNode and RecoverNode of an unknown node: no error, want one from each")
		}
	})
}

// A node whose condition was set to Unknown after late heartbeats reports immediately; a failed node does not.
func TestFleetReportsAfterUnknownStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, client := running(t)
		setUnknown := func(name string) {
			n, err := client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}

			for i := range n.Status.Conditions {
				n.Status.Conditions[i].Status = corev1.ConditionUnknown
			}

			if _, err := client.CoreV1().Nodes().UpdateStatus(t.Context(), n, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
		}

		status := func(name string) corev1.ConditionStatus {
			n, err := client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}

			return n.Status.Conditions[len(n.Status.Conditions)-1].Status
		}

		if err := f.FailNode("n2"); err != nil {
			t.Fatal(err)
		}

		setUnknown("n1")
		setUnknown("n2")
		time.Sleep(time.Second)

		if a, b := status("n1"), status("n2"); a != corev1.ConditionTrue || b != corev1.ConditionUnknown {
			t.Errorf("condition Ready = %s, of the failed node %s; want True and Unknown", a, b)
		}
	})
}

// After a restart of the API server writes are retried.
func TestFleetRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client := running(t)
		var down atomic.Bool
		client.PrependReactor("patch", "*", func(ktesting.Action) (bool, runtime.Object, error) {
			return down.Load(), nil, errors.New("connection refused")
		})
		down.Store(true)

		if _, err := client.CoreV1().Pods("default").Create(t.Context(), bound("web", "n1"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}

		time.Sleep(time.Minute)
		if got := get(t, client, "web").Status; got.Phase != "" {
			t.Fatalf("status while the API server refuses writes = %+v, want none", got)
		}

		down.Store(false)
		time.Sleep(15 * time.Second)

		if got := get(t, client, "web").Status; got.Phase != corev1.PodRunning {
			t.Errorf("phase after the API server has recovered = %q, want Running", got.Phase)
		}
	})
}

// After a gap a watch reports a pod that was deleted and recreated as one update.
func TestFleetDistinguishesPodsOfTheSameName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, client := running(t)
		pods := client.CoreV1().Pods("default")
		if _, err := pods.Create(t.Context(), bound("web", "n1"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}

		time.Sleep(3 * time.Second)
		other := bound("web", "n2")
		other.UID = "uid-2"
		if _, err := pods.Update(t.Context(), other, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}

		time.Sleep(3 * time.Second)
		if s := f.Snapshot(); len(s) != 1 || s[0].Pod.UID != "uid-2" || s[0].Node != "n2" {
			t.Errorf("Snapshot() = %+v, want the second pod on n2 only", s)
		}
	})
}

func TestNodeObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client := running(t)
		n, err := client.CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}

		if n.Labels[corev1.LabelHostname] != "n1" || n.Labels["pool"] != "p" || n.Labels[corev1.LabelOSStable] != "linux" {
			t.Errorf("labels of the Node = %v, want those of a kubelet and pool=p", n.Labels)
		}
		if got := n.Status.Capacity.Memory().Value() - n.Status.Allocatable.Memory().Value(); got != 100<<20 {
			t.Errorf("reserved memory of the Node = %d bytes, want 100 MiB", got)
		}

		n.Labels["mine"] = "kept"
		n.Spec.Unschedulable = true
		if _, err := client.CoreV1().Nodes().Update(t.Context(), n, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}

		time.Sleep(2 * statusReport)
		if n, err = client.CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{}); err != nil {
			t.Fatal(err)
		}

		if n.Labels["mine"] != "kept" || !n.Spec.Unschedulable {
			t.Errorf("Node after reports: labels %v, unschedulable %t; want mine=kept and true as others set", n.Labels, n.Spec.Unschedulable)
		}

		ready := n.Status.Conditions[len(n.Status.Conditions)-1]
		if ready.Type != corev1.NodeReady || ready.Status != corev1.ConditionTrue || time.Since(ready.LastHeartbeatTime.Time) > statusReport+DefaultHeartbeat {
			t.Errorf("last condition = %+v, want Ready, True and a recent heartbeat", ready)
		}
	})
}

func TestConfigValidation(t *testing.T) {
	good := Config{Client: &rest.Config{}, Nodes: []NodeSpec{node("n1")}, Load: kubelet.Idle{}}
	if _, err := New(good); err != nil {
		t.Fatal(err)
	}

	for want, edit := range map[string]func(*Config){
		"no client":         func(c *Config) { c.Client = nil },
		"no load":           func(c *Config) { c.Load = nil },
		"0 nodes":           func(c *Config) { c.Nodes = nil },
		"duplicate node n1": func(c *Config) { c.Nodes = []NodeSpec{node("n1"), node("n1")} },
		"name":              func(c *Config) { c.Nodes = []NodeSpec{node("N_1")} },
		"must be positive":  func(c *Config) { c.Sample = -1 },
		"timing.stop":       func(c *Config) { c.Timing = DefaultTiming(); c.Timing.Stop = -1 },
		"serving: Cert, CA": func(c *Config) { c.Serving = &Serving{} },
	} {
		c := good
		edit(&c)

		if _, err := New(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New of an invalid configuration = %v, want an error that contains %q", err, want)
		}
	}
}
