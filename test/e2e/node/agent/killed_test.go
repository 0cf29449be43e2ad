// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	ensurancev1alpha1 "crane.io/crane/api/ensurance/v1alpha1"
	"crane.io/crane/internal/testbed/controlplane"
	"crane.io/crane/test/e2e/node"
)

// TestKilledAtEachWrite checks that the next start undoes everything left by a process killed with SIGKILL before or after any write to a
// real kernel.
func TestKilledAtEachWrite(t *testing.T) {
	f := newFixture(t, node.Options{})
	pod := f.Run(t, f.Pod("mortal", "pause", nil, node.Resources("50m", "16Mi"), node.Resources("400m", "64Mi")))
	if f.Cgroup() == 1 {
		// With a burst the kernel requires an order of writes.
		if err := os.WriteFile(f.file("cpu", "cpu.cfs_burst_us", pod), []byte("20000"), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	before := f.Settings(t)
	out, err := exec.CommandContext(t.Context(), node.Binary(t, "static/"+mortal), f.Path("/"), t.TempDir(), node.Group(pod)).CombinedOutput()
	if err != nil {
		t.Fatalf("running %s: %v\n%s", mortal, err, out)
	}

	if c := node.ChangedSettings(before, f.Settings(t)); len(c) > 0 {
		t.Errorf("at the end these settings differ: %s, want none", strings.Join(c, "; "))
	}

	// The pod's own quota is not changed.
	writes := map[string]int{"cpu.cfs_burst_us": 2, "cpu.cfs_quota_us": 4, "cpu.shares": 2}
	if f.Cgroup() == 2 {
		writes = map[string]int{"cpu.max": 4, "cpu.weight": 2, "memory.high": 5}
	}

	diedAt(t, string(out), writes)
}

// TestKilledAtEachWriteOfMemory checks the same on cgroup v2 with a kubelet that sets memory.high, including memory limits and reclaim.
func TestKilledAtEachWriteOfMemory(t *testing.T) {
	f := newMachineFixture(t, node.Options{Machine: true, Cgroup: 2, MemoryThrottling: 0.9})
	pod := f.Run(t, f.Pod("victim", "memory-hog", []string{"-mib", "64", "-file", "/tmp/cache"}, node.Resources("50m", "16Mi"), node.Resources("400m", "96Mi")))
	c := f.Cgroups(t)
	dir := containerDir(c, pod)
	f.Eventually(t, "the files are in memory", func() error {
		return compare(func(name string) (string, error) { return c.Read(t, dir+"/"+name) }, "memory.current", func(n int64) bool { return n > 64*mebi })
	})

	if err := c.Write(t, dir+"/cpu.max.burst", "20000"); err != nil {
		t.Fatal(err)
	}

	look := f.Run(t, f.HostPod("look"))
	before := f.settingsInside(t, look)
	// 16 MiB and nine tenths of the rest, in pages: the kubelet's value, with its quota and weight.
	for name, want := range map[string]string{"memory.high": strconv.Itoa(88 * mebi), "cpu.max": "40000 100000", "memory.max": strconv.Itoa(96 * mebi)} {
		if got := before["/"+strings.TrimPrefix(node.Group(pod), "kubepods/")+"/"+name]; got != want {
			t.Errorf("%s is %q before, want the kubelet's %q", name, got, want)
		}
	}

	killer := f.HostPod("killer")
	killer.Spec.RestartPolicy = corev1.RestartPolicyNever
	killer.Spec.Containers[0].Image = node.Image(mortal)
	killer.Spec.Containers[0].Args = []string{node.HostRoot, node.HostRoot + "/var/lib/" + mortal, node.Group(pod)}
	f.Create(t, killer)
	ended := func(p *corev1.Pod) bool {
		return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
	}

	// It takes minutes, and each half fits in one wait.
	f.Await(t, killer, "is done with cpu", func(p *corev1.Pod) bool {
		out, err := f.Logs(t, p)
		return ended(p) || err == nil && strings.Contains(out, ", of memory.")
	})

	done := f.Await(t, killer, "has ended", ended)
	out, err := f.Logs(t, done)
	if err != nil || done.Status.Phase != corev1.PodSucceeded {
		t.Fatalf("the pod ended in phase %s, %v, want Succeeded\n%s", done.Status.Phase, err, out)
	}

	if c := node.ChangedSettings(before, f.settingsInside(t, look)); len(c) > 0 {
		t.Errorf("at the end these settings differ: %s, want none", strings.Join(c, "; "))
	}
	diedAt(t, out, map[string]int{"cpu.max.burst": 2, "cpu.max": 4, "cpu.weight": 2, "memory.reclaim": 2, "memory.high": 5})
}

// diedAt checks that a process was killed at least the given times before and after writes of each file.
func diedAt(t *testing.T, out string, writes map[string]int) {
	t.Helper()

	for file, least := range writes {
		for _, when := range []string{"before", "after"} {
			if n := len(regexp.MustCompile(fmt.Sprintf(`(?m)^killed %s write \d+, of %s:`, when, regexp.QuoteMeta(file))).FindAllString(out, -1)); n < least {
				t.Errorf("killed %s %d writes of %s, want %d or more", when, n, file, least)
			}
		}
	}

	if t.Failed() || testing.Verbose() {
		t.Log(out)
	}
}

// roundsEnv overrides the number of random kills.
const roundsEnv = "CRANE_AGENT_TEST_ROUNDS"

// rounds returns the number of kills: that of the environment, or the given ones for usual and short runs.
func rounds(t testing.TB, usual, short int) int {
	t.Helper()

	if text := os.Getenv(roundsEnv); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatalf("parsing %s: %v, want a number", roundsEnv, err)
		}

		return n
	}

	if testing.Short() {
		return short
	}

	return usual
}

// TestKilledAnywhere checks that the next start undoes everything left by an agent killed with SIGKILL at a random time while it throttles
// or restores.
func TestKilledAnywhere(t *testing.T) {
	f := newFixture(t, node.Options{})
	hog := f.hog(t, "hog", "2", nil, nil)
	before := f.Settings(t)
	f.turn(t, hog, true)

	// At any point of what it does ten times a second.
	f.killed(t, before, rounds(t, 40, 6), node.Group(hog), 400*time.Millisecond, "--enforce=cpu-throttle", "--collect-interval=100ms")
}

// TestKilledWithEverything checks the same for an agent that changes everything on cgroup v1: quotas, weights, limits of elastic pods and
// CPUs of containers, partly in the same cgroups.
func TestKilledWithEverything(t *testing.T) {
	if runtime.NumCPU() < 2 {
		t.Skip("one CPU cannot be had alone")
	}

	f := newFixture(t, node.Options{})
	hog := f.hog(t, "hog", "2", node.Resources("50m", "16Mi"), node.Resources("2", "64Mi"))
	ask := corev1.ResourceList{
		ensurancev1alpha1.ResourceReclaimedCPU:    resource.MustParse("1"),
		ensurancev1alpha1.ResourceReclaimedMemory: resource.MustParse("64Mi"),
	}

	elastic := f.Pod("elastic", "cpu-hog", []string{"-threads", "1"}, ask, ask)
	elastic.Labels = batch()
	f.Run(t, elastic)
	pinned := f.Run(t, f.pinned("pinned", "1"))
	before := f.Settings(t)
	f.turn(t, hog, true)

	// Elastic pods are checked every 5 s.
	f.killed(t, before, rounds(t, 12, 3), node.Group(pinned), 6*time.Second, "--enforce=cpu-throttle,pod-resource,cpu-manager", "--collect-interval=100ms",
		"--feature-gates=NodeResourceTopology=true,CraneCPUManager=true", "--cpu-manager-reconcile-period=2s")
}

// killed repeatedly starts an agent, kills it soon after a cgroup is in its journal, and lets the next start undo it.
func (f fixture) killed(t *testing.T, before map[string]string, rounds int, group string, within time.Duration, flags ...string) {
	t.Helper()

	a := f.launcher(t)
	busy := a.write(t, "rules.yaml", throttleRules)
	calm := a.write(t, "calm.yaml", calmRules)

	left, most := 0, 0
	for range rounds {
		p := a.start(t, busy, flags...)
		f.Eventually(t, "the journal of the first change", func() error {
			if content, err := os.ReadFile(a.journal()); err != nil || !bytes.Contains(content, []byte(group)) {
				return fmt.Errorf("%s, %v; the agent says:\n%s", content, err, p.output())
			}

			return nil
		})

		<-time.After(rand.N(within))
		p.end(t, syscall.SIGKILL)

		if n := len(node.ChangedSettings(before, f.Settings(t))); n > 0 {
			left++
			most = max(most, n)
		}

		next := a.start(t, calm, "--enforce=cpu-throttle", "--collect-interval=1m")
		f.awaitAsBefore(t, before)
		next.end(t, syscall.SIGTERM)

		if c := node.ChangedSettings(before, f.Settings(t)); len(c) > 0 {
			t.Fatalf("after the end these settings differ: %s, want none", strings.Join(c, "; "))
		}
	}

	t.Logf("killed %d times, %d times with changes in force, %d files at most", rounds, left, most)
	if left == 0 {
		t.Error("no kill left a change to undo, want at least one")
	}
}

// calmRules never fire.
const calmRules = `
apiVersion: ensurance.crane.io/v1alpha1
kind: NodeQOS
metadata: {name: calm}
spec:
  rules:
  - {name: never, metricRule: {name: cpu_core_numbers, value: 1M}, actionName: calm-down}
`

// agentLauncher starts agents as child processes on the root of a node in namespaces.
type agentLauncher struct {
	fixture
	dir, kubeconfig string
}

func (f fixture) launcher(t testing.TB) agentLauncher {
	t.Helper()

	kubeconfig, err := node.Open(t).Control().KubeconfigFor(t.Context(), command, controlplane.ServiceAccount("crane-system", command))
	if err != nil {
		t.Fatal(err)
	}

	return agentLauncher{fixture: f, dir: t.TempDir(), kubeconfig: kubeconfig}
}

func (a agentLauncher) journal() string { return filepath.Join(a.dir, "changes.json") }

// write writes a file beside the journal and returns its path.
func (a agentLauncher) write(t testing.TB, name, content string) string {
	t.Helper()

	path := filepath.Join(a.dir, name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}

	return path
}

// agentProcess is a running agent.
type agentProcess struct {
	cmd  *exec.Cmd
	log  string
	done chan error
}

// start starts an agent with rules of a file.
func (a agentLauncher) start(t testing.TB, rules string, flags ...string) *agentProcess {
	t.Helper()

	r := &agentProcess{log: filepath.Join(a.dir, "agent.log"), done: make(chan error, 1)}
	log, err := os.Create(r.log)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()

	r.cmd = exec.CommandContext(t.Context(), node.Command(command), append([]string{
		"--host-root=" + a.Path("/"), "--rules=" + rules, "--kubeconfig=" + a.kubeconfig,
		"--hostname-override=" + a.Name(), "--state-dir=" + a.dir, "--bind-address=127.0.0.1:0",
	}, flags...)...)

	r.cmd.Stdout = log
	r.cmd.Stderr = log
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}

	go func() { r.done <- r.cmd.Wait() }()
	return r
}

func (r *agentProcess) output() string {
	content, err := os.ReadFile(r.log)
	if err != nil {
		return err.Error()
	}

	return string(content)
}

// end sends a signal to the agent and waits for its end.
func (r *agentProcess) end(t testing.TB, signal os.Signal) {
	t.Helper()

	if err := r.cmd.Process.Signal(signal); err != nil {
		t.Fatalf("signaling the agent: %v, want it running\n%s", err, r.output())
	}

	select {
	case err := <-r.done:
		if err != nil && signal != syscall.SIGKILL {
			t.Errorf("the agent ended with %v, want no error\n%s", err, r.output())
		}
	case <-time.After(time.Minute):
		_ = r.cmd.Process.Kill()
		t.Fatalf("the agent has not ended a minute after the signal, want its end\n%s", r.output())
	}
}
