// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"crane.io/crane/internal/dashboard/contract"
)

// enter logs a person in and returns the session.
func (f *clusterFixture) enter(t *testing.T, name string) *http.Cookie {
	t.Helper()

	w := f.do(t, http.MethodPost, contract.Prefix+contract.PathLogin, fmt.Sprintf(`{"token":%q}`, name))
	if w.Code != http.StatusOK {
		t.Fatalf("login of %s: status %d, want %d: %s", name, w.Code, http.StatusOK, w.Body)
	}

	return w.Result().Cookies()[0]
}

// present reports whether a session is open.
func (f *clusterFixture) present(t *testing.T, cookie *http.Cookie) bool {
	t.Helper()

	w := f.do(t, http.MethodGet, contract.Prefix+contract.PathWorklist, "", "Cookie", cookie.String())
	return w.Code == http.StatusOK
}

// TestLoginsEndOwnSessions checks that a person who logs in many times ends own sessions, the oldest first, and those of nobody else; and
// that one who has many names, as the owner of a namespace has with its service accounts, ends sessions of these names alone.
func TestLoginsEndOwnSessions(t *testing.T) {
	f := setupCluster(t, "ann list recommendations ", "eve list recommendations ")
	ann := f.enter(t, "ann")
	f.clock.Step(time.Second)
	first := f.enter(t, "eve")
	f.clock.Step(time.Second)

	var last *http.Cookie
	for range maxSessions + 1 {
		last = f.enter(t, "eve")
	}

	if !f.present(t, ann) {
		t.Errorf("the session of ann after %d logins of eve has ended, want it open", maxSessions+1)
	}
	if f.present(t, first) || !f.present(t, last) {
		t.Errorf("of the sessions of eve the first is open: %v, the last: %v, want the last alone", f.present(t, first), f.present(t, last))
	}

	for i := range maxSessions + 100 {
		if _, _, err := f.sessions.start(Person{Name: fmt.Sprintf("system:serviceaccount:team:a%d", i), Token: "t"}); err != nil {
			t.Fatal(err)
		}
	}

	if n := len(f.sessions.byHash); n > maxSessions {
		t.Errorf("there are %d sessions, want at most %d", n, maxSessions)
	}
	if !f.present(t, ann) || !f.present(t, last) {
		t.Error("the logins of service accounts of one namespace end sessions of ann or eve, want them kept")
	}
}

// TestSlowLoginsTakeNoPlace checks that logins whose bodies do not arrive leave the places of requests to others.
func TestSlowLoginsTakeNoPlace(t *testing.T) {
	f := setupCluster(t, "ann list recommendations ")
	var slow sync.WaitGroup
	bodies := make([]*io.PipeWriter, 2*maxConcurrent)
	for i := range bodies {
		body, writer := io.Pipe()
		bodies[i] = writer
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+address+contract.Prefix+contract.PathLogin, body)
		r.Header.Set("Content-Type", "application/json")
		slow.Go(func() {
			f.ServeHTTP(httptest.NewRecorder(), r)
			_ = body.Close()
		})

		_, _ = io.WriteString(writer, "{") // Returns when the server reads the body or refuses the request.
	}

	w := f.do(t, http.MethodGet, contract.Prefix+contract.PathWorklist, "", "Authorization", "Bearer ann")
	if w.Code != http.StatusOK {
		t.Errorf("GET worklist beside %d slow logins: status %d, %s, want 200", len(bodies), w.Code, w.Body)
	}

	for _, writer := range bodies {
		_ = writer.Close()
	}

	slow.Wait()
}

// TestConnectionsAreBounded checks that the server accepts a bounded number of connections, and the next one when another ends.
func TestConnectionsAreBounded(t *testing.T) {
	f := setupCluster(t)
	listener, err := Listen(t.Context(), "127.0.0.1:0", nil)
	if err != nil {
		t.Fatal(err)
	}

	go func() { _ = f.Serve(t.Context(), listener) }()
	dial := func() (answered func(patience time.Duration) bool, hangUp func()) {
		t.Helper()

		c, err := new(net.Dialer).DialContext(t.Context(), "tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}

		t.Cleanup(func() { _ = c.Close() })
		_, _ = io.WriteString(c, "GET "+healthPath+" HTTP/1.1\r\nHost: a\r\n\r\n")
		reader := bufio.NewReader(c)

		return func(patience time.Duration) bool {
			_ = c.SetReadDeadline(time.Now().Add(patience))
			line, err := reader.ReadString('\n')
			return err == nil && strings.Contains(line, "200")
		}, func() { _ = c.Close() }
	}

	var hangUp func()
	for i := range maxConnections {
		var answered func(time.Duration) bool
		if answered, hangUp = dial(); !answered(10 * time.Second) {
			t.Fatalf("connection %d of %d is not answered, want an answer", i+1, maxConnections)
		}
	}

	answered, _ := dial()
	if answered(200 * time.Millisecond) {
		t.Errorf("connection %d is answered, want it to wait", maxConnections+1)
	}

	hangUp()
	if !answered(10 * time.Second) {
		t.Error("a waiting connection is not answered after another one has ended, want an answer")
	}
}
