// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package lifecycle_test checks real nodes from the shell that started them: what they expose to it, and that nothing is left after any
// kind of end.
package lifecycle_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"crane.io/crane/internal/testbed/realnode/assets"
	"crane.io/crane/internal/testbed/realnode/cleanup"
	"crane.io/crane/internal/testbed/realnode/doctor"
	"crane.io/crane/internal/testbed/realnode/hostcgroup"
)

const (
	// startTimeout stops a test that hangs. cleanupTimeout is for a busy machine; cleanup usually takes a fifth of a second.
	startTimeout   = 2 * time.Minute
	cleanupTimeout = 15 * time.Second
)

// session is a running `nodes up`.
type session struct {
	cmd        *exec.Cmd
	out        *output
	id         string
	kubeconfig string
	done       chan error
}

// output collects both output streams of a session.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()

	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()

	return o.text.String()
}

// startSession starts nodes and returns when they are Ready.
func startSession(t *testing.T, args ...string) *session {
	t.Helper()

	if err := doctor.Problems(doctor.CheckNamespaces(t.Context())); err != nil {
		t.Skipf("this machine cannot run real nodes: %v", err)
	}

	set, err := assets.ForTest(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}

	s := &session{out: &output{}, done: make(chan error, 1)}
	s.cmd = exec.Command(filepath.Join(filepath.Dir(set.Kit), "nodes"), append([]string{"up"}, args...)...)

	s.cmd.Stderr = s.out
	stdout, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}

	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}

	timer := time.AfterFunc(startTimeout, func() { _ = s.cmd.Process.Kill() })
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		fmt.Fprintln(s.out, lines.Text())
		if found := regexp.MustCompile(`kubeconfig\s+(\S+/` + cleanup.Prefix + `([0-9a-f]+)/\S+)`).FindStringSubmatch(lines.Text()); found != nil {
			s.kubeconfig = found[1]
			s.id = found[2]
		}

		if strings.HasPrefix(lines.Text(), "Ctrl-C") {
			break
		}
	}

	timer.Stop()
	go func() {
		for lines.Scan() { // nothing more is expected; a full pipe would block the process
			continue
		}
		s.done <- s.cmd.Wait()
	}()

	if s.id == "" {
		t.Fatalf("the nodes did not come up: %v, want an address\n%s", <-s.done, s.out)
	}

	t.Cleanup(func() { _ = s.cmd.Process.Kill() })
	return s
}

func (s *session) client(t *testing.T) kubernetes.Interface {
	t.Helper()

	config, err := clientcmd.BuildConfigFromFlags("", s.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}

	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}

	return client
}

// listRemains lists what exists of the session on this machine.
func (s *session) listRemains(t *testing.T) []string {
	t.Helper()

	host, err := hostcgroup.Detect()
	if err != nil {
		t.Fatal(err)
	}

	group, err := host.Plan(cleanup.Prefix + s.id)
	if err != nil {
		t.Fatal(err)
	}

	var found []string
	paths := append(slices.Clone(group.Dirs), filepath.Join(cleanup.BaseDir, s.id), filepath.Join(os.TempDir(), cleanup.Prefix+s.id))
	for _, path := range paths {
		if _, err := os.Lstat(path); err == nil {
			found = append(found, path)
		}
	}

	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}

	if bytes.Contains(mounts, []byte(s.id)) {
		found = append(found, "a mount")
	}

	// Processes in a node are in its cgroups; these are the programs around it.
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}

	for _, p := range processes {
		for _, file := range []string{"cmdline", "environ"} {
			content, err := os.ReadFile(filepath.Join(p, file))
			if err == nil && bytes.Contains(content, []byte(s.id)) {
				found = append(found, "process "+filepath.Base(p))
				break
			}
		}
	}

	return found
}

// awaitCleanup waits until nothing of the session is left and returns the time it took.
func (s *session) awaitCleanup(t *testing.T) time.Duration {
	t.Helper()

	begin := time.Now()
	var found []string
	if err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, cleanupTimeout, true, func(context.Context) (bool, error) {
		found = s.listRemains(t)
		return len(found) == 0, nil
	}); err != nil {
		t.Fatalf("after %s these remain: %s, want none: %v\n%s", cleanupTimeout, strings.Join(found, ", "), err, s.out)
	}

	return time.Since(begin)
}

// runPod runs a pod, which has mounts, shims and interfaces.
func (s *session) runPod(t *testing.T) {
	t.Helper()

	client := s.client(t)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "left-behind"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "main", Image: assets.ImageName("pause"), ImagePullPolicy: corev1.PullNever,
		}}},
	}

	pods := client.CoreV1().Pods(metav1.NamespaceDefault)
	if _, err := pods.Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	var last error
	if err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, startTimeout, true, func(ctx context.Context) (bool, error) {
		pod, last = pods.Get(ctx, "left-behind", metav1.GetOptions{})
		return last == nil && pod.Status.Phase == corev1.PodRunning, nil
	}); err != nil {
		t.Fatalf("the pod is %+v, want it running: %v: %v", pod, err, last)
	}
}

// hostState returns what nodes must not change: this network namespace and the sysctls of the machine.
func hostState(t *testing.T) []string {
	t.Helper()

	var state []string
	interfaces, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}

	for _, i := range interfaces {
		addresses, err := i.Addrs()
		if err != nil {
			t.Fatal(err)
		}

		state = append(state, fmt.Sprint(i.Name, addresses))
	}

	for _, name := range []string{
		"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys",
		"kernel/keys/root_maxbytes", "net/ipv4/ip_forward",
	} {
		content, err := os.ReadFile("/proc/sys/" + name)
		if err != nil {
			t.Fatal(err)
		}

		state = append(state, name+"="+strings.TrimSpace(string(content)))
	}

	return state
}

func TestUpAndDown(t *testing.T) {
	before := hostState(t)
	s := startSession(t, "--nodes", "2")

	nodes, err := s.client(t).CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil || len(nodes.Items) != 2 {
		t.Errorf("from this shell there are %d nodes, %v; want 2", len(nodes.Items), err)
	}

	s.runPod(t)
	if len(s.listRemains(t)) < 4 {
		t.Errorf("listRemains() of a running session = %v, want 4 or more", s.listRemains(t))
	}
	if now := hostState(t); !slices.Equal(now, before) {
		t.Errorf("while nodes run, the machine has\n%v, want as before\n%v", now, before)
	}

	begin := time.Now()
	if err := s.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}

	if err := <-s.done; err != nil {
		t.Errorf("the end: %v, want no error\n%s", err, s.out)
	}

	t.Logf("ended %s after the signal", time.Since(begin).Round(time.Millisecond))
	if found := s.listRemains(t); len(found) > 0 {
		t.Errorf("after the end these remain: %v, want none", found)
	}
	if now := hostState(t); !slices.Equal(now, before) {
		t.Errorf("afterward the machine has\n%v, want as before\n%v", now, before)
	}
}

func TestKilled(t *testing.T) {
	s := startSession(t, "--nodes", "1")
	s.runPod(t)

	if err := s.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}

	<-s.done
	t.Logf("nothing left %s after SIGKILL", s.awaitCleanup(t).Round(time.Millisecond))
}

func TestProgramInsideKilled(t *testing.T) {
	s := startSession(t, "--nodes", "1")
	if err := syscall.Kill(findChild(t, s.cmd.Process.Pid, "nodes"), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}

	if err := <-s.done; err == nil {
		t.Error("the command ended without an error although its program inside was killed, want one")
	}
	if found := s.listRemains(t); len(found) > 0 {
		t.Errorf("after the end these remain: %v, want none", found)
	}
}

// TestKilledWithWatcher kills the session and its watcher; the next session cleans up.
func TestKilledWithWatcher(t *testing.T) {
	s := startSession(t, "--nodes", "1")
	if err := syscall.Kill(findChild(t, s.cmd.Process.Pid, "nodekit"), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}

	if err := s.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}

	<-s.done
	if _, err := os.Stat(filepath.Join(cleanup.BaseDir, s.id)); err != nil {
		t.Fatalf("the entry of the session is gone without a watcher: %v", err)
	}

	next := startSession(t, "--nodes", "1")
	if found := s.listRemains(t); len(found) > 0 {
		t.Errorf("the next session left %v of this one, want none", found)
	}
	if len(next.listRemains(t)) == 0 {
		t.Error("the next session has no processes or files, want its own")
	}
	if err := next.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}

	if err := <-next.done; err != nil {
		t.Errorf("the next session ended with %v, want no error\n%s", err, next.out)
	}
}

// findChild returns the process ID of a parent's child with that name.
func findChild(t *testing.T, parent int, name string) int {
	t.Helper()

	ctx, cancel := context.WithTimeout(t.Context(), cleanupTimeout)
	defer cancel()

	for ctx.Err() == nil {
		stats, err := filepath.Glob("/proc/[0-9]*/stat")
		if err != nil {
			t.Fatal(err)
		}

		for _, file := range stats {
			content, err := os.ReadFile(file)
			if err != nil {
				continue
			}

			var pid, ppid int
			var comm, state string
			if n, _ := fmt.Sscanf(string(content), "%d %s %s %d", &pid, &comm, &state, &ppid); n == 4 && ppid == parent && comm == "("+name+")" {
				return pid
			}
		}
	}

	t.Fatalf("process %s has no child %s, want one", strconv.Itoa(parent), name)
	return 0
}
