// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package boundedserver

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// patience is the timeout of operations that take a moment.
const patience = time.Minute

// short is a timeout whose end a test waits for.
const short = 50 * time.Millisecond

func handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "answer") })
}

// serve serves until the test ends and returns the address.
func serve(t *testing.T, s *http.Server, connections int, config *tls.Config) string {
	t.Helper()

	listener, err := Listen(t.Context(), "127.0.0.1:0", connections, config)
	if err != nil {
		t.Fatal(err)
	}

	ended := make(chan error, 1)
	go func() { ended <- s.Serve(listener) }()
	t.Cleanup(func() {
		s.Close()
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})

	return listener.Addr().String()
}

func dial(t *testing.T, address string) net.Conn {
	t.Helper()

	conn, err := (&net.Dialer{Timeout: patience}).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}

	return conn
}

func send(t *testing.T, conn net.Conn, text string) {
	t.Helper()

	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
}

func status(t *testing.T, conn net.Conn) int {
	t.Helper()

	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()

	_, _ = io.Copy(io.Discard, response.Body) // After a refusal the server resets a connection with unread headers.
	return response.StatusCode
}

// expectClosed fails unless the server closes the connection.
func expectClosed(t *testing.T, conn net.Conn) {
	t.Helper()

	var timeout net.Error
	if _, err := io.Copy(io.Discard, conn); errors.As(err, &timeout) && timeout.Timeout() {
		t.Errorf("the connection is open after %s, want it closed", patience)
	}
}

const request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"

// TestNew_Limits checks the values for which the other tests use shorter ones.
func TestNew_Limits(t *testing.T) {
	s := New(handler(), time.Minute)
	if s.ReadHeaderTimeout != 5*time.Second || s.MaxHeaderBytes != 16<<10 || s.IdleTimeout <= 90*time.Second || s.IdleTimeout > 2*time.Minute ||
		s.ReadTimeout != time.Minute || s.WriteTimeout != time.Minute {
		t.Errorf("New has the bounds of %+v, want 5 s and 16 KiB for headers, a minute for requests, and idle times from 90 s to 2 min", s)
	}
}

// TestSlowClients checks that each way to hold a connection without a request ends.
func TestSlowClients(t *testing.T) {
	certificate := httptest.NewUnstartedServer(nil)
	certificate.StartTLS()
	t.Cleanup(certificate.Close)

	for name, test := range map[string]struct {
		send string
		set  func(*http.Server)
		tls  *tls.Config
	}{
		"no handshake":   {set: func(s *http.Server) { s.ReadHeaderTimeout = short }, tls: certificate.TLS},
		"nothing":        {set: func(s *http.Server) { s.ReadHeaderTimeout = short }},
		"part of header": {send: "GET / HTTP/1.1\r\nHost: a\r\nX: ", set: func(s *http.Server) { s.ReadHeaderTimeout = short }},
		"idle":           {send: request, set: func(s *http.Server) { s.IdleTimeout = short }},
		"unread body":    {send: "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n", set: func(s *http.Server) { s.ReadTimeout = short }},
	} {
		t.Run(name, func(t *testing.T) {
			s := New(handler(), time.Hour)
			test.set(s)
			conn := dial(t, serve(t, s, 1, test.tls))
			send(t, conn, test.send)
			expectClosed(t, conn)
		})
	}
}

// pipeListener accepts one connection, and then waits until it is closed.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
	end    sync.Once
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.end.Do(func() { close(l.closed) })
	return nil
}

func (*pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

// TestSlowHandler checks that a handler may take longer than headers. In a bubble the client is never too slow to send them.
func TestSlowHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			select {
			case <-r.Context().Done():
				w.WriteHeader(http.StatusServiceUnavailable)
			case <-time.After(4 * short):
			}
		}), time.Hour)

		s.ReadHeaderTimeout = short
		client, server := net.Pipe()
		defer client.Close()

		listener := &pipeListener{conns: make(chan net.Conn, 1), closed: make(chan struct{})}
		listener.conns <- server
		ended := make(chan error, 1)
		go func() { ended <- s.Serve(listener) }()

		send(t, client, request)
		if got := status(t, client); got != http.StatusOK {
			t.Errorf("status %d, want %d", got, http.StatusOK)
		}

		s.Close()
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
}

// TestConnections checks that connections whose requests are being served are kept, and that a further one waits for the end of one.
func TestConnections(t *testing.T) {
	const bound = 3
	entered := make(chan struct{})
	release := make(chan struct{})
	s := New(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		entered <- struct{}{}
		<-release
	}), time.Hour)

	address := serve(t, s, bound, nil)
	var open []net.Conn
	for range bound {
		c := dial(t, address)
		send(t, c, request)
		<-entered
		open = append(open, c)
	}

	late := dial(t, address)
	send(t, late, request)

	select {
	case <-entered:
		t.Errorf("a request of connection %d is served, want it to wait", bound+1)
	case <-time.After(100 * time.Millisecond):
	}

	release <- struct{}{}
	<-entered
	close(release)

	for _, c := range append(open, late) {
		if got := status(t, c); got != http.StatusOK {
			t.Errorf("a connection has status %d, want %d", got, http.StatusOK)
		}
	}
}

// TestWaitingConnectionsGiveWay checks that connections without a request are closed for new ones, and those which had an answer last.
func TestWaitingConnectionsGiveWay(t *testing.T) {
	const bound = 3
	s := New(handler(), time.Hour)
	s.ReadHeaderTimeout = time.Hour
	address := serve(t, s, bound, nil)

	user := dial(t, address)
	send(t, user, request)
	if got := status(t, user); got != http.StatusOK {
		t.Fatalf("status %d, want %d", got, http.StatusOK)
	}

	for i := range 100 {
		send(t, dial(t, address), "GET / HTTP/1.1\r\n"[:i%10])
	}

	for name, c := range map[string]net.Conn{"the first": user, "a new": dial(t, address)} {
		send(t, c, request)
		if got := status(t, c); got != http.StatusOK {
			t.Errorf("%s connection beside 100 that send no request has status %d, want %d", name, got, http.StatusOK)
		}
	}
}

// TestUnfinishedRequestsGiveWay checks that a client which was answered and does not send the body of its request, or reads no answers,
// holds its connection for a moment only, although the timeouts are long.
func TestUnfinishedRequestsGiveWay(t *testing.T) {
	certificate := httptest.NewUnstartedServer(nil)
	certificate.StartTLS()
	t.Cleanup(certificate.Close)

	const bound = 2
	unsent := "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n"
	for name, test := range map[string]struct {
		send string
		tls  *tls.Config
	}{
		"unsent body":           {send: unsent},
		"unsent body below TLS": {send: unsent, tls: certificate.TLS},
		"unread answers":        {send: strings.Repeat(request, 1<<17)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			answered := make(chan struct{}, 1)
			s := New(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				select {
				case answered <- struct{}{}:
				default:
				}
				handler().ServeHTTP(w, r)
			}), time.Hour)

			address := serve(t, s, bound, test.tls)
			connect := func() net.Conn {
				conn := dial(t, address)
				if test.tls == nil {
					return conn
				}

				return tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
			}

			for range bound {
				conn := connect()
				go func() { _, _ = io.WriteString(conn, test.send) }()
				<-answered
			}

			late := connect()
			send(t, late, request)
			if got := status(t, late); got != http.StatusOK {
				t.Errorf("a new connection beside %d unfinished requests has status %d, want %d", bound, got, http.StatusOK)
			}
		})
	}
}

// TestHeaderSize checks the bound on headers, tiny ones included, which take many times their size in memory.
func TestHeaderSize(t *testing.T) {
	address := serve(t, New(handler(), time.Hour), 4, nil)
	for name, test := range map[string]struct {
		headers string
		want    int
	}{
		"usual":     {"Authorization: Bearer " + strings.Repeat("a", 8<<10) + "\r\n", http.StatusOK},
		"one large": {"A: " + strings.Repeat("a", 32<<10) + "\r\n", http.StatusRequestHeaderFieldsTooLarge},
		"many tiny": {strings.Repeat("a:\r\n", 8<<10), http.StatusRequestHeaderFieldsTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			conn := dial(t, address)
			go func() { _, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\n"+test.headers+"\r\n") }()

			if got := status(t, conn); got != test.want {
				t.Errorf("status %d, want %d", got, test.want)
			}
		})
	}
}

// TestNoHTTP2 checks that a client which offers HTTP/2 gets HTTP/1.1, also if the configuration of TLS permits HTTP/2.
func TestNoHTTP2(t *testing.T) {
	certificate := httptest.NewUnstartedServer(nil)
	certificate.StartTLS()
	t.Cleanup(certificate.Close)
	config := certificate.TLS.Clone()
	config.NextProtos = []string{"h2", "http/1.1"}

	address := serve(t, New(handler(), time.Hour), 4, config)
	conn, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2", "http/1.1"}}}).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()

	if got := conn.(*tls.Conn).ConnectionState().NegotiatedProtocol; got != "http/1.1" { //nolint:forcetypeassert // The type of a tls.Dialer.
		t.Errorf("negotiated %s, want http/1.1", got)
	}
}
