// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"crane.io/crane/internal/testbed/controlplane"
	"crane.io/crane/test/controlplanetest"
)

// BenchmarkFootprint starts a whole control plane, runs a playground's cluster on it (12 nodes, 60 Deployments of 3 pods,
// all Running), and reports the time until it served, the time of a stop, and the resident memory of each component,
// with and without the pages of the binary, which the three share:
//
//	go test -run '^$' -bench Footprint -benchtime 1x ./test/integration/controlplane
func BenchmarkFootprint(b *testing.B) {
	const nodes, workloads, replicas = 12, 60, 3
	components := []controlplane.Component{controlplane.APIServer, controlplane.ControllerManager, controlplane.Scheduler}
	for range b.N {
		begin := time.Now()
		c := controlplanetest.ForTest(b, controlplane.Options{Components: components})
		b.ReportMetric(time.Since(begin).Seconds(), "s-to-serve")

		client := clientFor(b, c.Config())
		for i := range nodes {
			registerNode(b, client, fmt.Sprintf("node-%d", i))
		}

		for i := range workloads {
			_, err := client.AppsV1().Deployments("default").Create(b.Context(), deployment(fmt.Sprintf("app-%d", i), replicas), metav1.CreateOptions{})
			if err != nil {
				b.Fatal(err)
			}
		}

		eventually(b, "pods on nodes", func(ctx context.Context) error {
			return podsOn(ctx, client, "default", workloads*replicas, true)
		})
		b.ReportMetric(time.Since(begin).Seconds(), "s-to-bound")
		runPods(b, client, "default")
		eventually(b, "deployments available", func(ctx context.Context) error {
			return available(ctx, client, "default", replicas)
		})

		for _, component := range components {
			for field, unit := range map[string]string{"VmRSS": "MiB", "RssAnon": "MiB-anon"} {
				b.ReportMetric(memory(b, c.PID(component), field), string(component)+"-"+unit)
			}
		}

		begin = time.Now()
		if err := c.Stop(b.Context()); err != nil {
			b.Error(err)
		}

		b.ReportMetric(time.Since(begin).Seconds(), "s-to-stop")
	}
}

func available(ctx context.Context, client kubernetes.Interface, namespace string, replicas int32) error {
	list, err := client.AppsV1().Deployments(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}

	for i := range list.Items {
		if got := list.Items[i].Status.AvailableReplicas; got != replicas {
			return fmt.Errorf("%s has %d available replicas", list.Items[i].Name, got)
		}
	}

	return nil
}

// memory returns a field of /proc/PID/status in MiB.
func memory(b *testing.B, pid int, field string) float64 {
	b.Helper()

	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		b.Skipf("memory of a process: %v", err)
	}

	for line := range strings.Lines(string(data)) {
		var kib float64
		if _, err := fmt.Sscanf(line, field+": %f kB", &kib); err == nil {
			return kib / 1024
		}
	}

	b.Fatalf("no %s in the status of process %d, want one", field, pid)
	return 0
}
