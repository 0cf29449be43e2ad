// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package promserver

import (
	"context"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/api"
	v1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/config"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
)

func open(t *testing.T, o Options) *Server {
	t.Helper()

	if o.Dir == "" {
		o.Dir = t.TempDir()
	}

	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})

	return s
}

func client(t *testing.T, s *Server, rt http.RoundTripper) v1.API {
	t.Helper()

	c, err := api.NewClient(api.Config{Address: s.URL(), RoundTripper: rt})
	if err != nil {
		t.Fatal(err)
	}

	return v1.NewAPI(c)
}

func vector(t *testing.T, c v1.API, query string, at time.Time) model.Vector {
	t.Helper()

	v, _, err := c.Query(t.Context(), query, at)
	if err != nil {
		t.Fatalf("query %s: %v, want a vector", query, err)
	}

	return v.(model.Vector)
}

func scalar(t *testing.T, c v1.API, query string, at time.Time) float64 {
	t.Helper()

	v := vector(t, c, query, at)
	if len(v) != 1 {
		t.Fatalf("query %s at %s: %d results, want 1: %v", query, at, len(v), v)
	}

	return float64(v[0].Value)
}

func TestBackfillReadsBack(t *testing.T) {
	start := time.Date(2026, 3, 4, 17, 23, 0, 0, time.UTC)
	grid := Grid{Start: start, End: start.Add(50 * time.Hour), Step: time.Minute}
	counter := 0.0

	series := []Series{
		{Labels: labels.FromStrings("__name__", "wave", "pod", `a"{}`), Fill: func(dst []float64, first int) {
			for i := range dst {
				dst[i] = math.Sin(float64(first + i))
			}
		}},
		{Labels: labels.FromStrings("__name__", "count_total"), Fill: func(dst []float64, _ int) {
			for i := range dst {
				counter += 30
				dst[i] = counter
			}
		}},
		{Labels: labels.FromStrings("__name__", "holes"), Fill: func(dst []float64, first int) {
			for i := range dst {
				dst[i] = 7
				if k := first + i; k > 100 && k < 2000 {
					dst[i] = math.NaN()
				}
				if first+i == 101 {
					dst[i] = StaleMarker()
				}
			}
		}},
		{Labels: labels.FromStrings("__name__", "nothing"), Fill: func(dst []float64, _ int) {
			for i := range dst {
				dst[i] = math.NaN()
			}
		}},
	}

	s := open(t, Options{})
	url := s.URL()

	stats, err := s.Backfill(t.Context(), grid, series)
	if err != nil {
		t.Fatal(err)
	}

	if want := uint64(3000*2 + 3000 - 1899 + 1); stats.Samples != want || stats.Series != 3 || stats.Blocks != 3 {
		t.Errorf("Backfill = %+v, want %d samples, 3 series, 3 blocks", stats, want)
	}
	if s.URL() != url {
		t.Errorf("URL() after Backfill = %s, want %s as before", s.URL(), url)
	}

	c := client(t, s, nil)
	for _, i := range []int{0, 1, 119, 120, 396, 397, 2999} {
		at := start.Add(time.Duration(i) * time.Minute)
		if got := scalar(t, c, "wave", at); got != math.Sin(float64(i)) {
			t.Errorf("wave at %d: %v, want %v", i, got, math.Sin(float64(i)))
		}
	}

	at := start.Add(49 * time.Hour)
	if got := scalar(t, c, "rate(count_total[2h])", at); math.Abs(got-0.5) > 1e-9 {
		t.Errorf("rate %v, want 0.5 across blocks", got)
	}
	if v := vector(t, c, "holes", start.Add(102*time.Minute)); len(v) != 0 {
		t.Errorf("query of a series after its staleness marker = %v, want none", v)
	}
	if v := vector(t, c, "nothing", at); len(v) != 0 {
		t.Errorf("query of a series of gaps = %v, want none", v)
	}

	r, _, err := c.QueryRange(t.Context(), "wave", v1.Range{Start: start, End: grid.End, Step: 5 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}

	if m := r.(model.Matrix); len(m) != 1 || len(m[0].Values) != 601 || string(m[0].Metric["pod"]) != `a"{}` {
		t.Errorf("range query = %v, want one series with 601 values", m)
	}
}

func TestBackfillThenLive(t *testing.T) {
	now := time.Now().Truncate(time.Minute)
	grid := Grid{Start: now.Add(-3 * time.Hour), End: now, Step: time.Minute}
	lset := labels.FromStrings("__name__", "total")
	v := 0.0
	fill := func(dst []float64, _ int) {
		for i := range dst {
			v += 60
			dst[i] = v
		}
	}

	dir := t.TempDir()
	s := open(t, Options{Dir: dir})
	if _, err := s.Backfill(t.Context(), grid, []Series{{Labels: lset, Fill: fill}}); err != nil {
		t.Fatal(err)
	}

	v += 45 // the first live sample is a minute after the last backfilled one
	for i := range 8 {
		v += 15
		if err := s.Append(t.Context(), "test", now.Add(time.Duration(i)*15*time.Second), []Sample{{lset, v}}); err != nil {
			t.Fatal(err)
		}
	}

	at := now.Add(105 * time.Second)
	c := client(t, s, nil)
	if got := scalar(t, c, "increase(total[10m])", at); math.Abs(got-600) > 1 {
		t.Errorf("increase %v over the seam, want about 600", got)
	}

	if got := scalar(t, c, "resets(total[3h])", at); got != 0 {
		t.Errorf("resets at the seam = %v, want 0", got)
	}
	if _, err := s.Backfill(t.Context(), grid, []Series{{Labels: lset, Fill: fill}}); err == nil || !strings.Contains(err.Error(), "overlaps") {
		t.Errorf("Backfill over existing samples = %v, want an error that says it overlaps", err)
	}

	// The gap of a restart is backfilled after the samples of the head, without loss.
	last, ok := s.LastSample()
	if !ok || !last.Equal(at) {
		t.Fatalf("LastSample() = %s, %v; want %s", last, ok, at)
	}

	later := Grid{Start: now.Add(2 * time.Minute), End: now.Add(time.Hour), Step: time.Minute}
	if _, err := s.Backfill(t.Context(), later, []Series{{Labels: lset, Fill: fill}}); err != nil {
		t.Fatal(err)
	}

	if got := scalar(t, c, "count_over_time(total[5h])", now.Add(time.Hour)); got != 180+8+58 {
		t.Errorf("%v samples after filling the gap, want %d", got, 180+8+58)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	s = open(t, Options{Dir: dir})
	if got := scalar(t, client(t, s, nil), "count_over_time(total[5h])", now.Add(time.Hour)); got != 180+8+58 {
		t.Errorf("%v samples after reopening, want %d", got, 180+8+58)
	}
}

func TestAppendCountsAndEnds(t *testing.T) {
	s := open(t, Options{})
	now := time.Now().Truncate(time.Second)
	a := labels.FromStrings("__name__", "x", "pod", "a")
	b := labels.FromStrings("__name__", "x", "pod", "b")

	at := func(sec int, batch ...Sample) {
		t.Helper()

		if err := s.Append(t.Context(), "kubelet", now.Add(time.Duration(sec)*time.Second), batch); err != nil {
			t.Fatal(err)
		}
	}

	at(0, Sample{a, 1}, Sample{b, 2})
	at(15, Sample{a, 3})

	c := client(t, s, nil)
	if v := vector(t, c, "x", now.Add(16*time.Second)); len(v) != 1 || v[0].Metric["pod"] != "a" {
		t.Errorf("query after b ended = %v, want a only", v)
	}

	at(10, Sample{a, 4})
	at(15, Sample{a, 5})
	at(-4*3600, Sample{a, 5})

	got := s.AppendStats()
	want := AppendStats{Appended: 4, Stale: 1, OutOfOrder: 1, Duplicate: 1, TooOld: 1}
	if got != want {
		t.Errorf("AppendStats() = %+v, want %+v", got, want)
	}
	if err := s.Append(t.Context(), "kubelet", now.Add(time.Minute), []Sample{{labels.FromStrings("__name__", "x", "a", "1", "a", "2"), 1}}); err == nil {
		t.Error("Append with a duplicate label: no error, want one")
	}
}

func TestStopAndStart(t *testing.T) {
	s := open(t, Options{})
	now := time.Now()
	lset := labels.FromStrings("__name__", "x")
	add := func(sec int) {
		t.Helper()

		if err := s.Append(t.Context(), "j", now.Add(time.Duration(sec)*time.Second), []Sample{{lset, 1}}); err != nil {
			t.Fatal(err)
		}
	}

	add(0)
	url := s.URL()
	c := client(t, s, nil)

	for range 2 {
		if err := s.Stop(); err != nil {
			t.Fatal(err)
		}
	}

	if _, _, err := c.Query(t.Context(), "x", now); err == nil {
		t.Error("query of a stopped server: no error, want one")
	}

	add(15)
	for range 2 {
		if err := s.Start(); err != nil {
			t.Fatal(err)
		}
	}

	add(30)
	if s.URL() != url {
		t.Errorf("URL() after Start = %s, want %s as before", s.URL(), url)
	}
	if got := scalar(t, c, "count_over_time(x[5m])", now.Add(time.Minute)); got != 2 {
		t.Errorf("%v samples, want the 2 appended while it ran", got)
	}
	if st := s.AppendStats(); st.Dropped != 1 {
		t.Errorf("AppendStats().Dropped = %d, want 1", st.Dropped)
	}

	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	if err := s.Start(); err == nil {
		t.Error("Start of a closed server: no error, want one")
	}
}

func TestHTTPAPI(t *testing.T) {
	s := open(t, Options{
		ScrapeInterval: 45 * time.Second,
		Targets:        []Target{{Job: "kubelet", Instance: "node-0:10250", Metadata: []Metadata{{"x_total", "counter", "Things."}}}},
		Rules:          "groups:\n- name: g\n  interval: 1h\n  rules:\n  - record: y\n    expr: x_total * 2\n",
	})

	now := time.Now()
	if err := s.Append(t.Context(), "kubelet", now, []Sample{{labels.FromStrings("__name__", "x_total", "node", "n"), 1}}); err != nil {
		t.Fatal(err)
	}

	c := client(t, s, nil)
	ctx := t.Context()
	checks := map[string]func() (bool, error){
		"buildinfo": func() (bool, error) { b, err := c.Buildinfo(ctx); return b.Version == version, err },
		"config": func() (bool, error) {
			b, err := c.Config(ctx)
			return strings.Contains(b.YAML, "scrape_interval: 45s"), err
		},
		"flags":       func() (bool, error) { b, err := c.Flags(ctx); return b["query.max-samples"] == "50000000", err },
		"runtimeinfo": func() (bool, error) { b, err := c.Runtimeinfo(ctx); return b.ReloadConfigSuccess, err },
		"targets": func() (bool, error) {
			b, err := c.Targets(ctx)
			return len(b.Active) == 1 && b.Active[0].Health == "up" && b.Active[0].Labels["job"] == "kubelet", err
		},
		"metadata": func() (bool, error) {
			b, err := c.Metadata(ctx, "x_total", "")
			return len(b["x_total"]) == 1 && b["x_total"][0].Type == v1.MetricTypeCounter, err
		},
		"labels": func() (bool, error) {
			b, _, err := c.LabelNames(ctx, nil, now.Add(-time.Hour), now)
			return len(b) == 2, err
		},
		"label values": func() (bool, error) {
			b, _, err := c.LabelValues(ctx, "node", nil, now.Add(-time.Hour), now)
			return len(b) == 1 && b[0] == "n", err
		},
		"series": func() (bool, error) {
			b, _, err := c.Series(ctx, []string{"x_total"}, now.Add(-time.Hour), now)
			return len(b) == 1, err
		},
		"rules":         func() (bool, error) { b, err := c.Rules(ctx, nil); return len(b.Groups) == 1, err },
		"alerts":        func() (bool, error) { b, err := c.Alerts(ctx); return len(b.Alerts) == 0, err },
		"alertmanagers": func() (bool, error) { b, err := c.AlertManagers(ctx); return len(b.Active) == 0, err },
		"tsdb":          func() (bool, error) { b, err := c.TSDB(ctx); return b.HeadStats.NumSeries == 1, err },
	}

	for name, check := range checks {
		if ok, err := check(); err != nil || !ok {
			t.Errorf("API %s: as expected %v, error %v; want true and none", name, ok, err)
		}
	}

	for path, want := range map[string]string{"/-/healthy": "Healthy", "/-/ready": "Ready", "/metrics": "prometheus_tsdb_head_series 1"} {
		if code, body := get(t, s.URL()+path); code != 200 || !strings.Contains(body, want) {
			t.Errorf("GET %s: status %d, body %.200s; want 200 and a body with %q", path, code, body, want)
		}
	}

	if _, _, err := c.Query(ctx, "x_total{", now); err == nil || !strings.Contains(err.Error(), "parse error") {
		t.Errorf("query with a syntax error = %v, want a parse error", err)
	}
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()

	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}

	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()

	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}

	return resp.StatusCode, string(body)
}

// requireBasicAuth returns a middleware that responds with 401 to requests without this user and password.
func requireBasicAuth(user, password string) func(http.Handler) http.Handler {
	return requireAuth(func(r *http.Request) bool {
		u, p, ok := r.BasicAuth()
		return ok && u == user && p == password
	}, `Basic realm="prometheus"`)
}

// requireBearer returns a middleware that responds with 401 to requests without this bearer token.
func requireBearer(token string) func(http.Handler) http.Handler {
	return requireAuth(func(r *http.Request) bool { return r.Header.Get("Authorization") == "Bearer "+token }, "Bearer")
}

func requireAuth(allowed func(*http.Request) bool, challenge string) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !allowed(r) {
				w.Header().Set("WWW-Authenticate", challenge)
				http.Error(w, "Unauthorized", http.StatusUnauthorized)
				return
			}

			next.ServeHTTP(w, r)
		})
	}
}

func TestMiddleware(t *testing.T) {
	basic := open(t, Options{Middleware: requireBasicAuth("u", "p")})
	bearer := open(t, Options{Middleware: requireBearer("tok")})
	for _, tc := range []struct {
		name string
		s    *Server
		rt   http.RoundTripper
		ok   bool
	}{
		{"basic", basic, config.NewBasicAuthRoundTripper(config.NewInlineSecret("u"), config.NewInlineSecret("p"), http.DefaultTransport), true},
		{"basic wrong", basic, config.NewBasicAuthRoundTripper(config.NewInlineSecret("u"), config.NewInlineSecret("q"), http.DefaultTransport), false},
		{"basic none", basic, nil, false},
		{"bearer", bearer, config.NewAuthorizationCredentialsRoundTripper("Bearer", config.NewInlineSecret("tok"), http.DefaultTransport), true},
		{"bearer none", bearer, nil, false},
	} {
		_, err := client(t, tc.s, tc.rt).Buildinfo(t.Context())
		if (err == nil) != tc.ok {
			t.Errorf("%s: Buildinfo = %v, want success: %t", tc.name, err, tc.ok)
		}
	}
}

func TestTLS(t *testing.T) {
	pair := httptest.NewTLSServer(http.NotFoundHandler())
	defer pair.Close()

	s := open(t, Options{TLS: pair.TLS.Clone()})
	if !strings.HasPrefix(s.URL(), "https://") {
		t.Errorf("URL() with TLS = %s, want https", s.URL())
	}
	if _, err := client(t, s, pair.Client().Transport).Buildinfo(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := client(t, s, nil).Buildinfo(t.Context()); err == nil {
		t.Error("Buildinfo without the CA: no error, want one for the untrusted certificate")
	}
}

func TestRules(t *testing.T) {
	s := open(t, Options{Rules: "groups:\n- name: g\n  interval: 1s\n  rules:\n  - record: doubled\n    expr: x * 2\n"})
	if err := s.Append(t.Context(), "j", time.Now(), []Sample{{labels.FromStrings("__name__", "x"), 21}}); err != nil {
		t.Fatal(err)
	}

	c := client(t, s, nil)
	deadline := time.After(time.Minute)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()

	for len(vector(t, c, "doubled == 42", time.Now())) == 0 {
		select {
		case <-deadline:
			t.Fatal("query doubled == 42 is empty after a minute, want the result of the rule")
		case <-tick.C:
		}
	}

	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}

	if groups := s.RuleGroups(); len(groups) != 0 {
		t.Errorf("RuleGroups() of a stopped server has %d groups, want 0", len(groups))
	}
}

func TestRefusals(t *testing.T) {
	for name, o := range map[string]Options{
		"no dir":    {},
		"negative":  {Dir: t.TempDir(), Timeout: -1},
		"listen":    {Dir: t.TempDir(), Listen: "nowhere"},
		"bad rules": {Dir: t.TempDir(), Rules: "groups: {"},
	} {
		if s, err := Open(o); err == nil {
			t.Errorf("Open with %s: no error, want one", name)
			s.Close()
		}
	}

	now := time.Now()
	good := Grid{Start: now.Add(-time.Hour), End: now, Step: time.Minute}
	one := Series{Labels: labels.FromStrings("__name__", "a"), Fill: func([]float64, int) {}}

	nameless := Series{Labels: labels.FromStrings("a", "b"), Fill: func([]float64, int) {}}
	for name, tc := range map[string]struct {
		grid   Grid
		series []Series
	}{
		"empty grid": {Grid{Start: now, End: now, Step: time.Minute}, []Series{one}},
		"no step":    {Grid{Start: good.Start, End: now}, []Series{one}},
		"twice":      {good, []Series{one, one}},
		"nameless":   {good, []Series{nameless}},
	} {
		if _, err := WriteBlocks(t.Context(), t.TempDir(), tc.grid, tc.series); err == nil {
			t.Errorf("WriteBlocks with %s: no error, want one", name)
		}
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()

	dir := t.TempDir()
	if _, err := WriteBlocks(ctx, dir, good, []Series{one}); err == nil {
		t.Error("WriteBlocks with a canceled context: no error, want one")
	}
	if n, err := dirSize(dir); err != nil || n != 0 {
		t.Errorf("size of the directory after the cancellation = %d, error %v; want 0", n, err)
	}
}
