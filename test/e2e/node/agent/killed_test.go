// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	ensurancev1alpha1 "crane.io/crane/api/ensurance/v1alpha1"
	"crane.io/crane/internal/agent/act"
	"crane.io/crane/internal/agent/host"
	"crane.io/crane/internal/agent/host/cgroup"
	"crane.io/crane/internal/controlplane"
	"crane.io/crane/pkg/qos"
	"crane.io/crane/test/e2e/node"
)

// mortalEnv holds the life of a process that acts on a container and is killed in between.
const mortalEnv = "CRANE_AGENT_TEST_LIFE"

// life is what such a process does.
type life struct {
	// Root is the node's, Journal the file, Group and ID the container's.
	Root, Journal, Group, ID string
	// Writes is how many writes to files of the kernel it lives for; After that it dies after one more, else before.
	Writes int
	After  bool
}

// mortal are the kernel's files, written by a process that is killed with SIGKILL at one of them.
type mortal struct {
	act.KernelFiles
	left  *int
	after bool
}

func (m mortal) Write(file, value string) error {
	die := *m.left == 0
	*m.left--
	if die && !m.after {
		kill()
	}
	err := m.KernelFiles.Write(file, value)
	if die {
		kill()
	}
	return err
}

func kill() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// live is the process: it throttles the container twice, gives back a step and then the rest, unless it dies before.
func live(text string) int {
	err := func() error {
		var l life
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			return err
		}
		throttler, _, err := l.open(mortal{left: &l.Writes, after: l.After})
		if err != nil {
			return err
		}
		const most = 400 // of a core, in thousandths: the container's limit
		for _, to := range []qos.Quota{300, 100, 200, most} {
			plan := qos.Throttle{ContainerID: l.ID, Pod: qos.PodRef{Namespace: "default", Name: "mortal"}, To: to, Original: most}
			if err := throttler.Throttle(plan, l.Group); err != nil {
				return err
			}
		}
		return nil
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// open opens the journal as an agent at its start.
func (l life) open(files act.Files) (*act.Throttler, *act.Journal, error) {
	layout, err := cgroup.Detect(host.Root(l.Root))
	if err != nil {
		return nil, nil, err
	}
	journal, err := act.OpenJournal(l.Journal, layout, files)
	if err != nil {
		return nil, nil, err
	}
	return act.NewThrottler(layout, journal), journal, nil
}

// TestKilledAtEachWrite: a process that is killed with SIGKILL before or after any of its writes to a real kernel leaves nothing that
// the next start does not put back.
func TestKilledAtEachWrite(t *testing.T) {
	s := start(t, node.Options{})
	pod := s.Run(t, s.Pod("mortal", "pause", nil, node.Resources("50m", "16Mi"), node.Resources("400m", "64Mi")))
	if s.Cgroup() == 1 {
		// With a burst there is an order in which the kernel wants its files written.
		if err := os.WriteFile(s.file("cpu", "cpu.cfs_burst_us", pod), []byte("20000"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	before := s.settings(t)
	l := life{Root: s.Path("/"), Group: node.Group(pod), ID: filepath.Base(node.Group(pod))}
	deaths := 0
	for _, l.After = range []bool{false, true} {
		for l.Writes = 0; ; l.Writes++ {
			l.Journal = filepath.Join(t.TempDir(), "changes.json")
			died, err := l.run(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if !died {
				break
			}
			deaths++
			if _, journal, err := l.open(act.KernelFiles{}); err != nil {
				t.Errorf("killed at write %d, after it: %t: %v", l.Writes, l.After, err)
			} else if err := journal.UndoAll(); err != nil || len(journal.Entries()) > 0 {
				t.Errorf("killed at write %d, after it: %t: %v, %v left", l.Writes, l.After, err, journal.Entries())
			}
			if c := changes(before, s.settings(t)); len(c) > 0 {
				t.Fatalf("killed at write %d, after it: %t: %s", l.Writes, l.After, strings.Join(c, "; "))
			}
		}
	}
	// Four writes at least: of the quota, each before and after.
	if deaths < 8 {
		t.Errorf("the process was killed at %d points only", deaths)
	}
	t.Logf("killed at %d points", deaths)
}

// run lives the life and tells whether it ended by SIGKILL.
func (l life) run(ctx context.Context) (died bool, err error) {
	text, err := json.Marshal(l)
	if err != nil {
		return false, err
	}
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), mortalEnv+"="+string(text))
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() && status.Signal() == syscall.SIGKILL {
			return true, nil
		}
	}
	if err != nil {
		return false, fmt.Errorf("%w: %s", err, out)
	}
	return false, nil
}

// roundsEnv is how often an agent is killed at random, for those who want to know it better.
const roundsEnv = "CRANE_AGENT_TEST_ROUNDS"

// rounds is how often an agent is killed: as often as is asked for, else so often, in short runs less.
func rounds(t testing.TB, usual, short int) int {
	t.Helper()
	if text := os.Getenv(roundsEnv); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatalf("%s: %v", roundsEnv, err)
		}
		return n
	}
	if testing.Short() {
		return short
	}
	return usual
}

// TestKilledAnywhere: the whole agent, killed with SIGKILL at a random moment while it throttles or gives back, leaves nothing that its
// next start does not put back.
func TestKilledAnywhere(t *testing.T) {
	s := start(t, node.Options{})
	hog := s.hog(t, "hog", "2", nil, nil)
	before := s.settings(t)
	s.turn(t, hog, true)
	// Any point of what it does ten times a second.
	s.killed(t, before, rounds(t, 40, 6), node.Group(hog), 400*time.Millisecond, "--enforce=cpu-throttle", "--collect-interval=100ms")
}

// TestKilledWithEverything: so it is where it changes all that there is to be changed on cgroup v1: quotas and weights of those that take cpu,
// limits of cpu and memory of pods on elastic resources, and CPUs of containers, in groups that some of these share.
func TestKilledWithEverything(t *testing.T) {
	if runtime.NumCPU() < 2 {
		t.Skip("one CPU cannot be had alone")
	}
	s := start(t, node.Options{})
	hog := s.hog(t, "hog", "2", node.Resources("50m", "16Mi"), node.Resources("2", "64Mi"))
	ask := corev1.ResourceList{
		ensurancev1alpha1.ResourceReclaimedCPU:    resource.MustParse("1"),
		ensurancev1alpha1.ResourceReclaimedMemory: resource.MustParse("64Mi"),
	}
	elastic := s.Pod("elastic", "cpu-hog", []string{"-threads", "1"}, ask, ask)
	elastic.Labels = batch()
	s.Run(t, elastic)
	pinned := s.Run(t, s.pinned("pinned", "1"))
	before := s.settings(t)
	s.turn(t, hog, true)
	// Pods on elastic resources are looked at every 5 s.
	s.killed(t, before, rounds(t, 12, 3), node.Group(pinned), 6*time.Second, "--enforce=cpu-throttle,pod-resource,cpu-manager", "--collect-interval=100ms",
		"--feature-gates=NodeResourceTopology=true,CraneCPUManager=true", "--cpu-manager-reconcile-period=2s")
}

// killed starts an agent so many times, kills it within a while after a group is in its journal, and lets the next start undo what it did.
func (s site) killed(t *testing.T, before map[string]string, rounds int, group string, within time.Duration, flags ...string) {
	t.Helper()
	a := s.launcher(t)
	busy, calm := a.write(t, "rules.yaml", throttleRules), a.write(t, "calm.yaml", calmRules)
	left, most := 0, 0
	for range rounds {
		p := a.start(t, busy, flags...)
		s.Eventually(t, "the journal of the first change", func() error {
			if content, err := os.ReadFile(a.journal()); err != nil || !bytes.Contains(content, []byte(group)) {
				return fmt.Errorf("%s, %v; the agent says:\n%s", content, err, p.said())
			}
			return nil
		})
		<-time.After(rand.N(within))
		p.end(t, syscall.SIGKILL)
		if n := len(changes(before, s.settings(t))); n > 0 {
			left++
			most = max(most, n)
		}
		next := a.start(t, calm, "--enforce=cpu-throttle", "--collect-interval=1m")
		s.awaitAsBefore(t, before)
		next.end(t, syscall.SIGTERM)
		if c := changes(before, s.settings(t)); len(c) > 0 {
			t.Fatalf("after the end: %s", strings.Join(c, "; "))
		}
	}
	t.Logf("killed %d times, %d times with changes in force, %d files at most", rounds, left, most)
	if left == 0 {
		t.Error("nothing was ever left to undo: the test does not test")
	}
}

// calmRules are rules that never fire.
const calmRules = `
apiVersion: ensurance.crane.io/v1alpha1
kind: NodeQOS
metadata: {name: calm}
spec:
  rules:
  - {name: never, metricRule: {name: cpu_core_numbers, value: 1M}, actionName: calm-down}
`

// launcher starts agents as processes of the test's own, on the root of a node in namespaces.
type launcher struct {
	site
	dir, kubeconfig string
}

func (s site) launcher(t testing.TB) launcher {
	t.Helper()
	kubeconfig, err := node.Open(t).Control().KubeconfigFor(t.Context(), command, controlplane.ServiceAccount("crane-system", command))
	if err != nil {
		t.Fatal(err)
	}
	return launcher{site: s, dir: t.TempDir(), kubeconfig: kubeconfig}
}

func (a launcher) journal() string { return filepath.Join(a.dir, "changes.json") }

// write writes a file beside the journal and returns its path.
func (a launcher) write(t testing.TB, name, content string) string {
	t.Helper()
	path := filepath.Join(a.dir, name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// running is an agent that runs.
type running struct {
	cmd  *exec.Cmd
	log  string
	done chan error
}

// start starts an agent with rules of a file.
func (a launcher) start(t testing.TB, rules string, flags ...string) *running {
	t.Helper()
	r := &running{log: filepath.Join(a.dir, "agent.log"), done: make(chan error, 1)}
	log, err := os.Create(r.log)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	r.cmd = exec.CommandContext(t.Context(), node.Command(command), append([]string{
		"--host-root=" + a.Path("/"), "--rules=" + rules, "--kubeconfig=" + a.kubeconfig,
		"--hostname-override=" + a.Name(), "--state-dir=" + a.dir, "--bind-address=127.0.0.1:0",
	}, flags...)...)
	r.cmd.Stdout, r.cmd.Stderr = log, log
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { r.done <- r.cmd.Wait() }()
	return r
}

func (r *running) said() string {
	content, err := os.ReadFile(r.log)
	if err != nil {
		return err.Error()
	}
	return string(content)
}

// end ends the agent by a signal and waits for it.
func (r *running) end(t testing.TB, signal os.Signal) {
	t.Helper()
	if err := r.cmd.Process.Signal(signal); err != nil {
		t.Fatalf("the agent has ended before: %v\n%s", err, r.said())
	}
	select {
	case err := <-r.done:
		if err != nil && signal != syscall.SIGKILL {
			t.Errorf("the agent ended: %v\n%s", err, r.said())
		}
	case <-time.After(time.Minute):
		_ = r.cmd.Process.Kill()
		t.Fatalf("the agent does not end\n%s", r.said())
	}
}
