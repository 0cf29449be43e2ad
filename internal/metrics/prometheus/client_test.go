// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"crane.io/crane/internal/metrics"
)

const emptyVector = `{"status":"success","data":{"resultType":"vector","result":[]}}`

// serve handles every request with the handler and counts the requests.
func serve(t *testing.T, h http.HandlerFunc) (address string, requests *atomic.Int64) {
	t.Helper()

	requests = &atomic.Int64{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		h(w, r)
	}))
	t.Cleanup(s.Close)

	return s.URL, requests
}

// impatient records the delays between attempts instead of waiting.
func impatient(s *Source) *[]time.Duration {
	pauses := &[]time.Duration{}
	s.client.wait = func(_ context.Context, d time.Duration) error {
		*pauses = append(*pauses, d)
		return nil
	}

	return pauses
}

func answerWith(status int, contentType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(status)
		io.WriteString(w, body)
	}
}

// TestPublicMessageOfConnections checks that the public message of a connection that fails, or that its caller ends, names no host.
func TestPublicMessageOfConnections(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	address, _ := serve(t, func(http.ResponseWriter, *http.Request) { cancel() })
	for at, c := range map[string]struct {
		ctx  context.Context
		want string
	}{
		"http://127.0.0.1:1":                {t.Context(), "Prometheus cannot be reached"},
		"http://prometheus.example.invalid": {t.Context(), "Prometheus cannot be reached"},
		address:                             {ended, "the query of Prometheus was ended: context canceled"},
	} {
		s := newSource(t, at, func(*Config) {})
		impatient(s)

		_, err := s.Instant(c.ctx, "up", time.Unix(1, 0))
		if err == nil || !strings.Contains(err.Error(), strings.TrimPrefix(at, "http://")) {
			t.Errorf("Instant at %s: error %v, want one with the address", at, err)
		}
		if got := metrics.PublicMessage(fmt.Errorf("series up: %w", err)); got != c.want {
			t.Errorf("%s: public message %q, want %q", at, got, c.want)
		}
	}
}

func TestBadAnswersGiveClearErrors(t *testing.T) {
	const js, html = "application/json", "text/html; charset=utf-8"
	for _, c := range []struct {
		name     string
		handler  http.HandlerFunc
		kind     ErrorKind
		attempts int64
		want     []string
	}{
		{"401", answerWith(401, "text/plain", "Unauthorized"), Denied, 1, []string{"status 401", "bearer token"}},
		{"401 of a server with tenants", answerWith(401, "text/plain", "no org id"), Denied, 1, []string{"status 401", "X-Scope-OrgID"}},
		{"403", answerWith(403, js, `{"message":"no scope"}`), Denied, 1, []string{"status 403", "no scope", "read access"}},
		{"404", answerWith(404, "text/plain", "404 page not found"), NotPrometheus, 1, []string{"status 404", "path prefix"}},
		{"400 with Prometheus's words", answerWith(400, js, `{"status":"error","errorType":"bad_data","error":"parse error"}`), Refused, 1, []string{"parse error"}},
		{
			"422 too many samples", answerWith(422, js, `{"status":"error","errorType":"execution","error":"query processing would load too many samples into memory"}`),
			TooLarge, 1,
			[]string{"status 422", "too many samples", "lower the samples"},
		},
		{"422 other", answerWith(422, js, `{"status":"error","errorType":"execution","error":"many-to-many matching"}`), Refused, 1, []string{"many-to-many"}},
		{
			"422 of Thanos without a store", answerWith(422, js, `{"status":"error","errorType":"execution","error":"expanding series: rpc error: code = Unavailable desc = refused"}`),
			Overloaded, 5,
			[]string{"after 5 attempts", "status 422", "stores that the server reads from"},
		},
		{"429", answerWith(429, "text/plain", "slow down"), Overloaded, 5, []string{"after 5 attempts", "status 429", "slow down", "concurrency"}},
		{"500", answerWith(500, "text/plain", "boom\nstack"), Overloaded, 5, []string{"after 5 attempts", "status 500", "boom"}},
		{"502 page", answerWith(502, html, "<html><head><title>502 Bad Gateway</title></head>"), Overloaded, 5, []string{"502 Bad Gateway"}},
		{"503 timeout", answerWith(503, js, `{"status":"error","errorType":"timeout","error":"query timed out"}`), TooLarge, 1, []string{"query timed out"}},
		{"HTML", answerWith(200, html, "<html><title>Log in</title>"), NotPrometheus, 1, []string{"web page", "Log in", "path prefix"}},
		{"HTML that says JSON", answerWith(200, js, "<html>"), NotPrometheus, 1, []string{"not Prometheus's JSON", `'<'`}},
		{"204", answerWith(204, js, ""), NotPrometheus, 1, []string{"status 204"}},
		{"empty", answerWith(200, js, ""), Unreachable, 5, []string{"broke off"}},
		{"truncated", answerWith(200, js, `{"status":"success","data":{"resultType":"vector","result":[{"metric":{"a":`), Unreachable, 5, []string{"broke off"}},
		{"other JSON", answerWith(200, js, `{"ok":true}`), NotPrometheus, 1, []string{"no status"}},
		{"a list", answerWith(200, js, `[]`), NotPrometheus, 1, []string{"not Prometheus's JSON"}},
		{"two answers", answerWith(200, js, emptyVector+emptyVector), NotPrometheus, 1, []string{"after the end"}},
		{"error with status 200", answerWith(200, js, `{"status":"error","errorType":"bad_data","error":"oh"}`), Refused, 1, []string{"oh"}},
		{"scalar", answerWith(200, js, `{"status":"success","data":{"resultType":"scalar","result":[1,"2"]}}`), Refused, 1, []string{"returns a scalar, expected a vector"}},
		{"string", answerWith(200, js, `{"status":"success","data":{"resultType":"string","result":[1,"x"]}}`), Refused, 1, []string{"returns a string, expected a vector"}},
		{"matrix", answerWith(200, js, `{"status":"success","data":{"resultType":"matrix","result":[]}}`), Refused, 1, []string{"returns a matrix, expected a vector"}},
		{"text in a value", answerWith(200, js, `{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"x"]}]}}`), NotPrometheus, 1, []string{`"x" is not a number`}},
		{"redirect", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://sso.example/login?secret=1", http.StatusFound)
		}, NotPrometheus, 1, []string{"redirected to https://sso.example/login", "credentials"}},
		{"connection dropped", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, Unreachable, 5, []string{"after 5 attempts"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			address, requests := serve(t, c.handler)
			s := newSource(t, strings.Replace(address, "http://", "http://user:hunter2@", 1), func(cfg *Config) {
				cfg.Params = map[string]string{"token": "hunter2"}
			})
			impatient(s)
			_, err := s.Instant(t.Context(), "up", time.Unix(1, 0))

			var e *Error
			if !errors.As(err, &e) {
				t.Fatalf("error %v, want an Error", err)
			}

			if e.Kind != c.kind {
				t.Errorf("kind %q, want %q: %v", e.Kind, c.kind, err)
			}
			if requests.Load() != c.attempts {
				t.Errorf("%d requests, want %d", requests.Load(), c.attempts)
			}

			for _, part := range append(c.want, address+instantPath) {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q, want one with %q", err, part)
				}
			}

			if strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %q, want one line without a secret", err)
			}

			public := metrics.PublicMessage(err)
			if strings.Contains(public, "127.0.0.1") || strings.Contains(public, "sso.example") || public == "" {
				t.Errorf("public message %q, want one without an address", public)
			}
			if e.Kind == Refused && !strings.Contains(public, c.want[0]) {
				t.Errorf("public message %q, want one with %q", public, c.want[0])
			}
		})
	}
}

func TestUnreachableServersGiveClearErrors(t *testing.T) {
	tlsServer := httptest.NewUnstartedServer(answerWith(200, "application/json", emptyVector))
	tlsServer.Config.ErrorLog = log.New(io.Discard, "", 0)
	tlsServer.StartTLS()
	t.Cleanup(tlsServer.Close)

	plain, _ := serve(t, answerWith(200, "application/json", emptyVector))
	for _, c := range []struct{ name, address, want string }{
		{"no listener", "http://127.0.0.1:1", "nothing listens there"},
		{"certificate of an unknown authority", tlsServer.URL, "CA file"},
		{"plain HTTP behind https", strings.Replace(plain, "http:", "https:", 1), "plain HTTP"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSource(t, c.address, func(cfg *Config) { cfg.MaxAttempts = 2 })
			impatient(s)

			_, err := s.Instant(t.Context(), "up", time.Unix(1, 0))
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), c.address) {
				t.Errorf("error %v, want one with %q and the address", err, c.want)
			}
		})
	}
}

func TestRetriesBackOffAndSucceed(t *testing.T) {
	var calls atomic.Int64
	address, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		switch calls.Add(1) {
		case 1:
			w.WriteHeader(http.StatusServiceUnavailable)
		case 2:
			w.Header().Set("Retry-After", "17")
			w.WriteHeader(http.StatusTooManyRequests)
		case 3: // ends within a series
			io.WriteString(w, `{"status":"success","data":{"resultType":"vector","result":[{"metric":{"a":"1"},"value":[1,"7"]},`)
		default:
			io.WriteString(w, `{"status":"success","warnings":["one store is away"],"data":{"resultType":"vector","result":[{"metric":{"a":"2"},"value":[1,"8"]}]}}`)
		}
	})

	s := newSource(t, address, func(c *Config) { c.Jitter = func() float64 { return 0.5 } })
	pauses := impatient(s)

	got, err := s.Instant(t.Context(), "up", time.Unix(1, 0))
	if err != nil {
		t.Fatal(err)
	}

	want := []metrics.Sample{{Labels: metrics.Labels{"a": "2"}, Time: time.Unix(1, 0).UTC(), Value: 8}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Instant after a failed attempt: samples differ, want those of the last attempt alone (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]time.Duration{375 * time.Millisecond, 17 * time.Second, 1500 * time.Millisecond}, *pauses); diff != "" {
		t.Errorf("pauses between attempts differ (-want +got):\n%s", diff)
	}

	st := s.Stats()
	if st.Queries != 4 || st.Retries != 3 || st.Samples != 1 || cmp.Diff([]string{"one store is away"}, st.Warnings) != "" {
		t.Errorf("Stats() = %+v, want 4 queries, 3 retries, 1 sample and the warning of a store", st)
	}
}

func TestALongRetryAfterEndsTheAttempts(t *testing.T) {
	address, requests := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Date", "Thu, 05 Mar 2026 00:00:00 GMT")
		w.Header().Set("Retry-After", "Thu, 05 Mar 2026 01:00:00 GMT")
		w.WriteHeader(http.StatusTooManyRequests)
	})

	s := newSource(t, address, nil)
	impatient(s)

	_, err := s.Instant(t.Context(), "up", time.Unix(1, 0))
	var e *Error
	if !errors.As(err, &e) || e.RetryAfter != time.Hour || requests.Load() != 1 {
		t.Errorf("error %v after %d requests, want the first, which asks to wait an hour", err, requests.Load())
	}
}

func TestCancelEndsWaiting(t *testing.T) {
	stop := errors.New("shutting down")
	ctx, cancel := context.WithCancelCause(t.Context())
	address, requests := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		cancel(stop)
		w.WriteHeader(http.StatusInternalServerError)
	})

	_, err := newSource(t, address, nil).Instant(ctx, "up", time.Unix(1, 0))
	if !errors.Is(err, stop) || requests.Load() != 1 {
		t.Errorf("error %v after %d requests, want the cause after one", err, requests.Load())
	}
}

func TestSlowAnswersTimeOut(t *testing.T) {
	release := make(chan struct{})
	address, _ := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	defer close(release)

	s := newSource(t, address, func(c *Config) { c.Timeout = 50 * time.Millisecond })
	_, err := s.Instant(t.Context(), "up", time.Unix(1, 0))
	if !isTooLarge(err) || !strings.Contains(err.Error(), "within 50ms") {
		t.Errorf("error %v, want one about 50ms", err)
	}
}

func TestGetWhereNoPost(t *testing.T) {
	var methods []string
	address, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		methods = append(methods, r.Method)
		if r.Method != http.MethodGet {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}

		if r.FormValue("query") != "up" || r.FormValue("time") != "1.5" {
			t.Errorf("form %v, want query up at time 1.5", r.Form)
		}
		io.WriteString(w, emptyVector)
	})

	s := newSource(t, address, nil)
	for range 2 {
		if _, err := s.Instant(t.Context(), "up", time.UnixMilli(1500)); err != nil {
			t.Fatal(err)
		}
	}

	if diff := cmp.Diff([]string{"POST", "GET", "GET"}, methods); diff != "" {
		t.Errorf("methods of the requests differ (-want +got):\n%s", diff)
	}
}

func TestRequestsCarryHeadersAndParameters(t *testing.T) {
	address, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header.Get("X-Scope-OrgID"); got != "tenant-1" {
			t.Errorf("X-Scope-OrgID %q, want tenant-1", got)
		}
		if !strings.HasPrefix(r.Header.Get("User-Agent"), "crane/") {
			t.Errorf("User-Agent %q, want one that starts with crane/", r.Header.Get("User-Agent"))
		}
		if r.URL.Path != "/some/prefix"+instantPath || r.FormValue("dedup") != "true" {
			t.Errorf("path %s, form %v, want the prefix of the address and dedup=true", r.URL.Path, r.Form)
		}

		io.WriteString(w, emptyVector)
	})

	s := newSource(t, address+"/some/prefix/", func(c *Config) {
		c.Headers = map[string]string{"X-Scope-OrgID": "tenant-1"}
		c.Params = map[string]string{"dedup": "true"}
	})

	if _, err := s.Instant(t.Context(), "up", time.Unix(1, 0)); err != nil {
		t.Error(err)
	}
}

func TestCompressedAnswers(t *testing.T) {
	address, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept-Encoding") != "gzip" {
			t.Errorf("Accept-Encoding %q, want gzip", r.Header.Get("Accept-Encoding"))
		}

		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		io.WriteString(z, emptyVector)
		z.Close()
	})

	s := newSource(t, address, nil)
	s.client.compress = true // disabled by default for local servers
	if _, err := s.Instant(t.Context(), "up", time.Unix(1, 0)); err != nil {
		t.Error(err)
	}
	if got := s.Stats().Bytes; got != int64(len(emptyVector)) {
		t.Errorf("%d bytes, want %d", got, len(emptyVector))
	}
}

func TestConcurrencyIsBounded(t *testing.T) {
	var now, most atomic.Int64
	address, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		n := now.Add(1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		defer now.Add(-1)

		io.WriteString(w, emptyVector)
	})

	s := newSource(t, address, func(c *Config) { c.Concurrency = 3 })
	done := make(chan error)
	for range 30 {
		go func() {
			_, err := s.Instant(t.Context(), "up", time.Unix(1, 0))
			done <- err
		}()
	}

	for range 30 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}

	if most.Load() > 3 {
		t.Errorf("%d requests at once, want at most 3", most.Load())
	}
}

func TestHostileSizesAreRefused(t *testing.T) {
	address, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, `{"status":"success","data":{"resultType":"matrix","result":[{"metric":{},"values":[`)
		for range 5000 {
			io.WriteString(w, `[1,"1"],`)
		}
		io.WriteString(w, `[1,"1"]]}]}}`)
	})

	s := newSource(t, address, func(c *Config) { c.MaxSamples = 1000 })
	_, err := s.Range(t.Context(), "up", metrics.Window{Start: time.Unix(0, 0), End: time.Unix(1, 0), Step: time.Second})
	if err == nil || !strings.Contains(err.Error(), "more samples than this client accepts") {
		t.Errorf("Range with too many samples: error %v, want one that says so", err)
	}
}

func TestRangeJoinsShards(t *testing.T) {
	start := time.Unix(1000, 0).UTC()
	address, requests := serve(t, func(w http.ResponseWriter, r *http.Request) {
		var from, to int
		fmt.Sscan(r.FormValue("start"), &from)
		fmt.Sscan(r.FormValue("end"), &to)

		// Out of order, duplicate, off the grid, NaN and infinite.
		fmt.Fprintf(w, `{"status":"success","data":{"result":[{"values":[[%d,"9"],[%d,"1"],[%d,"2"],[%d.5,"7"],[5,"7"]],"metric":{"a":"b"}},`, to, from, from, from)
		fmt.Fprintf(w, `{"metric":{"a":"a"},"values":[[%d,"NaN"],[%d,"+Inf"]]}],"resultType":"matrix"}}`, from, to)
	})

	s := newSource(t, address, func(c *Config) { c.MaxPoints = 3 })
	got, err := s.Range(t.Context(), "up", metrics.Window{Start: start, End: start.Add(7 * time.Second), Step: time.Second})
	if err != nil {
		t.Fatal(err)
	}

	text := fmt.Sprint(got[0].Labels, got[0].Values, got[1].Labels, got[1].Values)
	want := "map[a:a] [NaN NaN NaN NaN NaN NaN NaN] map[a:b] [2 NaN 9 2 NaN 9 2]"
	if text != want || !got[1].Start.Equal(start) || requests.Load() != 3 {
		t.Errorf("got %s from %v in %d queries, want %s", text, got[1].Start, requests.Load(), want)
	}
}

func TestConfigIsChecked(t *testing.T) {
	good := DefaultConfig()
	good.Address = "http://x:9090"
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}

	for _, c := range []struct {
		want   string
		change func(*Config)
	}{
		{"address is empty", func(c *Config) { c.Address = " " }},
		{"http:// or https://", func(c *Config) { c.Address = "prometheus:9090" }},
		{"http:// or https://", func(c *Config) { c.Address = "ftp://x" }},
		{"not a URL", func(c *Config) { c.Address = "http://us\x7fer:hunter2@x" }},
		{"has no query", func(c *Config) { c.Address = "http://user:hunter2@x/?a=b" }},
		{"at most one of", func(c *Config) { c.Username, c.BearerToken = "u", "t" }},
		{"at most one of", func(c *Config) { c.BearerTokenFile, c.BearerToken = "f", "t" }},
		{"at most one of password and", func(c *Config) {
			c.Username = "u"
			c.Password = "p"
			c.PasswordFile = "f"
		}},
		{"without a user name", func(c *Config) { c.PasswordFile = "f" }},
		{"without a user name", func(c *Config) { c.Password = "hunter2" }},
		{"key file", func(c *Config) { c.TLS.CertFile = "x" }},
		{`header "authorization"`, func(c *Config) { c.Headers = map[string]string{"authorization": "x"} }},
		{`parameter "query"`, func(c *Config) { c.Params = map[string]string{"query": "x"} }},
		{"concurrency 0", func(c *Config) { c.Concurrency = 0 }},
		{"timeout", func(c *Config) { c.Timeout = 0 }},
		{"points per query 20000", func(c *Config) { c.MaxPoints = 20000 }},
		{"samples per query 1", func(c *Config) { c.MaxSamples = 1 }},
		{"attempts", func(c *Config) { c.MaxAttempts = 0 }},
		{"label name", func(c *Config) { c.Matchers = []Matcher{{Label: "a-b", Op: "="}} }},
	} {
		bad := good
		c.change(&bad)

		_, err := New(bad)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("error %v, want one with %q and no secret", err, c.want)
		}
	}

	for in, want := range map[string]string{
		"http://x:9090":                "http://x:9090",
		" https://x/prom/ ":            "https://x/prom",
		"http://x:9090/api/v1":         "http://x:9090",
		"http://x:9090/p/api/v1/query": "http://x:9090/p",
	} {
		if u, err := parseAddress(in); err != nil || u.String() != want {
			t.Errorf("address %q: %v, %v, want %s", in, u, err, want)
		}
	}
}
