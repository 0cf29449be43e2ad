// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// bound only ends tests that hang.
const bound = 4 * time.Minute

func binary(t *testing.T, name string) string {
	t.Helper()

	dir := os.Getenv("CRANE_BIN")
	if dir == "" {
		t.Skip("CRANE_BIN does not name the directory of the built binaries; run make test-e2e")
	}

	path := filepath.Join(dir, name)
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("CRANE_BIN: %v", err)
	}

	return path
}

// traces returns the directory of real traces beside the repository.
func traces(t *testing.T) string {
	t.Helper()

	dir, err := filepath.Abs("../../../shared/traces")
	if err != nil {
		t.Fatal(err)
	}

	if _, err := os.Stat(dir); err != nil {
		t.Skipf("the real traces are not on this machine: %v", err)
	}

	return dir
}

// result is the exit of a command.
type result struct {
	code        int
	out, errOut string
}

// execute runs a command to its end without a kubeconfig and without a home directory.
func execute(t *testing.T, name string, args ...string) result {
	t.Helper()

	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()

	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 30 * time.Second
	home := t.TempDir()
	cmd.Env = append(os.Environ(), "HOME="+home, "KUBECONFIG="+filepath.Join(home, "none"), "CRANE_PROMETHEUS_URL=")
	var out, errOut bytes.Buffer
	cmd.Stdout = &out
	cmd.Stderr = &errOut

	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatalf("running %s %v: %v\n%s\n%s", filepath.Base(name), args, err, out.String(), errOut.String())
	}

	return result{code: cmd.ProcessState.ExitCode(), out: out.String(), errOut: errOut.String()}
}

// run executes a command that must succeed.
func run(t *testing.T, name string, args ...string) (stdout, stderr string) {
	t.Helper()

	r := execute(t, name, args...)
	if r.code != 0 {
		t.Fatalf("%s %v: exit code %d, want 0\n%s\n%s", filepath.Base(name), args, r.code, r.out, r.errOut)
	}

	return r.out, r.errOut
}

// eventually polls until check returns nil.
func eventually(t *testing.T, what string, check func() error) {
	t.Helper()

	deadline := time.Now().Add(bound)
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()

	for {
		err := check()
		if err == nil {
			return
		}

		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %s: %v", what, bound, err)
		}

		<-tick.C
	}
}

// session is a running playground.
type session struct {
	cmd                           *exec.Cmd
	kubeconfig, prometheus, state string

	done chan struct{} // closed when the playground has ended
	err  error         // how; valid after done

	mu  sync.Mutex
	log bytes.Buffer
}

// Write stores the playground's output.
func (s *session) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.log.Write(p)
}

func (s *session) output() string {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.log.String()
}

// start starts a playground on a new state directory and waits until it is ready.
func start(t *testing.T, args ...string) *session {
	t.Helper()
	return startIn(t, t.TempDir(), args...)
}

// startIn starts a playground on a given state directory and waits until it is ready.
func startIn(t *testing.T, state string, args ...string) *session {
	t.Helper()

	s := launch(t, state, args...)
	s.awaitReady(t)
	return s
}

// awaitReady waits until a playground is ready.
func (s *session) awaitReady(t *testing.T) {
	t.Helper()
	s.awaitOutput(t, "playground ready", "Ctrl-C")
}

// awaitOutput waits until the playground has printed a text after its addresses, and reads them.
func (s *session) awaitOutput(t *testing.T, what, text string) {
	t.Helper()

	eventually(t, what, func() error {
		select {
		case <-s.done:
			t.Fatalf("the playground ended (%v), want it running:\n%s", s.err, s.output())
		default:
		}

		if !strings.Contains(s.output(), text) {
			return fmt.Errorf("output:\n%s", s.output())
		}

		return nil
	})

	s.kubeconfig, s.prometheus = value(s.output(), "kubeconfig"), value(s.output(), "prometheus")
	if s.kubeconfig == "" {
		t.Fatalf("the playground has not printed its addresses, want a kubeconfig and a Prometheus:\n%s", s.output())
	}
}

// launch starts a playground on a state directory without waiting.
func launch(t *testing.T, state string, args ...string) *session {
	t.Helper()
	return begin(t, &session{state: state}, append(args, "--data-dir", state)...)
}

// launchTemporary starts a playground that keeps nothing: what it makes is below the state directory of the session.
func launchTemporary(t *testing.T, args ...string) *session {
	t.Helper()
	return begin(t, &session{state: t.TempDir()}, args...)
}

func begin(t *testing.T, s *session, args ...string) *session {
	t.Helper()

	s.done = make(chan struct{})
	s.cmd = exec.CommandContext(context.WithoutCancel(t.Context()), binary(t, "playground"), args...)
	s.cmd.Env = append(os.Environ(), "TMPDIR="+s.state)
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}

	s.cmd.Stdout = s
	s.cmd.Stderr = s
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}

	go func() {
		s.err = s.cmd.Wait()
		close(s.done)
	}()
	t.Cleanup(func() {
		s.end(t, syscall.SIGINT)
		if t.Failed() {
			t.Logf("output of the playground:\n%s", s.output())
		}
	})

	return s
}

// end sends a signal and waits until the playground is gone.
func (s *session) end(t *testing.T, signal syscall.Signal) {
	t.Helper()

	_ = s.cmd.Process.Signal(signal) // the process may have exited
	select {
	case <-s.done:
	case <-time.After(bound):
		_ = s.cmd.Process.Kill()
		<-s.done
		t.Errorf("the playground did not end within %s after %s, want its end", bound, signal)
	}
}

// value returns a value of the playground's summary.
func value(output, name string) string {
	if m := regexp.MustCompile(`(?m)^\s*` + name + `\s+(\S+)$`).FindStringSubmatch(output); m != nil {
		return m[1]
	}

	return ""
}

// kubectl runs a command that must succeed.
func (s *session) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, _ := run(t, binary(t, "kubectl"), append([]string{"--kubeconfig", s.kubeconfig}, args...)...)
	return out
}

// interrupt sends SIGINT and checks that nothing is left.
func (s *session) interrupt(t *testing.T) {
	t.Helper()

	s.end(t, syscall.SIGINT)
	if s.err != nil {
		t.Errorf("the playground ended with %v after an interrupt, want no error:\n%s", s.err, s.output())
	}

	s.checkGone(t)
}

// checkGone fails the test if a process of the playground is left.
func (s *session) checkGone(t *testing.T) {
	t.Helper()

	eventually(t, "every process gone", func() error {
		if left := processes(t, s.state); len(left) > 0 {
			return fmt.Errorf("left behind: %v", left)
		}

		return nil
	})
}

// process is a process of this machine.
type process struct {
	pid  int
	line string
}

// processes returns those whose command line contains a text, except zombies and this one.
func processes(t *testing.T, text string) []process {
	t.Helper()

	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil || len(files) == 0 {
		t.Skip("no /proc on this machine")
	}

	var found []process
	for _, f := range files {
		content, err := os.ReadFile(f)
		if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, syscall.ESRCH) {
			t.Fatal(err)
		}

		p := process{line: strings.ReplaceAll(string(content), "\x00", " ")}
		if _, err := fmt.Sscanf(f, "/proc/%d/cmdline", &p.pid); err != nil {
			t.Fatal(err)
		}

		if p.pid != os.Getpid() && strings.Contains(p.line, text) {
			found = append(found, p)
		}
	}

	return found
}

// amount is a recommended quantity, or the reason why there is none.
type amount struct {
	status string
	value  float64
	set    bool
}

// recommend runs crane recommend and returns its results by namespace/kind/name/container/resource.
func recommend(t *testing.T, args ...string) map[string]amount {
	t.Helper()
	out, _ := run(t, binary(t, "crane"), append([]string{"recommend", "-o", "json"}, args...)...)
	return amounts(t, out)
}

func amounts(t *testing.T, answer string) map[string]amount {
	t.Helper()

	type resource struct {
		Status      string
		Recommended *struct{ Request *struct{ Value float64 } }
	}
	var report struct {
		Workloads []struct {
			Namespace, Kind, Name string
			Containers            []struct {
				Name        string
				CPU, Memory *resource
			}
		}
	}

	if err := json.Unmarshal([]byte(answer), &report); err != nil {
		t.Fatalf("parsing the report: %v in\n%s", err, answer)
	}

	all := map[string]amount{}
	for _, w := range report.Workloads {
		for _, c := range w.Containers {
			for name, r := range map[string]*resource{"cpu": c.CPU, "memory": c.Memory} {
				if r == nil {
					continue
				}

				a := amount{status: r.Status}
				if r.Recommended != nil && r.Recommended.Request != nil {
					a.value = r.Recommended.Request.Value
					a.set = true
				}

				all[strings.Join([]string{w.Namespace, w.Kind, w.Name, c.Name, name}, "/")] = a
			}
		}
	}

	return all
}
