// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"crane.io/crane/internal/testbed/realcluster"
	"crane.io/crane/test/e2e/node"
)

// TestServices: pods reach a Service by its name, through cluster DNS and kube-proxy, on two nodes.
func TestServices(t *testing.T) {
	nodes := node.StartAll(t, node.Options{}, node.Options{})
	n := nodes[0]

	if err := realcluster.CreateWorkloads(t.Context(), node.Open(t)); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { deleteNamespace(t, n, realcluster.SampleNamespace) })
	n.Eventually(t, "visitors have answers of web.shop", func() error {
		pods, err := n.Client.CoreV1().Pods(realcluster.SampleNamespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app=visitors"})
		if err != nil || len(pods.Items) == 0 {
			return fmt.Errorf("%d pods: %w", len(pods.Items), err)
		}

		logs, err := n.Logs(t, &pods.Items[0])
		if err != nil {
			return err
		}

		lines := bytes.Split(bytes.TrimSpace([]byte(logs)), []byte("\n"))
		var report struct{ Requests, Errors int }
		if err := json.Unmarshal(lines[len(lines)-1], &report); err != nil {
			return err
		}

		if report.Requests == 0 || report.Errors > 0 {
			return fmt.Errorf("%s", lines[len(lines)-1])
		}

		return nil
	})
}

func deleteNamespace(t *testing.T, n *node.Node, name string) {
	t.Helper()

	if err := n.Client.CoreV1().Namespaces().Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{}); err != nil {
		t.Errorf("deleting namespace %s: %v", name, err)
	}
}
