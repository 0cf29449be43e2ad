// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"encoding/json"
	"errors"
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
	// victimRounds is the number of measurements of each kind; the median counts and the worst is reported.
	victimRounds = 3
	// breaches is the number of measurements per threshold.
	breaches = 5
	span     = 10 * time.Second
	// settles is the time the agent has after a breach.
	settles = 10 * time.Second
	// work is the duration of a request, quiet the largest 99th percentile on an idle machine.
	work, quiet = 6 * time.Millisecond, 20 * time.Millisecond
)

// latencyRules throttle batch pods while more than 70 % of the machine's CPU is in use.
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
` + batchCalmsDown

// reactionRules are latencyRules for the use of a single hog, independent of other load, with a short cool-down.
func reactionRules(threshold int, milli int64) string {
	return strings.NewReplacer(
		"{name: cpu_total_utilization, value: 70}", fmt.Sprintf("{name: container_cpu_total_usage, value: %dm, selector: {matchLabels: {PodName: hog-0, ContainerName: main}}}", milli),
		"avoidanceThreshold: 2", fmt.Sprintf("avoidanceThreshold: %d", threshold), "restoreThreshold: 5", "restoreThreshold: 1", "coolDownSeconds: 30", "coolDownSeconds: 1",
	).Replace(latencyRules)
}

// hogs is the number of pods with low requests and many threads, whose weight is three times that of the server.
const hogs = 6

func (f fixture) hogs(b *testing.B, n int) (all []*corev1.Pod) {
	b.Helper()

	for i := range n {
		all = append(all, f.hog(b, fmt.Sprintf("hog-%d", i), "4", node.Resources("50m", ""), nil))
	}

	return all
}

// BenchmarkReaction measures the time from switching on a hog to its first limit. The bound is threshold times interval plus a second, and
// 2 s at threshold 1; the breach starts at any point of the interval.
func BenchmarkReaction(b *testing.B) {
	f := newFixture(b, node.Options{})
	all := f.hogs(b, 1)
	d := f.deploy(b, "--enforce=cpu-throttle", "--collect-interval=1s")

	// The hog's share on this machine; half of it is exceeded only after half of an interval.
	f.turnAll(b, all, true)
	before := f.used(b, all[0])
	begin := time.Now()
	<-time.After(span / 2)
	used := f.used(b, all[0]) - before
	took := time.Since(begin)
	f.turnAll(b, all, false)

	value := (used * 500 / took).Nanoseconds()
	for _, threshold := range []int{1, 2} {
		b.Run(fmt.Sprintf("threshold-%d", threshold), func(b *testing.B) {
			f.apply(b, reactionRules(threshold, value))
			d.awaitRule(b, "latency/busy")

			for b.Loop() {
				var took []time.Duration
				for i := range breaches {
					// Each breach starts at another point of the interval.
					<-time.After(time.Until(time.Now().Truncate(time.Second).Add(time.Second * time.Duration(breaches+i) / breaches)))
					took = append(took, f.breach(b, all))
					f.turnAll(b, all, false)
					f.awaitNoLimit(b, all)
				}

				b.Logf("above %dm, threshold %d: %v", value, threshold, took)
				reportAll(b, took, "s-to-act", time.Second)
			}
		})
	}
}

// BenchmarkVictim measures a server's latency alone, beside hogs, and beside hogs with rules from 10 s after their start, and the reaction
// time of the agent.
func BenchmarkVictim(b *testing.B) {
	f := newFixture(b, node.Options{})
	all := f.hogs(b, hogs)

	server := f.Run(b, f.Pod("server", "latency-server", []string{"-work", work.String()}, node.Resources("100m", ""), nil))
	client := f.Run(b, f.Pod("client", "cgroups", []string{"stay"}, node.Resources("100m", ""), nil))
	d := f.deploy(b, "--enforce=cpu-throttle", "--collect-interval=1s")
	for b.Loop() {
		var alone, beside, with, reactions []time.Duration
		for range victimRounds {
			alone = append(alone, f.p99(b, client, server))
			f.turnAll(b, all, true)
			beside = append(beside, f.p99(b, client, server))
			f.turnAll(b, all, false)

			remove := f.put(b, latencyRules)
			d.awaitRule(b, "latency/busy")
			<-time.After(settles / 5) // Measurements from before are not part of the breach.

			if f.limited(b, all) {
				b.Log("NOT A QUIET MACHINE: the rule fires before the hogs begin")
			}

			begin := time.Now()
			reactions = append(reactions, f.breach(b, all))
			<-time.After(time.Until(begin.Add(settles)))
			with = append(with, f.p99(b, client, server))
			f.turnAll(b, all, false)
			remove()
			f.awaitNoLimit(b, all)
		}

		b.Logf("alone %v, beside hogs %v, with rules %v, to act %v", alone, beside, with, reactions)
		if slices.Max(alone) > quiet {
			b.Logf("NOT A QUIET MACHINE: alone, %s of work take %s; the figures say nothing of the agent", work, slices.Max(alone))
		}

		recovered := make([]float64, victimRounds)
		for i := range recovered {
			recovered[i] = (beside[i] - with[i]).Seconds() / (beside[i] - alone[i]).Seconds()
		}

		slices.Sort(recovered)
		b.ReportMetric(recovered[0], "recovered-worst")
		b.ReportMetric(recovered[victimRounds/2], "recovered-median")
		reportAll(b, alone, "ms-p99-alone", time.Millisecond)
		reportAll(b, beside, "ms-p99-hogs", time.Millisecond)
		reportAll(b, with, "ms-p99-rules", time.Millisecond)
		reportAll(b, reactions, "s-to-act", time.Second)
	}
}

// reportAll sorts durations and reports their median and maximum.
func reportAll(b *testing.B, all []time.Duration, name string, unit time.Duration) {
	b.Helper()

	slices.Sort(all)
	b.ReportMetric(float64(all[len(all)/2])/float64(unit), name+"-median")
	b.ReportMetric(float64(all[len(all)-1])/float64(unit), name+"-worst")
}

// turnAll switches hogs on or off.
func (f fixture) turnAll(t testing.TB, hogs []*corev1.Pod, on bool) {
	t.Helper()

	for _, hog := range hogs {
		f.turn(t, hog, on)
	}
}

// p99 measures the 99th percentile of a server's latency.
func (f fixture) p99(t testing.TB, client, server *corev1.Pod) time.Duration {
	t.Helper()

	out, err := f.Exec(t, client, "/nodekit", "latency-client", "-target", server.Status.PodIP+":8080", "-rate", "100", "-period", span.String(), "-reports", "1")
	if err != nil {
		t.Fatal(err)
	}

	var report struct {
		P99us            int64
		Requests, Errors int
	}

	if err := json.Unmarshal([]byte(out), &report); err != nil || report.Errors > 0 || report.Requests == 0 {
		t.Fatalf("the client reported %q, %v, want requests without errors", out, err)
	}

	return time.Duration(report.P99us) * time.Microsecond
}

// used returns the CPU time of a pod's container on cgroup v1.
func (f fixture) used(t testing.TB, pod *corev1.Pod) time.Duration {
	t.Helper()

	if f.Cgroup() != 1 {
		t.Skipf("files of cgroup v1 are looked at, the node has v%d", f.Cgroup())
	}

	content, err := os.ReadFile(f.file("cpuacct", "cpuacct.usage", pod))
	if err != nil {
		t.Fatal(err)
	}

	ns, err := strconv.ParseInt(strings.TrimSpace(string(content)), 10, 64)
	if err != nil {
		t.Fatal(err)
	}

	return time.Duration(ns)
}

// limited reports whether one of the pods has a quota on cgroup v1.
func (f fixture) limited(t testing.TB, pods []*corev1.Pod) bool {
	t.Helper()

	if f.Cgroup() != 1 {
		t.Skipf("files of cgroup v1 are looked at, the node has v%d", f.Cgroup())
	}

	for _, pod := range pods {
		content, err := os.ReadFile(f.file("cpu", "cpu.cfs_quota_us", pod))
		if err != nil {
			t.Fatal(err)
		}

		if strings.TrimSpace(string(content)) != "-1" {
			return true
		}
	}

	return false
}

// breach switches hogs on and returns the time until the first has a limit. Switches are files written from outside, so that no process
// starts in the pods; a hog polls its own every 50 ms.
func (f fixture) breach(t testing.TB, hogs []*corev1.Pod) time.Duration {
	t.Helper()

	const bound = 30 * time.Second
	begin := time.Now()
	f.turnAll(t, hogs, true)

	for !f.limited(t, hogs) {
		if time.Since(begin) > bound {
			t.Fatalf("no limit within %s, want the hogs throttled", bound)
		}

		<-time.After(2 * time.Millisecond)
	}

	return time.Since(begin)
}

// awaitNoLimit waits until no pod has a limit.
func (f fixture) awaitNoLimit(t testing.TB, pods []*corev1.Pod) {
	t.Helper()

	f.Eventually(t, "nobody has a limit", func() error {
		if f.limited(t, pods) {
			return errors.New("one has")
		}

		return nil
	})
}

// awaitRule waits until the agent has loaded a rule.
func (d *deployment) awaitRule(t testing.TB, rule string) {
	t.Helper()

	d.Eventually(t, "rule "+rule, func() error {
		_, err := d.metric(t.Context(), fmt.Sprintf("crane_agent_rule_firing{preview=%q,rule=%q}", "false", rule))
		return err
	})
}
