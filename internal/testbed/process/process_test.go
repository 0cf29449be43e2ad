// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// bound limits waits for events that take milliseconds.
const bound = 30 * time.Second

// roleEnv selects the child process that the test binary acts as; see roles.
const roleEnv = "CRANE_TEST_ROLE"

func TestMain(m *testing.M) {
	if role, ok := roles()[os.Getenv(roleEnv)]; ok {
		role()
		os.Exit(0)
	}

	os.Exit(m.Run())
}

func roles() map[string]func() {
	return map[string]func(){
		// parent starts a child that would live forever, and hangs.
		"parent": func() {
			p, err := Start(Spec{Name: "child", Path: os.Args[0], Env: []string{roleEnv + "=hang"}})
			if err != nil {
				fmt.Println(err)
				os.Exit(1)
			}

			fmt.Println(p.PID())
			select {}
		},
		"hang": func() { select {} },
		// orphan ends only because its stdin is closed.
		"orphan": func() {
			ExitWithParent(time.Minute)
			fmt.Println("ready")
			select {}
		},
	}
}

func shell(t *testing.T, script string) Spec {
	t.Helper()
	return Spec{Name: "script", Path: "/bin/sh", Args: []string{"-c", script}, Dir: t.TempDir()}
}

func start(t *testing.T, spec Spec) *Process {
	t.Helper()

	p, err := Start(spec)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), bound)
		defer cancel()

		if err := p.Stop(ctx); err != nil && !errors.Is(err, ErrKilled) {
			t.Error(err)
		}
	})

	return p
}

func eventually(t *testing.T, event string, ok func() bool) {
	t.Helper()

	deadline := time.After(bound)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()

	for !ok() {
		select {
		case <-deadline:
			t.Fatalf("not within %s: %s", bound, event)
		case <-tick.C:
		}
	}
}

func awaitLine(t *testing.T, p *Process, line string) {
	t.Helper()
	eventually(t, "line "+line, func() bool { return slices.Contains(p.LastLines(), line) })
}

// awaitPID waits for the process id that p prints in its first line.
func awaitPID(t *testing.T, p *Process) int {
	t.Helper()

	eventually(t, "line with a process id", func() bool { return len(p.LastLines()) > 0 })
	pid, err := strconv.Atoi(p.LastLines()[0])
	if err != nil {
		t.Fatal(err)
	}

	return pid
}

func TestEndsByItself(t *testing.T) {
	for name, test := range map[string]struct {
		script string
		status int
	}{
		"success": {"echo out; echo err >&2", 0},
		"failure": {"echo out; echo err >&2; exit 7", 7},
	} {
		t.Run(name, func(t *testing.T) {
			var exits []Exit
			spec := shell(t, test.script)
			spec.OnExit = func(e Exit) { exits = append(exits, e) }
			p := start(t, spec)
			<-p.Done()

			var exit *exec.ExitError
			if errors.As(p.Err(), &exit) != (test.status != 0) || (exit != nil && exit.ExitCode() != test.status) {
				t.Errorf("Err() = %v, want status %d", p.Err(), test.status)
			}
			if len(exits) != 1 || exits[0].RestartIn >= 0 || exits[0].PID == 0 {
				t.Fatalf("OnExit got %+v, want one exit without a restart", exits)
			}

			if want := []string{"out", "err"}; !slices.Equal(exits[0].LastLines, want) {
				t.Errorf("last lines %q, want %q", exits[0].LastLines, want)
			}
			if p.PID() != 0 {
				t.Errorf("PID() after the end = %d, want 0", p.PID())
			}
			if err := p.Stop(t.Context()); err != nil {
				t.Errorf("Stop of an ended process = %v, want no error", err)
			}
		})
	}
}

func TestStopIsGraceful(t *testing.T) {
	p := start(t, shell(t, `trap 'echo bye; exit 0' TERM; echo ready; while :; do read x || sleep 0.01; done`))
	awaitLine(t, p, "ready")
	pid := p.PID()

	if err := p.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}

	awaitLine(t, p, "bye")
	if running(pid) || p.Err() != nil {
		t.Errorf("after Stop: runs %t, Err() %v; want false and none", running(pid), p.Err())
	}
}

func TestStopKillsTheWholeGroup(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()

	for name, test := range map[string]struct {
		ctx     context.Context
		timeout time.Duration
	}{
		"after the timeout":     {t.Context(), 50 * time.Millisecond},
		"when the context ends": {ended, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			// Neither the leader nor its child ends on SIGTERM, and the child holds the output open.
			spec := shell(t, `trap '' TERM; sleep 1000 & echo $!; while :; do sleep 1; done`)
			spec.StopTimeout = test.timeout
			p := start(t, spec)
			child := awaitPID(t, p)

			if err := p.Stop(test.ctx); !errors.Is(err, ErrKilled) {
				t.Errorf("Stop = %v, want ErrKilled", err)
			}
			eventually(t, "end of the child", func() bool { return !running(child) })
		})
	}
}

func TestExitOfTheLeaderKillsItsGroup(t *testing.T) {
	p := start(t, shell(t, `sleep 1000 & echo $!`))
	<-p.Done()
	eventually(t, "end of the child", func() bool { return !running(awaitPID(t, p)) })
}

func TestRestartWithBackoff(t *testing.T) {
	exits := make(chan Exit, 100)
	spec := shell(t, "echo run; exit 1")
	spec.Restart = Always
	spec.MinBackoff = time.Millisecond
	spec.MaxBackoff = 4 * time.Millisecond
	spec.OnExit = func(e Exit) { exits <- e }
	p := start(t, spec)

	for range 4 {
		if e := <-exits; e.RestartIn < time.Millisecond || e.RestartIn > 4*time.Millisecond || e.Err == nil {
			t.Errorf("OnExit got %+v, want an error and a restart within 1 to 4 ms", e)
		}
	}

	if p.Restarts() < 3 || p.Err() != nil {
		t.Errorf("Restarts() = %d, Err() = %v; want at least 3 and none", p.Restarts(), p.Err())
	}
	if err := p.Stop(t.Context()); err != nil {
		t.Error(err)
	}

	select {
	case <-p.Done():
	default:
		t.Error("Done() is open after Stop, want it closed")
	}
}

func TestStopDuringBackoff(t *testing.T) {
	exited := make(chan Exit, 1)
	spec := shell(t, "exit 1")
	spec.Restart = Always
	spec.MinBackoff = time.Hour
	spec.OnExit = func(e Exit) { exited <- e }
	p := start(t, spec)

	if e := <-exited; e.RestartIn != time.Hour {
		t.Errorf("OnExit got a restart in %s, want 1h", e.RestartIn)
	}
	if err := p.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestBackoff(t *testing.T) {
	spec := Spec{MinBackoff: time.Second, MaxBackoff: 5 * time.Second}
	var got []time.Duration
	var wait time.Duration
	for _, uptime := range []time.Duration{0, 0, 0, 0, 0, time.Minute, 0} {
		wait = spec.backoff(wait, uptime)
		got = append(got, wait/time.Second)
	}

	if want := []time.Duration{1, 2, 4, 5, 5, 1, 2}; !slices.Equal(got, want) {
		t.Errorf("backoff = %v, want %v", got, want)
	}
}

func TestStartErrors(t *testing.T) {
	dir := t.TempDir()
	for name, spec := range map[string]Spec{
		"no name":       {Path: "/bin/sh"},
		"no path":       {Name: "x"},
		"no program":    {Name: "x", Path: filepath.Join(dir, "none")},
		"log directory": {Name: "x", Path: "/bin/sh", LogFile: filepath.Join(dir, "none", "log")},
	} {
		t.Run(name, func(t *testing.T) {
			if p, err := Start(spec); err == nil {
				t.Errorf("Start of an invalid specification: no error, want one (Stop: %v)", p.Stop(t.Context()))
			}
		})
	}
}

func TestEnvironmentAndDirectory(t *testing.T) {
	spec := shell(t, `echo "$A $CRANE_PARENT_PIPE"; pwd -P`)
	spec.Env = []string{"A=1", "A=2"}
	p := start(t, spec)
	<-p.Done()

	dir, err := filepath.EvalSymlinks(spec.Dir)
	if err != nil {
		t.Fatal(err)
	}

	if want := []string{"2 stdin", dir}; !slices.Equal(p.LastLines(), want) {
		t.Errorf("LastLines() = %q, want %q", p.LastLines(), want)
	}
}

func TestKilledParent(t *testing.T) {
	parent := exec.CommandContext(t.Context(), os.Args[0])
	parent.Env = append(os.Environ(), roleEnv+"=parent")
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}

	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}

	line, err := bufio.NewReader(out).ReadString('\n')
	if killErr := parent.Process.Kill(); killErr != nil || err != nil {
		t.Fatal(err, killErr)
	}

	_ = parent.Wait()
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatalf("output of the parent = %q, want a process ID", line)
	}

	eventually(t, "end of the child", func() bool { return !running(pid) })
}

func TestExitWithParentSeesTheEndOfItsStdin(t *testing.T) {
	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), roleEnv+"=orphan", ParentPipeEnv+"=stdin")
	in, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}

	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}

	if err := child.Start(); err != nil {
		t.Fatal(err)
	}

	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("output of the child = %q, error %v; want ready", line, err)
	}

	if err := in.Close(); err != nil {
		t.Fatal(err)
	}

	var exit *exec.ExitError
	if err := child.Wait(); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM {
		t.Errorf("the child ended with %v, want SIGTERM", err)
	}
}

// running reports whether process pid exists and is not a zombie. Orphans may be reaped late.
func running(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
	}

	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z")
}

func TestExitString(t *testing.T) {
	e := Exit{Name: "a", PID: 3, Uptime: time.Second, LastLines: []string{"x", "y"}, RestartIn: -1}
	if got, want := e.String(), "a (pid 3) ended after 1s: exit status 0\n    x\n    y"; got != want {
		t.Errorf("%q, want %q", got, want)
	}

	e.Err = errors.New("exit status 2")
	e.RestartIn = 2 * time.Second
	e.LastLines = nil
	if got, want := e.String(), "a (pid 3) ended after 1s: exit status 2; restart in 2s"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
