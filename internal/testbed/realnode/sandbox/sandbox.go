// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package sandbox runs a program in new namespaces: network, mounts, processes, host name. The program starts itself a
// second time inside; the first process only passes loopback listeners in, forwards signals and waits. If either dies,
// the kernel kills everything inside, and package cleanup removes the rest.
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

// environment is the environment variable that passes the Session to the process inside.
const environment = "CRANE_NODES_SESSION"

// File descriptors of the process inside: the pipe whose other end the watcher reads, then the listeners.
const (
	aliveFD         = 3
	firstListenerFD = 4
)

// Options configures a sandbox.
type Options struct {
	// Kit is the path of the nodekit binary, which watches the session from outside.
	Kit string
	// Ports is the number of listeners on free ports of 127.0.0.1 outside that are forwarded to the same ports inside.
	Ports int
}

// Session describes the sandbox to the process inside.
type Session struct {
	ID string `json:"id"`
	// Dir is a directory for state, accessible by root only. It is removed at the end.
	Dir string `json:"dir"`
	// Group is the parent of the nodes' cgroups.
	Group hostcgroup.Group `json:"group"`
	// Ports are free inside and forwarded from outside; see Relay.
	Ports []int `json:"ports"`

	listeners []net.Listener
}

// Enter runs inside in new namespaces and returns its exit status, with which the calling program should exit. It must
// be called at the start of the program, because the program is started again with the same arguments and calls Enter a
// second time.
func Enter(o Options, inside func(*Session) int) (int, error) {
	if description, ok := os.LookupEnv(environment); ok {
		s, err := initialize(description)
		if err != nil {
			return 1, fmt.Errorf("entering namespaces: %w", err)
		}

		return inside(s), nil
	}

	return outside(o)
}

// outside creates a session, runs the program inside of it and waits for both the program and the removal.
func outside(o Options) (status int, err error) {
	// The parent death signal is bound to the thread that created the child.
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
		return 1, fmt.Errorf("creating pipe: %w", err)
	}

	watcher, err := watch(o.Kit, entry.Dir(), reader)
	if err != nil {
		return 1, errors.Join(err, os.RemoveAll(entry.Dir()))
	}
	defer func() {
		alive.Close()
		if e := watcher.Wait(); e != nil {
			err = errors.Join(err, fmt.Errorf("cleaning up after the nodes: %w", e))
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
		return "", fmt.Errorf("generating session ID: %w", err)
	}

	return hex.EncodeToString(b[:]), nil
}

// watch starts the watcher in a session of its own, out of reach of signals to this process group.
func watch(kit, entry string, alive *os.File) (*exec.Cmd, error) {
	defer alive.Close()

	cmd := exec.Command(kit, "watch", entry) //nolint:noctx // the watcher outlives this process
	cmd.Stdin = alive
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting watcher: %w", err)
	}

	return cmd, nil
}

// prepare creates the resources of the session outside, each after it has been recorded.
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
		return nil, nil, fmt.Errorf("creating session directory: %w", err)
	}

	if s.Group, err = host.Make(cleanup.Prefix + id); err != nil {
		return nil, nil, err
	}

	var files []*os.File
	for range ports {
		listener, err := net.Listen("tcp4", "127.0.0.1:0") //nolint:noctx // the listener lives as long as the session
		if err != nil {
			return nil, files, fmt.Errorf("opening listener: %w", err)
		}
		defer listener.Close() // the file is a duplicate

		tcp, ok := listener.(*net.TCPListener)
		if !ok {
			return nil, files, fmt.Errorf("open listener: %T", listener)
		}

		file, err := tcp.File()
		if err != nil {
			return nil, files, fmt.Errorf("opening listener: %w", err)
		}

		files = append(files, file)
		_, port, err := net.SplitHostPort(listener.Addr().String())
		if err != nil {
			return nil, files, fmt.Errorf("opening listener: %w", err)
		}

		n, err := strconv.Atoi(port)
		if err != nil {
			return nil, files, fmt.Errorf("opening listener: %w", err)
		}

		s.Ports = append(s.Ports, n)
	}

	return s, files, nil
}

// run starts this program again inside, forwards termination signals and waits for it.
func (s *Session) run(files []*os.File) (int, error) {
	description, err := json.Marshal(s)
	if err != nil {
		return 1, fmt.Errorf("encoding session: %w", err)
	}

	self, err := os.Executable()
	if err != nil {
		return 1, fmt.Errorf("finding this program: %w", err)
	}

	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	defer signal.Stop(signals)

	cmd := exec.Command(self, os.Args[1:]...) //nolint:noctx // forwarded signals end the program
	cmd.Env = append(os.Environ(), environment+"="+string(description))
	cmd.Stdin = os.Stdin
	cmd.Stdout = os.Stdout
	cmd.Stderr = os.Stderr
	cmd.ExtraFiles = files

	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC,
		Pdeathsig:  syscall.SIGKILL,
		Setpgid:    true,
	}

	if err := cmd.Start(); err != nil {
		return 1, fmt.Errorf("creating namespaces: %w", err)
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
		return 1, fmt.Errorf("waiting for the program inside: %w", err)
	}

	return 0, nil
}

// initialize reads the session and sets up the namespaces.
func initialize(description string) (*Session, error) {
	var s Session
	if err := json.Unmarshal([]byte(description), &s); err != nil {
		return nil, fmt.Errorf("reading session: %w", err)
	}

	if err := os.Unsetenv(environment); err != nil {
		return nil, fmt.Errorf("unsetting session: %w", err)
	}

	// The descriptor stays open for the life of this process and is not inherited.
	unix.CloseOnExec(aliveFD)

	for i := range s.Ports {
		file := os.NewFile(uintptr(firstListenerFD+i), "listener")
		listener, err := net.FileListener(file)
		file.Close()

		if err != nil {
			return nil, fmt.Errorf("inheriting listener: %w", err)
		}

		s.listeners = append(s.listeners, listener)
	}

	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return nil, fmt.Errorf("making mounts private: %w", err)
	}

	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return nil, fmt.Errorf("mounting /proc: %w", err)
	}

	if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil { //nolint:noctx // returns immediately
		return nil, fmt.Errorf("bringing up loopback: %w: %s", err, out)
	}

	return &s, nil
}

// Relay forwards connections to each port outside to the same port of address inside, until the session ends.
func (s *Session) Relay(address string) {
	for i, listener := range s.listeners {
		go Serve(listener, net.JoinHostPort(address, strconv.Itoa(s.Ports[i])))
	}
}

// Serve forwards each connection to listener to target until the listener is closed.
func Serve(listener net.Listener, target string) {
	for {
		in, err := listener.Accept()
		if err != nil {
			return
		}

		go forward(in, target)
	}
}

// forward copies both ways until both connections end. Errors are ignored: they end the connection.
func forward(in net.Conn, target string) {
	defer func() { _ = in.Close() }()

	out, err := net.Dial("tcp", target) //nolint:noctx // the connection lives as long as the accepted one
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

// Inside reports whether this process is the one inside, before it calls Enter.
func Inside() bool { return os.Getenv(environment) != "" }
