// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// promSeries is one series of a response: its labels and its samples, each a time and a text.
type promSeries struct {
	Metric map[string]string `json:"metric"`
	Values [][2]any          `json:"values,omitempty"`
	Value  []any             `json:"value,omitempty"`
}

type promAnswer struct {
	Status string `json:"status"`
	Data   struct {
		ResultType string       `json:"resultType"`
		Result     []promSeries `json:"result"`
	} `json:"data"`
}

// between returns a proxy in front of a Prometheus that modifies the series of range queries.
func between(t *testing.T, prometheus string, spoil func([]promSeries) []promSeries) string {
	t.Helper()

	return proxy(t, prometheus, func(r *http.Response) error {
		if !strings.HasSuffix(r.Request.URL.Path, "/query_range") || r.StatusCode != http.StatusOK {
			return nil
		}

		var a promAnswer
		if err := json.NewDecoder(r.Body).Decode(&a); err != nil {
			return err
		}

		a.Data.Result = spoil(a.Data.Result)
		body, err := json.Marshal(a)
		if err != nil {
			return err
		}

		setBody(r, body)
		return nil
	})
}

func proxy(t *testing.T, prometheus string, modify func(*http.Response) error) string {
	t.Helper()

	target, err := url.Parse(prometheus)
	if err != nil {
		t.Fatal(err)
	}

	handler := &httputil.ReverseProxy{
		Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(target) },
		ModifyResponse: modify,
	}
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)

	return server.URL
}

func setBody(r *http.Response, body []byte) {
	r.Body = io.NopCloser(bytes.NewReader(body))
	r.ContentLength = int64(len(body))
	r.Header.Set("Content-Length", strconv.Itoa(len(body)))
	r.Header.Del("Content-Encoding")
}

// usageOf reports whether a series is the use of a pod's container, not a count by namespace or a page cache metric.
func usageOf(s promSeries) bool {
	return s.Metric["container"] != "" && s.Metric["pod"] != "" && !hourly(s)
}

// hourly reports whether a series is the hourly maximum of memory without page cache. If an hour is missing in it, all
// memory of the day counts, which changes results as intended.
func hourly(s promSeries) bool {
	if len(s.Values) < 2 {
		return s.Metric["container"] != ""
	}

	first, _ := s.Values[0][0].(float64)
	second, _ := s.Values[1][0].(float64)
	return second-first >= time.Hour.Seconds()
}

// replaced returns a modifier that replaces every nth sample of use by a text.
func replaced(n int, texts ...string) func([]promSeries) []promSeries {
	return func(all []promSeries) []promSeries {
		for _, s := range all {
			for i := range s.Values {
				if usageOf(s) && i%n == n/2 {
					s.Values[i][1] = texts[i/n%len(texts)]
				}
			}
		}

		return all
	}
}

// testBadSamples reads the playground's Prometheus through proxies that modify its responses.
func testBadSamples(t *testing.T, s *session) {
	want := recommend(t, "--prometheus", s.prometheus)
	for name, c := range map[string]struct {
		spoil     func([]promSeries) []promSeries
		tolerance float64
	}{
		"NaN, infinite and negative": {replaced(10, "NaN", "+Inf", "-Inf", "-1", "-0.001"), 0.05},
		"duplicate series":           {func(all []promSeries) []promSeries { return append(all, all...) }, 0.02},
		"duplicate samples": {func(all []promSeries) []promSeries {
			for i := range all {
				all[i].Values = append(all[i].Values, all[i].Values...)
			}

			return all
		}, 0.02},
		"backwards": {func(all []promSeries) []promSeries {
			for i := range all {
				slices.Reverse(all[i].Values)
			}

			return all
		}, 0.02},
		"a hole": {func(all []promSeries) []promSeries {
			// Within the last day a hole may hide a new level, which changes results as intended, and a longer one takes a whole day from the
			// evidence. It may raise results by some steps of the histogram, of 5 % each.
			until := float64(time.Now().Add(-4 * 24 * time.Hour).Unix())
			for i := range all {
				if usageOf(all[i]) {
					all[i].Values = slices.DeleteFunc(all[i].Values, func(v [2]any) bool {
						at, _ := v[0].(float64)
						return at > until-(8*time.Hour).Seconds() && at < until
					})
				}
			}

			return all
		}, 0.12},
		"samples off the grid": {func(all []promSeries) []promSeries {
			for i := range all {
				if n := len(all[i].Values); usageOf(all[i]) && n > 0 {
					all[i].Values = append(all[i].Values, [2]any{1, "1e9"}, [2]any{4e9, "1e9"})
				}
			}

			return all
		}, 0.02},
		"foreign labels": {func(all []promSeries) []promSeries {
			for i := range all {
				all[i].Metric["quotes\"and{braces}"] = "\\\"{}=~,\n"
			}

			return append(all, promSeries{Metric: map[string]string{}, Values: [][2]any{{1, "1"}}})
		}, 0.02},
	} {
		t.Run(name, func(t *testing.T) {
			got := recommend(t, "--prometheus", between(t, s.prometheus, c.spoil))
			compare(t, got, want, c.tolerance)
		})
	}

	t.Run("hours without page cache", func(t *testing.T) {
		got := recommend(t, "--prometheus", between(t, s.prometheus, func(all []promSeries) []promSeries {
			for i := range all {
				if n := len(all[i].Values); hourly(all[i]) && n > 2 {
					all[i].Values = slices.Delete(all[i].Values, n/3, n/3+n/10+1)
				}
			}

			return all
		}))

		for key, w := range want {
			if a := got[key]; a.status != w.status || a.value < 0.98*w.value {
				t.Errorf("%s: %+v, want no less than %+v: what is not known to be page cache is memory", key, a, w)
			}
		}
	})

	t.Run("one container has no good sample", func(t *testing.T) {
		got := recommend(t, "--prometheus", between(t, s.prometheus, func(all []promSeries) []promSeries {
			for _, one := range all {
				for i := range one.Values {
					if one.Metric["container"] == "catalog" {
						one.Values[i][1] = "NaN"
					}
				}
			}

			return all
		}))

		for _, resource := range []string{"cpu", "memory"} {
			key := "shop/Deployment/catalog/catalog/" + resource
			if a, ok := got[key]; !ok || a.set || a.status == "Ready" {
				t.Errorf("%s: %+v, want no number", key, a)
			}
		}
	})

	t.Run("text in a sample", func(t *testing.T) {
		r := execute(t, binary(t, "crane"), "recommend", "--prometheus", between(t, s.prometheus, replaced(100, "plenty")))
		checkRefused(t, r, "plenty")
	})
	t.Run("labels that nothing has", func(t *testing.T) {
		r := execute(t, binary(t, "crane"), "recommend", "--prometheus", s.prometheus, "--prometheus-labels", "cluster=eu")
		checkRefused(t, r, `cluster="eu"`, "check the extra labels", s.prometheus)
	})
	t.Run("clock skew", func(t *testing.T) { testSkew(t, s, want) })
	t.Run("failures on the way", func(t *testing.T) { testFailuresOnTheWay(t, s, want) })
}

func compare(t *testing.T, got, want map[string]amount, tolerance float64) {
	t.Helper()

	if len(got) != len(want) {
		t.Errorf("%d numbers, want %d", len(got), len(want))
	}

	for key, w := range want {
		if !near(got[key], w, tolerance) {
			t.Errorf("%s: %+v, want %+v within %g %%", key, got[key], w, tolerance*100)
		}
	}
}

// testSkew: a server with a wrong clock causes a warning, and results are those of the available samples.
func testSkew(t *testing.T, s *session, want map[string]amount) {
	for _, by := range []time.Duration{-time.Hour, time.Hour} {
		address := proxy(t, s.prometheus, func(r *http.Response) error {
			r.Header.Set("Date", time.Now().Add(by).UTC().Format(http.TimeFormat))
			return nil
		})

		r := execute(t, binary(t, "crane"), "recommend", "-o", "json", "--prometheus", address)
		if r.code != 0 || !strings.Contains(r.errOut, "clock") {
			t.Errorf("%s: exit code %d, stderr %q; want a warning of the clock", by, r.code, r.errOut)
			continue
		}

		compare(t, amounts(t, r.out), want, 0.02)
	}
}

// testFailuresOnTheWay: transient failures are retried; permanent ones end the command without a partial report.
func testFailuresOnTheWay(t *testing.T, s *session, want map[string]amount) {
	var n atomic.Int64
	address := proxy(t, s.prometheus, func(r *http.Response) error {
		switch n.Add(1) {
		case 2, 12:
			r.StatusCode = http.StatusServiceUnavailable
			setBody(r, []byte("busy"))
		case 5:
			r.StatusCode = http.StatusTooManyRequests
			r.Header.Set("Retry-After", "1")
			setBody(r, []byte("slow down"))
		}

		return nil
	})

	compare(t, recommend(t, "--prometheus", address), want, 0.02)

	n.Store(0)
	address = proxy(t, s.prometheus, func(r *http.Response) error {
		if strings.HasSuffix(r.Request.URL.Path, "/query_range") && n.Add(1) > 6 {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return err
			}

			setBody(r, body[:len(body)/2])
		}

		return nil
	})

	checkRefused(t, execute(t, binary(t, "crane"), "recommend", "-o", "json", "--prometheus", address), strings.TrimPrefix(address, "http://"))
}
