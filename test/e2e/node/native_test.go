// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"crane.io/crane/test/e2e/node"
)

// TestPodsReachOneAnother connects a client on one node with a server on another.
func TestPodsReachOneAnother(t *testing.T) {
	nodes := node.StartAll(t, node.Options{Labels: map[string]string{"side": "server"}}, node.Options{})
	list, err := nodes[0].Client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{LabelSelector: "side=server"})
	if err != nil || len(list.Items) != 1 || list.Items[0].Name != nodes[0].Name() {
		t.Errorf("nodes with the label: %v, %v, want one", list, err)
	}

	server := nodes[0].Run(t, nodes[0].Pod("server", "latency-server", []string{"-work", "100us"}, nil, nil))
	target := server.Status.PodIP + ":8080"
	client := nodes[1].Run(t, nodes[1].Pod("client", "latency-client", []string{"-target", target, "-rate", "50"}, nil, nil))

	nodes[1].Eventually(t, "replies", func() error {
		logs, err := nodes[1].Logs(t, client)
		if err != nil {
			return err
		}

		lines := strings.Split(strings.TrimSpace(logs), "\n")
		var last struct {
			Requests, Errors int
			P50us            int64
		}

		if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil {
			return fmt.Errorf("logs %q: %w", logs, err)
		}

		if last.Requests == 0 || last.Errors > 0 || last.P50us < 50 {
			return fmt.Errorf("last report is %+v: want replies that take as long as their work", last)
		}

		return nil
	})
}

// TestEviction checks that the kubelet evicts the pod with the highest use above its request under memory pressure.
func TestEviction(t *testing.T) {
	total := memoryMiB(t)
	// The node reports the machine's memory but measures the use of its own cgroup, which may use 600 MiB.
	n := node.Start(t, node.Options{EvictMemoryBelow: strconv.Itoa(total-600) + "Mi"})
	keeps := n.Run(t, n.Pod("keeps", "memory-hog", []string{"-mib", "16"}, node.Resources("", "64Mi"), nil))
	hog := n.Create(t, n.Pod("hog", "memory-hog", []string{"-mib", "700", "-pause", "10ms"}, nil, nil))

	evicted := func(p *corev1.Pod) *corev1.PodCondition {
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue {
				return &c
			}
		}

		return nil
	}

	hog = n.Await(t, hog, "is evicted", func(p *corev1.Pod) bool {
		return evicted(p) != nil && (p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded)
	})

	if c := evicted(hog); c.Reason != corev1.PodReasonTerminationByKubelet || !strings.Contains(c.Message, "low on resource: memory") {
		t.Errorf("the hog ended by %s: %q; want the kubelet, for memory", c.Reason, c.Message)
	}

	after := n.Await(t, keeps, "is there", func(*corev1.Pod) bool { return true })
	if after.Status.Phase != corev1.PodRunning {
		t.Errorf("the pod that keeps to its request is %s, want Running", after.Status.Phase)
	}
}

func memoryMiB(t *testing.T) int {
	t.Helper()

	content, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		t.Fatal(err)
	}

	var kib int
	if _, err := fmt.Sscanf(string(content), "MemTotal: %d kB", &kib); err != nil {
		t.Fatal(err)
	}

	if kib>>10 < 2048 {
		t.Skipf("this machine has %d MiB of memory, the test wants 2048", kib>>10)
	}

	return kib >> 10
}

// TestZones checks that the kubelet sees fake NUMA zones and keeps a pod in one of them.
func TestZones(t *testing.T) {
	if runtime.NumCPU() < 2 {
		t.Skip("one CPU cannot be shown as two zones")
	}

	n := node.Start(t, node.Options{
		NUMAZones: 2, CPUManagerPolicy: "static", TopologyPolicy: "single-numa-node", ReservedCPUs: "0",
	})

	online, err := os.ReadFile(n.Path("/sys/devices/system/node/online"))
	if err != nil || string(online) != "0-1\n" {
		t.Errorf("zones %q, %v; want 0-1", online, err)
	}

	cpus, err := os.ReadFile(n.Path("/sys/devices/system/node/node1/cpulist"))
	if err != nil {
		t.Fatal(err)
	}

	cgroups := n.Cgroups(t)
	whole := node.Resources("1", "32Mi")
	pod := n.Run(t, n.Pod("zoned", "pause", nil, whole, whole))

	limits, err := cgroups.ContainerLimits(t, pod)
	if err != nil || limits.CPUs == "" || (runtime.NumCPU() == 2 && limits.CPUs != strings.TrimSpace(string(cpus))) {
		t.Errorf("the pod has CPUs %q, %v, want those of zone 1, %q", limits.CPUs, err, cpus)
	}
}

// TestReserved checks that reserved resources are not allocatable.
func TestReserved(t *testing.T) {
	n := node.Start(t, node.Options{Reserved: node.Resources("500m", "1Gi")})
	object, err := n.Client.CoreV1().Nodes().Get(t.Context(), n.Name(), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}

	cpu := object.Status.Capacity.Cpu().MilliValue() - object.Status.Allocatable.Cpu().MilliValue()
	memory := object.Status.Capacity.Memory().Value() - object.Status.Allocatable.Memory().Value()
	if cpu != 500 || memory != 1<<30+100<<20 {
		t.Errorf("%dm and %d bytes are kept from pods, want 500m and 1 GiB beside the 100 MiB below which pods are evicted", cpu, memory)
	}
}

// TestNodeEndsWithKubelet checks that a node ends with its kubelet and its name can be reused.
func TestNodeEndsWithKubelet(t *testing.T) {
	n := node.Start(t, node.Options{Name: "mortal"})
	if err := n.Kill("kubelet"); err != nil {
		t.Fatal(err)
	}

	<-n.Done()
	if err := n.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if again := node.Start(t, node.Options{Name: "mortal"}); again.Name() != n.Name() {
		t.Errorf("the next node is %s, want %s", again.Name(), n.Name())
	}
}
