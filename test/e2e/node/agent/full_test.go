// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	_ "embed"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	ensurancev1alpha1 "crane.io/crane/api/ensurance/v1alpha1"
	"crane.io/crane/test/e2e/node"
)

// full is the kubelet's default number of pods, including the agent's.
const full = 110

// everythingRules contain each kind of rule: use, pressure, interference and reserved elastic resources. Half of the pods are
// latency-sensitive, the others may be affected; no value is near its threshold.
//
//go:embed testdata/everything-rules.yaml
var everythingRules string

// BenchmarkFull measures the agent's use on a full node with one kind of action, and with all parts and kinds. One in five pods is
// elastic, and one has an exclusive CPU.
func BenchmarkFull(b *testing.B) {
	f := newFixture(b, node.Options{})
	for i := range full - 2 {
		f.quick(b, f.idle(i))
	}

	for i := range full - 2 {
		f.Await(b, f.idle(i), "Ready", isReady)
	}

	b.Run("throttling", func(b *testing.B) {
		f.apply(b, latencyRules)
		f.quick(b, f.idle(full))
		f.footprint(b, f.deploy(b, "--enforce=cpu-throttle", "--collect-interval=1s"))
	})

	b.Run("everything", func(b *testing.B) {
		f.apply(b, everythingRules)
		d := f.deploy(b, "--enforce="+allKinds, "--collect-interval=1s", "--feature-gates=NodeResourceTopology=true,CraneCPUManager=true")
		f.awaitTopology(b)
		f.awaitAlone(b, f.Run(b, f.pinned("pinned", "1")), 1)
		f.footprint(b, d)
	})
}

// allKinds lists all kinds of --enforce.
const allKinds = "cpu-throttle,memory-throttle,evict,taint,node-resource,pod-resource,cpu-manager"

// idle returns one of the pods that fill a node.
func (f fixture) idle(i int) *corev1.Pod {
	var ask corev1.ResourceList
	if i%5 == 0 {
		ask = corev1.ResourceList{ensurancev1alpha1.ResourceReclaimedCPU: resource.MustParse("1"), ensurancev1alpha1.ResourceReclaimedMemory: resource.MustParse("32Mi")}
	}

	pod := f.Pod(fmt.Sprintf("idle-%d", i), "pause", nil, ask, ask)
	pod.Labels = map[string]string{"fills": []string{"batch", "web"}[i%2]}
	return pod
}

// footprint measures an agent's use after it has settled.
func (f fixture) footprint(b *testing.B, d *deployment) {
	b.Helper()

	<-time.After(settles)
	for b.Loop() {
		const watched = time.Minute
		before := f.taken(b, d.pod)
		begin := time.Now()
		<-time.After(watched)
		after := f.taken(b, d.pod)
		took := time.Since(begin).Seconds()

		seen, err := d.metric(b.Context(), "crane_agent_observed_pods")
		if err != nil || seen != full {
			b.Errorf("the agent sees %g pods, want %d: %v", seen, full, err)
		}

		b.ReportMetric((after.cpu-before.cpu).Seconds()/took, "cores")
		b.ReportMetric(after.resident/(1<<20), "MiB-resident")

		// One tick per second, including watches, probes and two reads of its metrics.
		b.ReportMetric((after.allocations-before.allocations)/took, "allocations/tick")
		b.ReportMetric(full, "pods")
	}
}

// quick creates a pod that is deleted with its node, because waiting for each would take minutes.
func (f fixture) quick(t testing.TB, pod *corev1.Pod) {
	t.Helper()

	pods := f.Client.CoreV1().Pods(pod.Namespace)
	if _, err := pods.Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if err := pods.Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}); err != nil {
			t.Errorf("deleting pod %s: %v", pod.Name, err)
		}
	})
}

// podCost is the use of a process.
type podCost struct {
	cpu         time.Duration
	resident    float64 // bytes
	allocations float64
}

// taken reads the agent's own metrics and the kernel's counters of its container.
func (f fixture) taken(t testing.TB, pod *corev1.Pod) podCost {
	t.Helper()

	out := podCost{resident: math.NaN(), allocations: math.NaN()}
	metrics, err := f.scrape(t.Context(), pod)
	if err != nil {
		t.Fatal(err)
	}

	for line := range strings.Lines(metrics) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			continue
		}

		switch name {
		case "process_cpu_seconds_total":
			out.cpu = time.Duration(v * float64(time.Second))
		case "process_resident_memory_bytes":
			out.resident = v
		case "go_memstats_mallocs_total":
			out.allocations = v
		}
	}

	if content, err := os.ReadFile(filepath.Join(f.Path("/sys/fs/cgroup"), "cpuacct", node.Group(pod), "cpuacct.usage")); err == nil {
		if ns, err := strconv.ParseInt(strings.TrimSpace(string(content)), 10, 64); err == nil {
			out.cpu = time.Duration(ns)
		}
	}

	return out
}
