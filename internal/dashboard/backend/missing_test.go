// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package backend

import (
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/utils/clock"

	"crane.io/crane/internal/dashboard"
	"crane.io/crane/internal/dashboard/contract"
)

const dashboardAddress = "127.0.0.1:8090"

// localPage is a browser with a session of a dashboard on loopback.
type localPage struct {
	server *dashboard.Server
	cookie *http.Cookie
	key    string
	csrf   string
}

// openLocal opens the dashboard of a view as `crane dashboard` does.
func openLocal(t testing.TB, v dashboard.Backend) *localPage {
	t.Helper()

	server := dashboard.New(dashboard.Config{
		Mode:     contract.ModeLocal,
		Backends: []dashboard.Backend{v},
		Static:   http.NotFoundHandler(),
		Clock:    clock.RealClock{},
		Audit:    slog.New(slog.NewTextHandler(io.Discard, nil)),
	}, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8090})

	page := &localPage{server: server}
	login := page.get(t, strings.TrimPrefix(server.Link(), "http://"+dashboardAddress))
	if len(login.Result().Cookies()) != 1 {
		t.Fatalf("opening %s: status %d and no session, want one", server.Link(), login.Code)
	}

	page.cookie = login.Result().Cookies()[0]
	_, page.key, _ = strings.Cut(login.Header().Get("Location"), "#key=")
	var session contract.Session
	if err := json.Unmarshal(page.get(t, contract.Prefix+contract.PathSession).Body.Bytes(), &session); err != nil {
		t.Fatalf("reading the session: %v", err)
	}

	page.csrf = session.CSRFToken
	return page
}

// get sends a GET request.
func (p *localPage) get(t testing.TB, path string) *httptest.ResponseRecorder {
	t.Helper()

	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+dashboardAddress+path, http.NoBody)
	if p.cookie != nil {
		r.AddCookie(p.cookie)
		r.Header.Set(contract.SessionKeyHeader, p.key)
	}

	w := httptest.NewRecorder()
	p.server.ServeHTTP(w, r)
	return w
}

// TestDashboardOfMissingWorkload checks that the pages of a workload that does not exist answer with a reason.
func TestDashboardOfMissingWorkload(t *testing.T) {
	view, _ := newFileView(t)
	page := openLocal(t, view)

	for query, want := range map[string]int{
		"?kind=Series&name=missing":                        http.StatusNotFound,
		"?kind=Deployment&name=web":                        http.StatusNotFound,
		"?kind=Series&name=%28":                            http.StatusNotFound,
		"?kind=Series&name=%FF":                            http.StatusBadRequest, // not UTF-8, which regexp does not compile
		"?kind=Series&name=web%00":                         http.StatusNotFound,
		"?kind=%FF&name=web":                               http.StatusBadRequest,
		"?namespace=a&kind=Pod&name=b":                     http.StatusNotFound,
		"?kind=Series&name=" + strings.Repeat("x", 10_000): http.StatusBadRequest,
	} {
		for _, path := range []string{contract.PathWorkload, contract.PathWhatIf} {
			w := page.get(t, contract.Prefix+path+query)
			if w.Code != want || !strings.Contains(w.Body.String(), `"reason"`) {
				t.Errorf("GET %s%.40s: status %d, body %.300s, want %d with a reason", path, query, w.Code, w.Body, want)
			}
		}
	}
}
