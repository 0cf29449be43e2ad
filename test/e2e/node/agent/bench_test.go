// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"crane.io/crane/test/e2e/node"
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
