// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"crane.io/crane/internal/dashboard/contract"
)

// fakeBackend answers with fixed values.
type fakeBackend struct {
	Backend
	name  string
	list  *contract.Worklist
	err   error
	acted []string
	// cluster is set if the last overview was for a person who may read the cluster.
	cluster bool
	wait    func()
}

func (f *fakeBackend) Name() string { return f.name }
func (f *fakeBackend) Cluster(context.Context) contract.Cluster {
	return contract.Cluster{Name: f.name, Currency: "USD"}
}

func (f *fakeBackend) Worklist(context.Context) (*contract.Worklist, error) {
	if f.wait != nil {
		f.wait()
	}

	return f.list, f.err
}

func (f *fakeBackend) Overview(ctx context.Context, list *contract.Worklist) (contract.Overview, error) {
	p, _ := PersonOf(ctx)
	f.cluster = p.Cluster
	return Summarize(list, math.Inf(1)), f.err
}

func (f *fakeBackend) Act(_ context.Context, action string, dryRun bool, items []contract.Item) ([]contract.ItemResult, error) {
	var out []contract.ItemResult
	for _, i := range items {
		f.acted = append(f.acted, action+" "+i.Name)
		out = append(out, contract.ItemResult{Item: i, OK: true})
	}

	return out, f.err
}

type fixture struct {
	*Server
	clock  *clocktesting.FakeClock
	prod   *fakeBackend
	test   *fakeBackend
	audit  bytes.Buffer
	cookie *http.Cookie
	csrf   string
	key    string
}

const address = "127.0.0.1:8090"

func setup(t *testing.T) *fixture {
	t.Helper()

	saving := 12.5
	rows := []contract.Row{{Cluster: "prod", Namespace: "shop", Name: "web-resource-1", Type: "Resource", Kind: "Deployment", Workload: "web", State: contract.StateReady, SavingPerMonth: &saving}}
	f := &fixture{clock: clocktesting.NewFakeClock(time.Unix(1_700_000_000, 0)), prod: &fakeBackend{name: "prod", list: NewWorklist(rows, "USD", contract.Origin{Source: "test"})}}
	f.test = &fakeBackend{name: "test", list: NewWorklist([]contract.Row{{Cluster: "test", Workload: "db"}}, "USD", contract.Origin{Source: "test"})}
	f.Server = New(Config{
		Mode: contract.ModeLocal, Backends: []Backend{f.prod, f.test}, User: "ann", Clock: f.clock,
		Static: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "page") }),
		Audit:  slog.New(slog.NewTextHandler(&f.audit, nil)),
	}, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8090})

	return f
}

// login opens the printed address.
func (f *fixture) login(t *testing.T) {
	t.Helper()

	w := f.do(t, http.MethodGet, strings.TrimPrefix(f.Link(), "http://"+address), "")
	if w.Code != http.StatusSeeOther || len(w.Result().Cookies()) != 1 {
		t.Fatalf("opening the link: status %d, cookies %v, want a redirect with 1 cookie", w.Code, w.Result().Cookies())
	}

	f.cookie = w.Result().Cookies()[0]
	f.key = keyOf(t, w)
	var s contract.Session
	f.get(t, contract.PathSession, &s)
	f.csrf = s.CSRFToken
}

// keyOf returns the key of the session in the address to which the link redirects.
func keyOf(t *testing.T, w *httptest.ResponseRecorder) string {
	t.Helper()

	_, key, ok := strings.Cut(w.Header().Get("Location"), "#key=")
	if !ok {
		t.Fatalf("the link redirects to %q, want the key of the session in its fragment", w.Header().Get("Location"))
	}

	return key
}

func (f *fixture) do(t *testing.T, method, path, body string, headers ...string) *httptest.ResponseRecorder {
	t.Helper()

	r := httptest.NewRequestWithContext(t.Context(), method, "http://"+address+path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")

	if f.cookie != nil {
		r.AddCookie(f.cookie)
	}
	if f.key != "" {
		r.Header.Set(contract.SessionKeyHeader, f.key)
	}

	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		}
		r.Header.Set(headers[i], headers[i+1])
	}

	w := httptest.NewRecorder()
	f.ServeHTTP(w, r)
	return w
}

func (f *fixture) get(t *testing.T, path string, into any) *httptest.ResponseRecorder {
	t.Helper()

	w := f.do(t, http.MethodGet, contract.Prefix+path, "")
	if err := json.Unmarshal(w.Body.Bytes(), into); err != nil {
		t.Fatalf("%s: status %d: %v, want JSON: %s", path, w.Code, err, w.Body)
	}

	return w
}

func reasonOf(t *testing.T, w *httptest.ResponseRecorder) contract.Reason {
	t.Helper()

	var body contract.ErrorBody
	if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
		t.Fatalf("status %d without an error body, want one: %s", w.Code, w.Body)
	}

	return body.Error.Reason
}

// TestSession checks that the token opens one session, that its cookie is protected, and that it ends.
func TestSession(t *testing.T) {
	f := setup(t)
	var s contract.Session
	if w := f.get(t, contract.PathSession, &s); w.Code != http.StatusOK || s.Authenticated || s.CSRFToken != "" || len(s.Clusters) != 0 {
		t.Errorf("session before the login: status %d, %+v, want no cluster and no token", w.Code, s)
	}

	link := strings.TrimPrefix(f.Link(), "http://"+address)
	if w := f.do(t, http.MethodGet, "/?token=wrong", ""); len(w.Result().Cookies()) != 0 {
		t.Error("a wrong token opens a session, want none")
	}

	w := f.do(t, http.MethodGet, "/%5Cevil.example/x"+strings.TrimPrefix(link, "/")+"&q=1", "")
	f.key = keyOf(t, w)
	if to := w.Header().Get("Location"); to != "/evil.example/x?q=1#key="+f.key {
		t.Errorf("the link redirects to %q, want a path of this server", to)
	}

	cookies := w.Result().Cookies()
	if len(cookies) != 1 || !cookies[0].HttpOnly || cookies[0].SameSite != http.SameSiteStrictMode {
		t.Fatalf("cookies = %+v, want 1 that scripts cannot read, for this site", cookies)
	}

	if w := f.do(t, http.MethodGet, link, ""); len(w.Result().Cookies()) != 0 {
		t.Error("the token opens a second session, want none")
	}

	f.cookie = cookies[0]
	f.get(t, contract.PathSession, &s)

	if !s.Authenticated || s.User != "ann" || s.CSRFToken == "" || len(s.Clusters) != 2 {
		t.Errorf("session = %+v, want that of ann with 2 clusters and a CSRF token", s)
	}

	f.clock.Step(sessionLength)
	if w := f.do(t, http.MethodGet, contract.Prefix+contract.PathWorklist, ""); w.Code != http.StatusUnauthorized || reasonOf(t, w) != contract.ReasonUnauthenticated {
		t.Errorf("worklist of an expired session: status %d, want %d", w.Code, http.StatusUnauthorized)
	}
}

// TestCookieOfAnotherPort checks that the session has the port in the name of its cookie, and that the same value under another name opens none:
// a browser sends the cookies of all ports of 127.0.0.1 to each of them.
func TestCookieOfAnotherPort(t *testing.T) {
	f := setup(t)
	f.login(t)

	if want := "crane-dashboard-8090"; f.cookie.Name != want {
		t.Errorf("the cookie is called %s, want %s", f.cookie.Name, want)
	}

	for name, want := range map[string]int{"crane-dashboard-8090": 200, "crane-dashboard-8091": 401, "crane-dashboard": 401, "__Host-crane-dashboard": 401} {
		f.cookie.Name = name
		if w := f.do(t, http.MethodGet, contract.Prefix+contract.PathWorklist, ""); w.Code != want {
			t.Errorf("GET worklist with the cookie %s: status %d, want %d", name, w.Code, want)
		}
	}

	// What a server on another port gets from the browser, it can send to this one.
	f.cookie.Name = "crane-dashboard-8090"
	key := f.key
	for _, stolen := range []string{"", "x", key + "x"} {
		f.key = stolen
		if w := f.do(t, http.MethodGet, contract.Prefix+contract.PathWorklist, ""); w.Code != http.StatusUnauthorized {
			t.Errorf("GET worklist with the cookie and the key %q: status %d, want %d", stolen, w.Code, http.StatusUnauthorized)
		}

		var s contract.Session
		if f.get(t, contract.PathSession, &s); s.Authenticated || s.CSRFToken != "" {
			t.Errorf("GET session with the cookie and the key %q = %+v, want no session", stolen, s)
		}
	}
}

// TestLogout checks that the session ends on the server.
func TestLogout(t *testing.T) {
	f := setup(t)
	f.login(t)

	if w := f.do(t, http.MethodPost, contract.Prefix+contract.PathLogout, "", contract.CSRFHeader, f.csrf); w.Code != http.StatusOK {
		t.Fatalf("logout: status %d, want %d", w.Code, http.StatusOK)
	}

	if w := f.do(t, http.MethodGet, contract.Prefix+contract.PathWorklist, ""); w.Code != http.StatusUnauthorized {
		t.Errorf("worklist after the logout: status %d, want %d", w.Code, http.StatusUnauthorized)
	}
}

// TestAccess checks that every route but the session needs one, that writes need its token, and that other hosts are rejected.
func TestAccess(t *testing.T) {
	f := setup(t)
	reads := []string{
		contract.PathOverview, contract.PathWorklist, contract.PathWorkload, contract.PathSeries, contract.PathWhatIf, contract.PathAutoscaling,
		contract.PathForecast, contract.PathNodes, contract.PathCost, contract.PathRules, contract.PathHealth,
	}
	writes := []string{contract.PathExport, contract.PathAction, contract.PathRules, contract.PathLogout}

	for _, path := range reads {
		if w := f.do(t, http.MethodGet, contract.Prefix+path, ""); w.Code != http.StatusUnauthorized {
			t.Errorf("GET %s without a session: status %d, want %d", path, w.Code, http.StatusUnauthorized)
		}
	}

	for _, path := range writes {
		if w := f.do(t, http.MethodPost, contract.Prefix+path, "{}"); w.Code != http.StatusUnauthorized {
			t.Errorf("POST %s without a session: status %d, want %d", path, w.Code, http.StatusUnauthorized)
		}
	}

	f.login(t)
	for _, path := range writes {
		for _, token := range []string{"", "wrong"} {
			if w := f.do(t, http.MethodPost, contract.Prefix+path, "{}", contract.CSRFHeader, token); w.Code != http.StatusForbidden || reasonOf(t, w) != contract.ReasonCSRF {
				t.Errorf("POST %s with the token %q: status %d, want %d", path, token, w.Code, http.StatusForbidden)
			}
		}
	}

	for host, want := range map[string]int{"evil.example": 403, "127.0.0.1:8091": 403, "localhost:8090": 200, address: 200} {
		if w := f.do(t, http.MethodGet, contract.Prefix+contract.PathWorklist, "", "Host", host); w.Code != want {
			t.Errorf("host %s: status %d, want %d", host, w.Code, want)
		}
	}

	if w := f.do(t, http.MethodGet, "/workload/prod/shop", ""); !strings.Contains(w.Header().Get("Content-Security-Policy"), "default-src 'none'; script-src 'self'") || w.Body.String() != "page" {
		t.Errorf("page = %s with %v, want the static page with its policy", w.Body, w.Header())
	}
	if len(f.prod.acted) != 0 {
		t.Errorf("rejected requests acted: %v, want no action", f.prod.acted)
	}
}

// TestBounds checks the limits on concurrent requests, bodies and parameters.
func TestBounds(t *testing.T) {
	f := setup(t)
	f.login(t)
	entered := make(chan struct{})
	release := make(chan struct{})

	f.prod.wait = func() { entered <- struct{}{}; <-release }
	done := make(chan int, maxConcurrent)
	for range maxConcurrent {
		go func() { done <- f.do(t, http.MethodGet, contract.Prefix+contract.PathWorklist, "").Code }()
		<-entered
	}

	if w := f.do(t, http.MethodGet, contract.Prefix+contract.PathSession, ""); w.Code != http.StatusTooManyRequests {
		t.Errorf("one request too many: status %d, want %d", w.Code, http.StatusTooManyRequests)
	}

	close(release)
	for range maxConcurrent {
		if code := <-done; code != http.StatusOK {
			t.Errorf("a waiting request: status %d, want %d", code, http.StatusOK)
		}
	}

	f.prod.wait = nil
	big := `{"format":"csv","items":[{"cluster":"` + strings.Repeat("x", maxBody) + `"}]}`
	if w := f.do(t, http.MethodPost, contract.Prefix+contract.PathExport, big, contract.CSRFHeader, f.csrf); w.Code != http.StatusRequestEntityTooLarge {
		t.Errorf("export with a large body: status %d, want %d", w.Code, http.StatusRequestEntityTooLarge)
	}

	for query, want := range map[string]int{
		"/series?kind=D&name=a&from=NaN": 400, "/series?kind=D&name=a&from=5&to=4": 400, "/series?kind=D&name=a&points=1e9": 400, "/series?name=a": 400,
		"/whatif?kind=D&name=a&cpuPercentile=2": 400, "/whatif?kind=D&name=a&target=x": 400, "/cost?window=1s": 400, "/worklist?cluster=none": 404,
	} {
		if w := f.do(t, http.MethodGet, contract.Prefix+query, ""); w.Code != want {
			t.Errorf("%s: status %d, want %d: %s", query, w.Code, want, w.Body)
		}
	}
}

// TestWorklist checks compression, the tag, the merge of clusters, and that one without an answer does not hide the others.
func TestWorklist(t *testing.T) {
	f := setup(t)
	for range 200 {
		f.prod.list.Rows = append(f.prod.list.Rows, f.prod.list.Rows[0])
	}

	f.login(t)
	w := f.do(t, http.MethodGet, contract.Prefix+contract.PathWorklist, "", "Accept-Encoding", "gzip")
	z, err := gzip.NewReader(w.Body)
	if err != nil {
		t.Fatal(err)
	}

	var list contract.Worklist
	if err := json.NewDecoder(z).Decode(&list); err != nil || len(list.Rows) != 202 {
		t.Fatalf("worklist of both clusters: %v, %d rows, want 202", err, len(list.Rows))
	}

	tag := w.Header().Get("ETag")
	if w := f.do(t, http.MethodGet, contract.Prefix+contract.PathWorklist, "", "If-None-Match", tag); w.Code != http.StatusNotModified || w.Body.Len() != 0 {
		t.Errorf("an unchanged worklist: status %d, %d bytes, want %d without a body", w.Code, w.Body.Len(), http.StatusNotModified)
	}

	f.test.list = NewWorklist([]contract.Row{{Cluster: "test", Workload: "other"}}, "USD", contract.Origin{})
	if w := f.do(t, http.MethodGet, contract.Prefix+contract.PathWorklist, "", "If-None-Match", tag); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "other") {
		t.Errorf("a changed worklist: status %d, want %d with the new row", w.Code, http.StatusOK)
	}

	f.test.err = errors.New("no route to host")
	f.get(t, contract.PathWorklist, &list)

	if len(list.Rows) != 201 || len(list.Problems) != 1 || list.Problems[0].Cluster != "test" {
		t.Errorf("%d rows, problems %+v, want 201 and the problem of test", len(list.Rows), list.Problems)
	}
	if w := f.do(t, http.MethodGet, contract.Prefix+contract.PathWorklist+"?cluster=test", ""); w.Code != http.StatusInternalServerError {
		t.Errorf("the failed cluster alone: status %d, want %d", w.Code, http.StatusInternalServerError)
	}
}

// TestAction checks that actions reach their cluster and are recorded, and that a dry run is not.
func TestAction(t *testing.T) {
	f := setup(t)
	f.login(t)
	body := `{"action":"adopt","dryRun":true,"items":[{"cluster":"prod","namespace":"shop","name":"a"},{"cluster":"test","namespace":"shop","name":"b"}]}`

	var result contract.ActionResult
	w := f.do(t, http.MethodPost, contract.Prefix+contract.PathAction, body, contract.CSRFHeader, f.csrf)
	if err := json.Unmarshal(w.Body.Bytes(), &result); err != nil || len(result.Results) != 2 || !result.DryRun || f.audit.Len() != 0 {
		t.Fatalf("dry run: %v, want 2 results and no line in the log: %s %s", err, w.Body, f.audit.String())
	}

	f.test.err = errors.New("no route to host")
	w = f.do(t, http.MethodPost, contract.Prefix+contract.PathAction, strings.Replace(body, "true", "false", 1), contract.CSRFHeader, f.csrf)
	if log := f.audit.String(); w.Code != http.StatusOK || !strings.Contains(log, "user=ann action=adopt cluster=prod namespace=shop recommendation=a result=ok") || !strings.Contains(log, "no route to host") {
		t.Errorf("adopt: status %d, want %d and a line for each result in the log: %s", w.Code, http.StatusOK, log)
	}

	for _, bad := range []string{`{"action":"delete","items":[{"cluster":"prod"}]}`, `{"action":"adopt","items":[]}`, `{"action":"adopt","more":1}`, `{`, ``} {
		if w := f.do(t, http.MethodPost, contract.Prefix+contract.PathAction, bad, contract.CSRFHeader, f.csrf); w.Code != 400 && w.Code != 422 {
			t.Errorf("POST action %s: status %d, want 400 or 422", bad, w.Code)
		}
	}

	if w := f.do(t, http.MethodPost, contract.Prefix+contract.PathAction, body, contract.CSRFHeader, f.csrf, "Content-Type", "text/plain"); w.Code != 400 {
		t.Errorf("a form of another page: status %d, want 400", w.Code)
	}
}
