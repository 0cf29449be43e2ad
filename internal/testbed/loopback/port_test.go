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

func held(t *testing.T, number int) *Port {
	t.Helper()
	p, err := Hold(t.Context(), number)
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

// TestServerComesAndGoes: a kept port refuses connections until somebody listens on it, who may do so again and again, while
// connections of before end; nobody else listens beside.
func TestServerComesAndGoes(t *testing.T) {
	p := held(t, 0)
	for range 3 {
		if _, err := dial(t, p.Address()); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatalf("nobody listens on %s, and it answers %v", p.Address(), err)
		}
		l, err := listen(t, p.Address())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := listen(t, p.Address()); !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("a second listener: %v", err)
		}
		if _, err := Hold(t.Context(), p.Number()); !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("kept for another while somebody listens: %v", err)
		}
		out, err := dial(t, p.Address())
		if err != nil {
			t.Fatal(err)
		}
		in, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		in.Close() // First, so that it is the server's side which remembers the connection for a minute.
		out.Close()
		l.Close()
	}
	if again := held(t, p.Number()); again.Number() != p.Number() {
		t.Errorf("port %d, want %d", again.Number(), p.Number())
	}
}

// TestNobodyGetsItByChance asks the kernel for half as many ports as it has to give.
func TestNobodyGetsItByChance(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("ports are kept on Linux alone")
	}
	kept := map[int]bool{}
	for range 500 {
		kept[held(t, 0).Number()] = true
	}
	if len(kept) != 500 {
		t.Fatalf("%d ports, want 500 of their own", len(kept))
	}
	for range 14_000 {
		l, err := listen(t, IP+":0")
		if err != nil {
			t.Fatal(err)
		}
		got := l.Addr().(*net.TCPAddr).Port
		l.Close()
		if kept[got] {
			t.Fatalf("port %d was given to somebody else", got)
		}
	}
}
