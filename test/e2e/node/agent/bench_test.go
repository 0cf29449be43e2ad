// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"crane.io/crane/test/e2e/node"
	"crane.io/crane/test/integration/harness"
)

const (
	// measures of a phase, of span each; their median counts.
	measures = 3
	span     = 10 * time.Second
	// settles is how long the agent has from the breach on.
	settles = 10 * time.Second
	// work is that of a request, quiet the most that one in a hundred takes where nothing else runs.
	work, quiet = 6 * time.Millisecond, 20 * time.Millisecond
)

// latencyRules throttle batch pods while the node is busy for more than 70 %. Its cpu is the machine's, whatever else runs there.
const latencyRules = `
apiVersion: ensurance.crane.io/v1alpha1
kind: NodeQOS
metadata: {name: latency}
spec:
  rules:
  - name: busy
    metricRule: {name: cpu_total_utilization, value: 70}
    avoidanceThreshold: 2
    restoreThreshold: 5
    actionName: calm-down
---
apiVersion: ensurance.crane.io/v1alpha1
kind: AvoidanceAction
metadata: {name: calm-down}
spec: {coolDownSeconds: 30, throttle: {cpuThrottle: {minCPURatio: 1, stepCPURatio: 80}}}
---
apiVersion: ensurance.crane.io/v1alpha1
kind: PodQOS
metadata: {name: batch}
spec:
  allowedActions: [calm-down]
  labelSelector: {matchLabels: {workload: batch}}
`

// hogs are pods that ask for little and take what there is, with many threads. Together they weigh three times what the server does, so
// that it no longer gets the cpu that it needs.
const hogs = 6

// BenchmarkVictim measures a server's latency alone, beside hogs, and beside hogs with an agent, and how long the agent takes to act.
func BenchmarkVictim(b *testing.B) {
	s := start(b, node.Options{})
	var all []*corev1.Pod
	for i := range hogs {
		all = append(all, s.hog(b, fmt.Sprintf("hog-%d", i), "4", node.Resources("50m", ""), nil))
	}
	server := s.Run(b, s.Pod("server", "latency-server", []string{"-work", work.String()}, node.Resources("100m", ""), nil))
	client := s.Run(b, s.Pod("client", "cgroups", []string{"stay"}, node.Resources("100m", ""), nil))
	alone := s.p99(b, client, server)
	if alone > quiet {
		b.Logf("NOT A QUIET MACHINE: alone, %s of work take %s; the figures say nothing of the agent", work, alone)
	}
	s.turnAll(b, all, true)
	beside := s.p99(b, client, server)
	s.turnAll(b, all, false)
	s.apply(b, latencyRules)
	s.deploy(b, "--enforce=cpu-throttle", "--collect-interval=1s")
	<-time.After(settles)
	for b.Loop() {
		breach := s.firstChange(b, "cpuacct", "cpuacct.usage", all, burns)
		acted := s.firstChange(b, "cpu", "cpu.cfs_quota_us", all, func(was, now string) bool { return was != now })
		s.turnAll(b, all, true)
		begin := <-breach
		reaction := (<-acted).Sub(begin)
		<-time.After(time.Until(begin.Add(settles)))
		with := s.p99(b, client, server)
		b.ReportMetric(reaction.Seconds(), "s-to-act")
		b.ReportMetric(alone.Seconds()*1e3, "ms-p99-alone")
		b.ReportMetric(beside.Seconds()*1e3, "ms-p99-hogs")
		b.ReportMetric(with.Seconds()*1e3, "ms-p99-agent")
		b.ReportMetric((beside-with).Seconds()/(beside-alone).Seconds(), "recovered")
		if limits, err := s.Cgroups(b).ContainerLimits(b, all[0]); err == nil {
			b.Logf("a hog has %.3g cores", limits.Cores)
		}
	}
}

// turnAll turns the switches of hogs.
func (s site) turnAll(t testing.TB, hogs []*corev1.Pod, on bool) {
	t.Helper()
	for _, hog := range hogs {
		s.turn(t, hog, on)
	}
}

// p99 is the median of some measures of a server's 99th percentile.
func (s site) p99(t testing.TB, client, server *corev1.Pod) time.Duration {
	t.Helper()
	var all []time.Duration
	for range measures {
		out, err := s.Exec(t, client, "/nodekit", "latency-client", "-target", server.Status.PodIP+":8080", "-rate", "100", "-period", span.String(), "-reports", "1")
		if err != nil {
			t.Fatal(err)
		}
		var report struct {
			P99us            int64
			Requests, Errors int
		}
		if err := json.Unmarshal([]byte(out), &report); err != nil || report.Errors > 0 || report.Requests == 0 {
			t.Fatalf("%q: %v", out, err)
		}
		all = append(all, time.Duration(report.P99us)*time.Microsecond)
	}
	t.Logf("p99 %v", all)
	slices.Sort(all)
	return all[len(all)/2]
}

// burns tells whether a hog has used more than it does to look at its switch: 30 ms of cpu, which its threads take in 15.
func burns(was, now string) bool {
	before, errB := strconv.ParseInt(strings.TrimSpace(was), 10, 64)
	after, errA := strconv.ParseInt(strings.TrimSpace(now), 10, 64)
	return errB == nil && errA == nil && time.Duration(after-before) > 30*time.Millisecond
}

// firstChange tells when a file of one of the pods has changed first.
func (s site) firstChange(t testing.TB, controller, name string, pods []*corev1.Pod, changed func(was, now string) bool) <-chan time.Time {
	t.Helper()
	if s.Cgroup() != 1 {
		t.Skipf("files of cgroup v1 are looked at, the node has v%d", s.Cgroup())
	}
	before := map[string]string{}
	for _, pod := range pods {
		file := s.file(controller, name, pod)
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		before[file] = string(content)
	}
	anyChanged := func() bool {
		for file, was := range before {
			if now, err := os.ReadFile(file); err == nil && changed(was, string(now)) {
				return true
			}
		}
		return false
	}
	out := make(chan time.Time, 1)
	go func() {
		for t.Context().Err() == nil && !anyChanged() {
			<-time.After(5 * time.Millisecond)
		}
		out <- time.Now()
	}()
	return out
}

// full is the pods of a node as the kubelet's default allows, the agent's among them.
const full = 110

// BenchmarkFull measures what the agent takes of a node that is full of pods.
func BenchmarkFull(b *testing.B) {
	s := start(b, node.Options{})
	for i := range full - 1 {
		s.quick(b, s.Pod(fmt.Sprintf("idle-%d", i), "pause", nil, nil, nil))
	}
	for i := range full - 1 {
		s.Await(b, s.Pod(fmt.Sprintf("idle-%d", i), "pause", nil, nil, nil), "Ready", isReady)
	}
	s.apply(b, latencyRules)
	d := s.deploy(b, "--enforce=cpu-throttle", "--collect-interval=1s")
	<-time.After(settles)
	for b.Loop() {
		const watched = time.Minute
		before, begin := s.taken(b, d.pod), time.Now()
		<-time.After(watched)
		after, took := s.taken(b, d.pod), time.Since(begin).Seconds()
		b.ReportMetric((after.cpu-before.cpu).Seconds()/took, "cores")
		b.ReportMetric(after.resident/(1<<20), "MiB-resident")
		// One tick a second; watches, probes and the two looks at its metrics are in it.
		b.ReportMetric((after.allocations-before.allocations)/took, "allocations/tick")
		b.ReportMetric(full, "pods")
	}
}

// quick makes a pod that goes with its node: to wait for each of many takes minutes.
func (s site) quick(t testing.TB, pod *corev1.Pod) {
	t.Helper()
	pods := s.Client.CoreV1().Pods(pod.Namespace)
	if _, err := pods.Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if err := pods.Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}); err != nil {
			t.Errorf("delete pod %s: %v", pod.Name, err)
		}
	})
}

// taken is what a process has used.
type taken struct {
	cpu         time.Duration
	resident    float64 // bytes
	allocations float64
}

// taken reads what the agent says of itself, and the kernel of its container.
func (s site) taken(t testing.TB, pod *corev1.Pod) taken {
	t.Helper()
	out := taken{resident: math.NaN(), allocations: math.NaN()}
	metrics, err := harness.Get(t.Context(), "http://"+pod.Status.PodIP+":8081/metrics")
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
	if content, err := os.ReadFile(filepath.Join(s.Path("/sys/fs/cgroup"), "cpuacct", node.Group(pod), "cpuacct.usage")); err == nil {
		if ns, err := strconv.ParseInt(strings.TrimSpace(string(content)), 10, 64); err == nil {
			out.cpu = time.Duration(ns)
		}
	}
	return out
}
