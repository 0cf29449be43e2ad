// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package simnode_test measures the simulated nodes: how long a large cluster takes to be up, and what a small one costs
// while nothing happens. Run it with: go test -bench . -benchtime 1x ./test/bench/simnode
package simnode_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"crane.io/crane/internal/testbed/controlplane"
	"crane.io/crane/internal/testbed/simnode"
	"crane.io/crane/test/controlplanetest"
)

// steady is a load that never changes.
type steady struct{}

// Use implements simnode.Load.
func (steady) Use(*corev1.Pod, string, time.Time) simnode.Use {
	return simnode.Use{CPU: 0.05, Memory: 30 << 20, Known: true}
}

func specs(n int) []simnode.NodeSpec {
	list := make([]simnode.NodeSpec, n)
	for i := range list {
		list[i] = simnode.NodeSpec{Name: fmt.Sprintf("node-%03d", i), CPU: resource.MustParse("16"), Memory: resource.MustParse("64Gi")}
	}

	return list
}

// bind makes pods that are bound to the nodes already, so that no scheduler is measured.
func bind(b *testing.B, client kubernetes.Interface, nodes []simnode.NodeSpec, pods int) {
	b.Helper()

	work := make(chan int)
	var makers sync.WaitGroup
	for range 8 {
		makers.Go(func() {
			for i := range work {
				pod := &corev1.Pod{
					ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("pod-%05d", i)},
					Spec: corev1.PodSpec{
						NodeName: nodes[i%len(nodes)].Name,
						Containers: []corev1.Container{{Name: "app", Image: "example.com/app:1", Resources: corev1.ResourceRequirements{
							Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("64Mi")},
						}}},
					},
				}

				if _, err := client.CoreV1().Pods("default").Create(b.Context(), pod, metav1.CreateOptions{}); err != nil {
					b.Error(err)
				}
			}
		})
	}

	for i := range pods {
		work <- i
	}

	close(work)
	makers.Wait()

	if b.Failed() {
		b.FailNow()
	}
}

// cluster starts an API server alone, with nodes' pods bound, and returns the fleet that is to run them.
func cluster(b *testing.B, nodes, pods int) (*controlplane.ControlPlane, *simnode.Fleet) {
	b.Helper()

	plane := controlplanetest.ForTest(b, controlplane.Options{})
	config := plane.Config()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		b.Fatal(err)
	}

	list := specs(nodes)
	bind(b, client, list, pods)

	fleet, err := simnode.New(simnode.Config{Client: config, Nodes: list, Load: steady{}})
	if err != nil {
		b.Fatal(err)
	}

	return plane, fleet
}

// run runs the fleet until the benchmark ends.
func run(b *testing.B, fleet *simnode.Fleet) (stop func()) {
	b.Helper()

	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- fleet.Run(ctx) }()

	return func() {
		cancel()
		if err := <-done; err != nil {
			b.Error(err)
		}
	}
}

// untilReady waits until all pods report Ready to the API server.
func untilReady(b *testing.B, plane *controlplane.ControlPlane, pods int) {
	b.Helper()

	client, err := kubernetes.NewForConfig(plane.Config())
	if err != nil {
		b.Fatal(err)
	}

	watch, err := client.CoreV1().Pods("default").Watch(b.Context(), metav1.ListOptions{})
	if err != nil {
		b.Fatal(err)
	}
	defer watch.Stop()

	ready := map[string]bool{}
	for event := range watch.ResultChan() {
		pod, ok := event.Object.(*corev1.Pod)
		if !ok {
			b.Fatalf("the watch returned %+v, want a pod", event.Object)
		}

		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
				ready[pod.Name] = true
			}
		}

		if len(ready) == pods {
			return
		}
	}

	b.Fatal("the watch ended early, want it open until all pods are ready")
}

// BenchmarkStartUp is the time from nothing running until 3,000 pods on 100 nodes are Ready in the API.
func BenchmarkStartUp(b *testing.B) {
	const nodes, pods = 100, 3000
	for range b.N {
		b.StopTimer()
		plane, fleet := cluster(b, nodes, pods)
		before := self()
		b.StartTimer()
		stop := run(b, fleet)
		untilReady(b, plane, pods)
		b.StopTimer()

		b.ReportMetric((self() - before).Seconds(), "cpu-s")
		b.ReportMetric(float64(pods)/b.Elapsed().Seconds(), "pods/s")
		runtime.GC()
		var mem runtime.MemStats
		runtime.ReadMemStats(&mem)
		b.ReportMetric(float64(mem.HeapAlloc)/(1<<20), "heap-MiB")
		stop()
	}
}

// BenchmarkIdle is the share of a core that 12 nodes with 200 pods take while nothing happens, in this process and in the
// API server, and the heap.
func BenchmarkIdle(b *testing.B) {
	const nodes, pods, window = 12, 200, 30 * time.Second
	for range b.N {
		b.StopTimer()
		plane, fleet := cluster(b, nodes, pods)
		stop := run(b, fleet)
		untilReady(b, plane, pods)
		pause(b, 5*time.Second)
		own := self()
		server := child(b, plane.PID(controlplane.APIServer))
		b.StartTimer()

		pause(b, window)
		b.StopTimer()
		b.ReportMetric((self()-own).Seconds()/window.Seconds(), "cores")
		b.ReportMetric((child(b, plane.PID(controlplane.APIServer))-server).Seconds()/window.Seconds(), "apiserver-cores")
		runtime.GC()
		var mem runtime.MemStats
		runtime.ReadMemStats(&mem)
		b.ReportMetric(float64(mem.HeapAlloc)/(1<<20), "heap-MiB")
		stop()
	}
}

// pause lets the measured window go by.
func pause(b *testing.B, d time.Duration) {
	b.Helper()

	select {
	case <-b.Context().Done():
		b.Fatalf("waiting for pods: %v, want them ready before the end of the test", b.Context().Err())
	case <-time.After(d):
	}
}

// self is the CPU time of this process.
func self() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}

	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// child is the CPU time of another process, from /proc; ticks are 10 ms.
func child(b *testing.B, pid int) time.Duration {
	b.Helper()

	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Fatal(err)
	}

	_, rest, _ := strings.Cut(string(data), ") ")
	fields := strings.Fields(rest)
	total := 0
	for _, f := range fields[11:13] {
		n, err := strconv.Atoi(f)
		if err != nil {
			b.Fatal(err)
		}

		total += n
	}

	return time.Duration(total) * 10 * time.Millisecond
}
