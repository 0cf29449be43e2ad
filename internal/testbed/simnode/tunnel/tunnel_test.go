// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTargets(t *testing.T) {
	for host, want := range map[string]string{
		"10.190.0.1:4000": "127.0.0.1:4000", "10.190.255.9:1": "127.0.0.1:1", "localhost:9": "127.0.0.1:9", "127.0.0.1:5": "127.0.0.1:5",
		"127.0.0.53:5": "127.0.0.53:5", "[::1]:5": "[::1]:5",
		"10.191.0.1:4000": "", "192.0.2.2:22": "", "example.org:443": "", "10.190.0.1": "", "": "", "169.254.169.254:80": "",
		"[::ffff:10.190.0.1]:5": "", "0.0.0.0:5": "",
	} {
		got, err := target(host, nil)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("target(%q) = %q, error %v; want %q", host, got, err, want)
		}
	}

	if a, b := NodeAddress(0), NodeAddress(300); a != "10.190.0.1" || b != "10.190.1.45" {
		t.Errorf("NodeAddress(0), NodeAddress(300) = %s, %s; want 10.190.0.1 and 10.190.1.45", a, b)
	}
}

// connection opens the tunnel's socket and sends a CONNECT request.
func connection(t *testing.T, socket, method, host string) (net.Conn, *bufio.Reader, *http.Response) {
	t.Helper()

	conn, err := (&net.Dialer{}).DialContext(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { conn.Close() })
	if _, err := fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: nodes\r\n\r\n", method, host); err != nil {
		t.Fatal(err)
	}

	reader := bufio.NewReader(conn)
	resp, err := http.ReadResponse(reader, nil)
	if err != nil {
		t.Fatal(err)
	}

	resp.Body.Close()
	return conn, reader, resp
}

func TestTunnelCarriesBothWaysAndEnds(t *testing.T) {
	dir := t.TempDir()
	tun, err := Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}

	file := strings.TrimPrefix(tun.APIServerArgs()[0], "--egress-selector-config-file=")
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}

	var config struct{ Kind string }
	if err := json.Unmarshal(data, &config); err != nil || config.Kind != "EgressSelectorConfiguration" {
		t.Errorf("configuration of the API server = %s, error %v; want kind EgressSelectorConfiguration", data, err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan struct{})

	go func() { defer close(served); tun.Serve(ctx) }()

	echo, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer echo.Close()

	go func() {
		for {
			c, err := echo.Accept()
			if err != nil {
				return
			}

			go func() {
				defer c.Close()

				_, _ = io.Copy(c, c)
			}()
		}
	}()

	_, port, _ := net.SplitHostPort(echo.Addr().String())
	socket := tun.listener.Addr().String()
	conn, reader, resp := connection(t, socket, "CONNECT", "10.190.0.7:"+port)
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("CONNECT to a node: status %d, want %d", resp.StatusCode, http.StatusOK)
	}

	if _, err := io.WriteString(conn, "hello\n"); err != nil {
		t.Fatal(err)
	}

	if line, err := reader.ReadString('\n'); err != nil || line != "hello\n" {
		t.Errorf("echo through the tunnel = %q, error %v; want %q", line, err, "hello\n")
	}

	for _, tc := range []struct {
		method, host string
		want         int
	}{{"CONNECT", "192.0.2.1:80", http.StatusForbidden}, {"GET", "/", http.StatusMethodNotAllowed}, {"CONNECT", "127.0.0.1:1", http.StatusBadGateway}} {
		if _, _, resp := connection(t, socket, tc.method, tc.host); resp.StatusCode != tc.want {
			t.Errorf("%s %s: status %d, want %d", tc.method, tc.host, resp.StatusCode, tc.want)
		}
	}

	cancel()
	<-served

	if _, err := reader.ReadByte(); err == nil {
		t.Error("read after the end of Serve: no error, want a closed connection")
	}
}

func TestOpenAgainAndInALongDirectory(t *testing.T) {
	long := filepath.Join(t.TempDir(), strings.Repeat("long", 30))
	if err := os.Mkdir(long, 0o700); err != nil {
		t.Fatal(err)
	}

	for _, dir := range []string{t.TempDir(), long} {
		for range 2 {
			tun, err := Open(t.Context(), dir)
			if err != nil {
				t.Fatal(err)
			}

			socket := tun.listener.Addr().String()
			if err := errors.Join(tun.Close(), tun.Close()); err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(socket); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("stat of %s after Close = %v, want that it does not exist", socket, err)
			}
		}
	}

	if _, err := Open(t.Context(), filepath.Join(long, "missing")); err == nil {
		t.Error("Open in a missing directory: no error, want one")
	}
}

func FuzzTarget(f *testing.F) {
	for _, s := range []string{"10.190.0.1:4000", "localhost:9", "[::1]:5", "[::ffff:7f00:1]:80", "8.8.8.8:53", "10.190.0.1%eth0:5"} {
		f.Add(s)
	}

	f.Fuzz(func(t *testing.T, s string) {
		got, err := target(s, nil)
		if err != nil {
			return
		}

		host, _, err := net.SplitHostPort(got)
		if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsLoopback() {
			t.Errorf("target(%q) = %q, want an address on loopback", s, got)
		}
	})
}

func TestTargetInDirectNetwork(t *testing.T) {
	direct := []netip.Prefix{netip.MustParsePrefix("10.77.0.0/24")}
	if got, err := target("10.77.0.11:10250", direct); err != nil || got != "10.77.0.11:10250" {
		t.Errorf("target of a node in the direct network = %q, error %v; want the address itself", got, err)
	}
	if got, err := target("10.77.1.11:10250", direct); err == nil {
		t.Errorf("target of an address beside the direct network = %q, want an error", got)
	}
}
