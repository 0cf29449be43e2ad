// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/utils/clock"

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

// TestSlowWritesTakeNoPlace checks that a person whose requests do not arrive takes no place, and cannot keep others from writing.
func TestSlowWritesTakeNoPlace(t *testing.T) {
	f := setupCluster(t, "ann list recommendations ", "eve list recommendations ")
	var slow sync.WaitGroup
	var writers []*io.PipeWriter
	for range 2 * maxConcurrent {
		body, writer := io.Pipe()
		writers = append(writers, writer)
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+address+contract.Prefix+contract.PathAction, body)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer eve")
		r.Header.Set(contract.CSRFHeader, f.sessions.csrfOf("eve"))
		slow.Go(func() {
			f.ServeHTTP(httptest.NewRecorder(), r)
			_ = body.Close()
		})

		_, _ = io.WriteString(writer, "{")
	}

	for path, method := range map[string]string{contract.PathWorklist: http.MethodGet, contract.PathAction: http.MethodPost} {
		if w := f.do(t, method, contract.Prefix+path, "{}", "Authorization", "Bearer ann", contract.CSRFHeader, f.sessions.csrfOf("ann")); w.Code == http.StatusTooManyRequests {
			t.Errorf("%s %s beside %d slow requests of another person: status %d, %s, want it served", method, path, len(writers), w.Code, w.Body)
		}
	}

	for _, writer := range writers {
		_ = writer.Close()
	}

	slow.Wait()
}

// stalledWriter is a client that does not read the answer until it is released.
type stalledWriter struct {
	*httptest.ResponseRecorder
	writing chan<- struct{}
	release <-chan struct{}
}

func (w stalledWriter) Write(b []byte) (int, error) {
	w.writing <- struct{}{}
	<-w.release
	return w.ResponseRecorder.Write(b)
}

// TestSlowReadersTakeNoPlace checks that clients which do not read their answers leave the places of requests to others.
func TestSlowReadersTakeNoPlace(t *testing.T) {
	rights := []string{"ann list recommendations "}
	for i := range 2 * maxConcurrent / maxPersonalPlaces {
		rights = append(rights, fmt.Sprintf("reader-%d list recommendations ", i))
	}

	f := setupCluster(t, rights...)
	writing := make(chan struct{})
	release := make(chan struct{})
	var slow sync.WaitGroup
	for i := range 2 * maxConcurrent {
		path := contract.Prefix + contract.PathWorklist
		switch i % 3 {
		case 0:
			path = "/main.js"
		case 1:
			path = gocranePrefix + "/cluster"
		}

		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+address+path, http.NoBody)
		r.Header.Set("Authorization", fmt.Sprintf("Bearer reader-%d", i/maxPersonalPlaces))
		slow.Go(func() { f.ServeHTTP(stalledWriter{httptest.NewRecorder(), writing, release}, r) })
		<-writing
	}

	if w := f.do(t, http.MethodGet, contract.Prefix+contract.PathWorklist, "", "Authorization", "Bearer ann"); w.Code != http.StatusOK {
		t.Errorf("GET worklist beside %d clients that do not read: status %d, %s, want 200", 2*maxConcurrent, w.Code, w.Body)
	}

	close(release)
	slow.Wait()
}

// TestSlowRequestsOfOnePerson checks that a person whose requests are slow, by many sessions and by service accounts of one namespace, leaves places
// to others, also on gocrane's routes.
func TestSlowRequestsOfOnePerson(t *testing.T) {
	const account = "system:serviceaccount:team:"
	f := setupCluster(t, "ann list recommendations ", "eve list recommendations ", account+"a list recommendations ", account+"b list recommendations ")
	release := make(chan struct{})
	started := make(chan struct{}, 4*maxConcurrent)
	f.prod.wait = func() {
		started <- struct{}{}
		<-release
	}

	var slow sync.WaitGroup
	answered := make(chan int, 4*maxConcurrent)
	served := 0
	for i := range 2 * maxConcurrent {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+address+contract.Prefix+contract.PathWorklist, http.NoBody)
		r.Header.Set("Authorization", "Bearer "+[]string{"eve", account + "a", account + "b"}[i%3])
		slow.Go(func() {
			w := httptest.NewRecorder()
			f.ServeHTTP(w, r)
			answered <- w.Code
		})

		select {
		case <-started:
			served++
		case code := <-answered:
			if code != http.StatusTooManyRequests {
				t.Errorf("one of many slow requests of an account: status %d, want %d", code, http.StatusTooManyRequests)
			}
		}
	}

	if want := 2 * maxPersonalPlaces; served != want {
		t.Errorf("%d slow requests of two accounts are served, want %d", served, want)
	}

	if w := f.do(t, http.MethodGet, gocranePrefix+"/cluster", "", "Authorization", "Bearer ann"); w.Code != http.StatusOK {
		t.Errorf("GET %s/cluster beside the slow requests of two accounts: status %d, %s, want 200", gocranePrefix, w.Code, w.Body)
	}

	for _, path := range []string{gocranePrefix + "/cluster", contract.Prefix + contract.PathSession} {
		if w := f.do(t, http.MethodGet, path, "", "Authorization", "Bearer eve"); w.Code != http.StatusTooManyRequests {
			t.Errorf("GET %s of an account with slow requests: status %d, want %d", path, w.Code, http.StatusTooManyRequests)
		}
	}
	if w := f.do(t, http.MethodPost, contract.Prefix+contract.PathLogin, `{"token":"eve"}`); w.Code != http.StatusTooManyRequests {
		t.Errorf("a login of an account with slow requests: status %d, want %d", w.Code, http.StatusTooManyRequests)
	}

	close(release)
	slow.Wait()
}

// TestFlood checks that many connections which send nothing, a part of a request, or a login byte by byte keep no other person out, and
// that the server keeps a bounded number of them. CRANE_FLOOD is their number.
func TestFlood(t *testing.T) {
	number := 1000
	if text := os.Getenv("CRANE_FLOOD"); text != "" {
		if _, err := fmt.Sscan(text, &number); err != nil {
			t.Fatal(err)
		}
	}

	f := setupCluster(t, "ann list recommendations ")
	f.config.Clock = clock.RealClock{} // Deadlines are those of connections.
	listener, err := Listen(t.Context(), "127.0.0.1:0", nil)
	if err != nil {
		t.Fatal(err)
	}

	go func() { _ = f.Serve(t.Context(), listener) }()

	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)

	beginnings := []string{"", "G", "GET / HTTP/1.1\r\nHost: a\r\n", "POST " + contract.Prefix + contract.PathLogin + " HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 40000\r\n\r\n{"}
	slowest := time.Duration(0)
	refused := 0
	for i := range number {
		c, err := new(net.Dialer).DialContext(t.Context(), "tcp", listener.Addr().String())
		if err != nil {
			refused++
			continue
		}

		t.Cleanup(func() { _ = c.Close() })
		_, _ = io.WriteString(c, beginnings[i%len(beginnings)])

		const every = 100
		if i%every != 0 {
			continue
		}

		// Another person asks meanwhile, over a new connection.
		start := time.Now()
		client := http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+listener.Addr().String()+contract.Prefix+contract.PathWorklist, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}

		r.Header.Set("Authorization", "Bearer ann")
		answer, err := client.Do(r)
		if err != nil || answer.StatusCode != http.StatusOK {
			t.Fatalf("GET worklist beside %d slow connections: %v, %v, want 200", i, answer, err)
		}

		_ = answer.Body.Close()
		slowest = max(slowest, time.Since(start))
	}

	runtime.GC()
	runtime.ReadMemStats(&after)
	t.Logf("%d connections, %d refused by the machine: slowest answer %s, heap +%.1f MiB (with the clients), %d goroutines", number, refused, slowest, float64(int64(after.HeapInuse)-int64(before.HeapInuse))/(1<<20), runtime.NumGoroutine())

	if n := runtime.NumGoroutine(); n > 4*maxConnections {
		t.Errorf("there are %d goroutines, want those of at most %d connections", n, maxConnections)
	}
}

// TestConnectionsAreBounded checks that the server keeps a bounded number of connections: the next one takes the place of one that waits.
func TestConnectionsAreBounded(t *testing.T) {
	f := setupCluster(t)
	listener, err := Listen(t.Context(), "127.0.0.1:0", nil)
	if err != nil {
		t.Fatal(err)
	}

	go func() { _ = f.Serve(t.Context(), listener) }()

	const timeout = time.Minute
	const connections = maxConnections + 1
	closed := make(chan int, connections)
	for i := range connections {
		c, err := new(net.Dialer).DialContext(t.Context(), "tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}

		t.Cleanup(func() { _ = c.Close() })
		_ = c.SetDeadline(time.Now().Add(timeout))
		_, _ = io.WriteString(c, "GET "+healthPath+" HTTP/1.1\r\nHost: a\r\n\r\n")
		if line, err := bufio.NewReader(c).ReadString('\n'); err != nil || !strings.Contains(line, "200") {
			t.Fatalf("connection %d is answered with %q, %v, want 200", i+1, line, err)
		}

		go func() {
			var late net.Error
			if _, err := io.Copy(io.Discard, c); !errors.As(err, &late) || !late.Timeout() {
				closed <- i + 1
			}
		}()
	}

	// A client may see its answer a moment before the server counts the connection as one that waits, so that it need not be the first one.
	select {
	case number := <-closed:
		if number == connections {
			t.Errorf("connection %d of %d is closed, want the server to close one that waits", number, connections)
		}
	case <-time.After(timeout):
		t.Errorf("%d connections are open after %s, want one of them closed", connections, timeout)
	}
}
