// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package loopback

import (
	"errors"
	"net"
	"runtime"
	"syscall"
	"testing"
)

func reservePort(t *testing.T, number int) *Port {
	t.Helper()

	p, err := Reserve(t.Context(), number)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})

	return p
}

func listen(t *testing.T, address string) (net.Listener, error) {
	t.Helper()
	return (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
}

func dial(t *testing.T, address string) (net.Conn, error) {
	t.Helper()
	return (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
}

// TestServerRestarts: a reserved port refuses connections until a process listens on it, which may stop and listen
// again while earlier connections close; a second listener is rejected.
func TestServerRestarts(t *testing.T) {
	p := reservePort(t, 0)
	for range 3 {
		if _, err := dial(t, p.Address()); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatalf("dial of %s without a listener = %v, want %v", p.Address(), err, syscall.ECONNREFUSED)
		}

		l, err := listen(t, p.Address())
		if err != nil {
			t.Fatal(err)
		}

		if _, err := listen(t, p.Address()); !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("second listen on %s = %v, want %v", p.Address(), err, syscall.EADDRINUSE)
		}
		if _, err := Reserve(t.Context(), p.Number()); !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("Reserve(%d) with a listener = %v, want %v", p.Number(), err, syscall.EADDRINUSE)
		}

		out, err := dial(t, p.Address())
		if err != nil {
			t.Fatal(err)
		}

		in, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}

		in.Close() // first, so that the server's side enters TIME_WAIT
		out.Close()
		l.Close()
	}

	if again := reservePort(t, p.Number()); again.Number() != p.Number() {
		t.Errorf("Reserve(%d) after the listener ended = %d, want the same port", p.Number(), again.Number())
	}
}

// TestReservedPortsAreNotAssigned requests half of the kernel's ephemeral ports.
func TestReservedPortsAreNotAssigned(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("ports are reserved on Linux only")
	}

	reserved := map[int]bool{}
	for range 500 {
		reserved[reservePort(t, 0).Number()] = true
	}

	if len(reserved) != 500 {
		t.Fatalf("500 calls of Reserve returned %d distinct ports, want 500", len(reserved))
	}

	for range 14_000 {
		l, err := listen(t, IP+":0")
		if err != nil {
			t.Fatal(err)
		}

		got := l.Addr().(*net.TCPAddr).Port
		l.Close()

		if reserved[got] {
			t.Fatalf("the kernel assigned reserved port %d to a listener, want another one", got)
		}
	}
}
