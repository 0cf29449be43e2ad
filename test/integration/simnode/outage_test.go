// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package simnode_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"crane.io/crane/internal/testbed/controlplane"
)

// A second fleet with the same nodes continues from the statuses of the first: nothing restarts, and changes made in
// between are processed.
func TestRestartOfTheSimulation(t *testing.T) {
	ns := namespaceFor(t)
	for _, name := range []string{"stays", "goes"} {
		create(t, podIn(ns, name, "general", "100m", "64Mi"))
		podUntil(t, ns, name, "Ready", ready)
	}

	if err := cluster.fleet.KillContainer(ns, "stays", "app", 1); err != nil {
		t.Fatal(err)
	}

	before := podUntil(t, ns, "stays", "restarted", func(p *corev1.Pod) bool { return p.Status.ContainerStatuses[0].RestartCount == 1 && ready(p) })
	if err := cluster.stop(); err != nil {
		t.Fatal(err)
	}

	if err := cluster.client.CoreV1().Pods(ns).Delete(t.Context(), "goes", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}

	if err := run(); err != nil {
		t.Fatal(err)
	}

	eventually(t, "the deleted pod goes", func(ctx context.Context) (bool, string) {
		_, err := cluster.client.CoreV1().Pods(ns).Get(ctx, "goes", metav1.GetOptions{})
		return apierrors.IsNotFound(err), fmt.Sprint(err)
	})
	eventuallyUsed(t, ns, 1, 20<<20)

	after := podUntil(t, ns, "stays", "there", func(*corev1.Pod) bool { return true })
	a := before.Status.ContainerStatuses[0]
	b := after.Status.ContainerStatuses[0]
	if a.ContainerID != b.ContainerID || a.RestartCount != b.RestartCount || !b.Ready || before.Status.PodIP != after.Status.PodIP {
		t.Errorf("before %+v\nafter %+v, want the same container and address", a, b)
	}
	if got := raw(t, "/api/v1/nodes/general-1/proxy/healthz"); got != "ok" {
		t.Errorf("the new endpoint: %q, want ok", got)
	}
}

// A restart of the API server delays the nodes only until it serves again.
func TestRestartOfTheAPIServer(t *testing.T) {
	ns := namespaceFor(t)
	create(t, podIn(ns, "web", "general", "100m", "64Mi"))
	podUntil(t, ns, "web", "Ready", ready)

	if err := cluster.plane.StopComponent(t.Context(), controlplane.APIServer); err != nil {
		t.Fatal(err)
	}

	if err := cluster.fleet.KillContainer(ns, "web", "app", 9); err != nil {
		t.Fatal(err)
	}

	if err := cluster.plane.StartComponent(t.Context(), controlplane.APIServer); err != nil {
		t.Fatal(err)
	}

	pod := podUntil(t, ns, "web", "restarted meanwhile", func(p *corev1.Pod) bool { return p.Status.ContainerStatuses[0].RestartCount == 1 && ready(p) })
	if last := pod.Status.ContainerStatuses[0].LastTerminationState.Terminated; last == nil || last.ExitCode != 9 {
		t.Errorf("last state %+v, want exit code 9", last)
	}

	// As after a restart that took longer than the grace period.
	setUnknown(t, "general-1")
	eventually(t, "all nodes are Ready, without taints, with fresh leases", func(ctx context.Context) (bool, string) {
		nodes, err := cluster.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err.Error()
		}

		for _, n := range nodes.Items {
			if len(n.Spec.Taints) > 0 {
				return false, fmt.Sprintf("%s has taints %v", n.Name, n.Spec.Taints)
			}

			for _, c := range n.Status.Conditions {
				if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
					return false, n.Name + " is " + string(c.Status)
				}
			}

			lease, err := cluster.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, n.Name, metav1.GetOptions{})
			if err != nil || time.Since(lease.Spec.RenewTime.Time) > 5*time.Second {
				return false, fmt.Sprintf("lease of %s: %v, %v", n.Name, err, lease.Spec.RenewTime)
			}
		}

		return true, ""
	})
}

// setUnknown sets the conditions of a node like the node lifecycle controller after an expired lease.
func setUnknown(t *testing.T, name string) {
	t.Helper()

	eventually(t, "set node "+name+" to Unknown", func(ctx context.Context) (bool, string) {
		node, err := cluster.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}

		for i := range node.Status.Conditions {
			if c := &node.Status.Conditions[i]; c.Type == corev1.NodeReady {
				c.Status = corev1.ConditionUnknown
				c.Reason = "NodeStatusUnknown"
			}
		}

		_, err = cluster.client.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{})
		return err == nil, fmt.Sprint(err)
	})
}
