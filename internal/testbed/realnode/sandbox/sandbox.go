// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package sandbox runs a program in namespaces of its own, made anew and gone with it: network, mounts, processes, host
// name. The program starts itself a second time inside; the first, outside, only waits, hands loopback listeners in and
// passes signals on. When either dies, however, the kernel ends everything inside, and package janitor removes the rest.
package sandbox

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"crane.io/crane/internal/testbed/realnode/cleanup"
	"crane.io/crane/internal/testbed/realnode/hostcgroup"
)

// environment holds the Session on its way in.
const environment = "CRANE_NODES_SESSION"

// Descriptors that the program inside finds open: the pipe whose other end the watcher reads, then the listeners.
const (
	aliveFD         = 3
	firstListenerFD = 4
)

// Options say what to hand in.
type Options struct {
	// Kit is the path of the nodekit binary, which watches over the session from outside.
	Kit string
	// Ports is the number of listeners on free ports of 127.0.0.1 outside, to be relayed to the same ports inside.
	Ports int
}

// Session is what the program inside knows.
type Session struct {
	ID string `json:"id"`
	// Dir is an empty directory for state, for root alone. It is removed after the end.
	Dir string `json:"dir"`
	// Group is the cgroup below which nodes get theirs.
	Group hostcgroup.Group `json:"group"`
	// Ports are free inside and relayed from outside, see Relay.
	Ports []int `json:"ports"`

	listeners []net.Listener
}

// Enter runs inside in namespaces of its own and returns its exit status, which the calling program should end with. It
// must be called at the start of the program, since that is started again, with the same arguments, to come here a second
// time; what went before runs twice.
func Enter(o Options, inside func(*Session) int) (int, error) {
	if description, ok := os.LookupEnv(environment); ok {
		s, err := arrive(description)
		if err != nil {
			return 1, fmt.Errorf("enter namespaces: %w", err)
		}
		return inside(s), nil
	}
	return outside(o)
}

// outside makes a session, runs the program inside of it and waits for both the program's end and the removal.
func outside(o Options) (status int, err error) {
	// The signal that the child gets at its parent's death is bound to the thread that made it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cleanup.Sweep(); err != nil {
		return 1, err
	}
	id, err := newID()
	if err != nil {
		return 1, err
	}
	entry, err := cleanup.Open(id)
	if err != nil {
		return 1, err
	}
	reader, alive, err := os.Pipe()
	if err != nil {
		return 1, fmt.Errorf("make pipe: %w", err)
	}
	watcher, err := watch(o.Kit, entry.Dir(), reader)
	if err != nil {
		return 1, errors.Join(err, os.RemoveAll(entry.Dir()))
	}
	defer func() {
		alive.Close()
		if e := watcher.Wait(); e != nil {
			err = errors.Join(err, fmt.Errorf("clean up after the nodes: %w", e))
			status = max(status, 1)
		}
		entry.Close()
	}()
	s, files, err := prepare(id, entry, o.Ports)
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	if err != nil {
		return 1, err
	}
	return s.run(append([]*os.File{alive}, files...))
}

func newID() (string, error) {
	var b [4]byte
	if _, err := rand.Read(b[:]); err != nil {
		return "", fmt.Errorf("make up a name: %w", err)
	}
	return hex.EncodeToString(b[:]), nil
}

// watch starts the watcher, out of reach of a signal to our process group.
func watch(kit, entry string, alive *os.File) (*exec.Cmd, error) {
	defer alive.Close()
	cmd := exec.Command(kit, "watch", entry) //nolint:noctx // it is to outlive everything
	cmd.Stdin = alive
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start watcher: %w", err)
	}
	return cmd, nil
}

// prepare makes what the session needs from outside, each thing after it has been written down.
func prepare(id string, entry *cleanup.Session, ports int) (*Session, []*os.File, error) {
	s := &Session{ID: id, Dir: filepath.Join(os.TempDir(), cleanup.Prefix+id)}
	host, err := hostcgroup.Detect()
	if err != nil {
		return nil, nil, err
	}
	planned, err := host.Plan(cleanup.Prefix + id)
	if err != nil {
		return nil, nil, err
	}
	if err := entry.Save(cleanup.Record{Group: planned, Dirs: []string{s.Dir}}); err != nil {
		return nil, nil, err
	}
	if err := os.Mkdir(s.Dir, 0o700); err != nil {
		return nil, nil, fmt.Errorf("make session directory: %w", err)
	}
	if s.Group, err = host.Make(cleanup.Prefix + id); err != nil {
		return nil, nil, err
	}
	var files []*os.File
	for range ports {
		listener, err := net.Listen("tcp4", "127.0.0.1:0") //nolint:noctx // a listener's life is not a request's
		if err != nil {
			return nil, files, fmt.Errorf("open listener: %w", err)
		}
		defer listener.Close() // the file is a copy
		tcp, ok := listener.(*net.TCPListener)
		if !ok {
			return nil, files, fmt.Errorf("open listener: %T", listener)
		}
		file, err := tcp.File()
		if err != nil {
			return nil, files, fmt.Errorf("open listener: %w", err)
		}
		files = append(files, file)
		_, port, err := net.SplitHostPort(listener.Addr().String())
		if err != nil {
			return nil, files, fmt.Errorf("open listener: %w", err)
		}
		n, err := strconv.Atoi(port)
		if err != nil {
			return nil, files, fmt.Errorf("open listener: %w", err)
		}
		s.Ports = append(s.Ports, n)
	}
	return s, files, nil
}

// run starts this program again inside and waits for it, passing on the signals that ask for its end.
func (s *Session) run(files []*os.File) (int, error) {
	description, err := json.Marshal(s)
	if err != nil {
		return 1, fmt.Errorf("describe session: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return 1, fmt.Errorf("find this program: %w", err)
	}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	defer signal.Stop(signals)
	cmd := exec.Command(self, os.Args[1:]...) //nolint:noctx // our own program; signals end it
	cmd.Env = append(os.Environ(), environment+"="+string(description))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.ExtraFiles = files
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC,
		Pdeathsig:  syscall.SIGKILL,
		Setpgid:    true,
	}
	if err := cmd.Start(); err != nil {
		return 1, fmt.Errorf("make namespaces: %w", err)
	}
	ended := make(chan struct{})
	go func() {
		for {
			select {
			case <-ended:
				return
			case got := <-signals:
				_ = cmd.Process.Signal(got)
			}
		}
	}()
	err = cmd.Wait()
	close(ended)
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		if exit.ExitCode() < 0 {
			return 1, fmt.Errorf("the program inside: %w", err)
		}
		return exit.ExitCode(), nil
	}
	if err != nil {
		return 1, fmt.Errorf("wait for the program inside: %w", err)
	}
	return 0, nil
}

// arrive takes over what was handed in and makes the namespaces fit to live in.
func arrive(description string) (*Session, error) {
	var s Session
	if err := json.Unmarshal([]byte(description), &s); err != nil {
		return nil, fmt.Errorf("read session: %w", err)
	}
	if err := os.Unsetenv(environment); err != nil {
		return nil, fmt.Errorf("forget session: %w", err)
	}
	// Held open for as long as this process lives, and by no child of it.
	unix.CloseOnExec(aliveFD)
	for i := range s.Ports {
		file := os.NewFile(uintptr(firstListenerFD+i), "listener")
		listener, err := net.FileListener(file)
		file.Close()
		if err != nil {
			return nil, fmt.Errorf("take over listener: %w", err)
		}
		s.listeners = append(s.listeners, listener)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return nil, fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return nil, fmt.Errorf("mount /proc: %w", err)
	}
	if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil { //nolint:noctx // takes no time
		return nil, fmt.Errorf("bring up loopback: %w: %s", err, out)
	}
	return &s, nil
}

// Relay passes connections to each port outside on to the same port of address inside, until the session ends.
func (s *Session) Relay(address string) {
	for i, listener := range s.listeners {
		go Serve(listener, net.JoinHostPort(address, strconv.Itoa(s.Ports[i])))
	}
}

// Serve passes each connection to listener on to target until the listener is closed.
func Serve(listener net.Listener, target string) {
	for {
		in, err := listener.Accept()
		if err != nil {
			return
		}
		go pass(in, target)
	}
}

// pass copies both ways until both are at their end. An error is the end of one of the peers, who knows more than we do.
func pass(in net.Conn, target string) {
	defer func() { _ = in.Close() }()
	out, err := net.Dial("tcp", target) //nolint:noctx // as long as the connection that it serves
	if err != nil {
		return
	}
	defer func() { _ = out.Close() }()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(out, in)
		closeWrite(out)
	}()
	_, _ = io.Copy(in, out)
	closeWrite(in)
	<-done
}

func closeWrite(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.CloseWrite()
	}
}

// Inside tells whether this process is the one inside, which has not come to Enter yet.
func Inside() bool { return os.Getenv(environment) != "" }
