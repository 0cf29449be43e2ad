// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package seriesguard

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

var testDesc = prometheus.NewDesc("crane_test", "A test.", []string{"namespace", "name"}, nil)

// collector is a collector of one description.
type collector struct {
	desc    *prometheus.Desc
	collect func(chan<- prometheus.Metric)
}

func (c collector) Describe(to chan<- *prometheus.Desc) { to <- c.desc }
func (c collector) Collect(to chan<- prometheus.Metric) { c.collect(to) }

func send(to chan<- prometheus.Metric, value float64, labels ...string) {
	Send(to, testDesc, prometheus.GaugeValue, value, labels...)
}

// scrape registers a guarded collector and an honest one and returns the answer to the second of two scrapes, which has the counters of the first.
func scrape(t *testing.T, c prometheus.Collector) (status int, page string) {
	t.Helper()

	registry := prometheus.NewRegistry()
	guarded := New(registry, logr.Discard())

	honest := prometheus.NewGauge(prometheus.GaugeOpts{Name: "crane_honest", Help: "Honest."})
	err := errors.Join(guarded.Register(c), guarded.Register(honest))
	if err != nil {
		t.Fatal(err)
	}

	handler := Handler(registry, logr.Discard(), promhttp.HandlerOpts{})
	var answer *httptest.ResponseRecorder
	for range 2 {
		answer = httptest.NewRecorder()
		handler.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody))
	}

	return answer.Code, answer.Body.String()
}

// TestHostileCollectors checks that what is wrong with a collector is left out and counted, and that other series of it and other collectors stay.
func TestHostileCollectors(t *testing.T) {
	const first = `crane_test{name="a",namespace="shop"} 1`
	for name, test := range map[string]struct {
		collect func(chan<- prometheus.Metric)
		want    []string
		missing string
	}{
		"duplicate": {
			collect: func(to chan<- prometheus.Metric) { send(to, 1, "shop", "a"); send(to, 2, "shop", "a") },
			want:    []string{first, leftOutLine(reasonDuplicate)},
		},
		"not finite": {
			collect: func(to chan<- prometheus.Metric) {
				send(to, 1, "shop", "a")
				send(to, math.NaN(), "shop", "b")
				send(to, math.Inf(-1), "shop", "c")
			},
			want: []string{first, leftOutLine(reasonNotFinite)}, missing: `name="b"`,
		},
		"invalid UTF-8": {
			collect: func(to chan<- prometheus.Metric) { send(to, 1, "shop", "\xff"); send(to, 1, "shop", "a") },
			want:    []string{first, leftOutLine(reasonInvalid)},
		},
		"number of labels": {
			collect: func(to chan<- prometheus.Metric) { send(to, 1, "shop"); send(to, 1, "shop", "a") },
			want:    []string{first, leftOutLine(reasonInvalid)},
		},
		"quotes and lines": {
			collect: func(to chan<- prometheus.Metric) { send(to, 1, "shop", "\"} 7\ncrane_evil 1\n\\") },
			want:    []string{`crane_test{name="\"} 7\ncrane_evil 1\n\\",namespace="shop"} 1`}, missing: "\ncrane_evil",
		},
		"long label": {
			collect: func(to chan<- prometheus.Metric) {
				send(to, 1, "shop", strings.Repeat("x", 1<<20))
				send(to, 1, "shop", "a")
			},
			want: []string{first, leftOutLine(reasonLongLabel)}, missing: "xxx",
		},
		"panic": {
			collect: func(to chan<- prometheus.Metric) { send(to, 1, "shop", "a"); panic("bad") },
			want:    []string{`crane_metrics_collector_failures_total{metric="crane_test"} `}, missing: "crane_test{",
		},
		"panic of a value": {
			collect: func(to chan<- prometheus.Metric) {
				to <- prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "crane_test", Help: "A test."}, func() float64 { panic("bad") })
			},
			want: []string{`crane_metrics_collector_failures_total{metric="crane_test"} `},
		},
	} {
		t.Run(name, func(t *testing.T) {
			status, page := scrape(t, collector{testDesc, test.collect})
			if status != http.StatusOK {
				t.Errorf("GET /metrics answers %d, want 200: %s", status, page)
			}

			for _, want := range append(test.want, "crane_honest 0") {
				if !strings.Contains(page, want) {
					t.Errorf("GET /metrics answers without %s:\n%s", want, page)
				}
			}

			if test.missing != "" && strings.Contains(page, test.missing) {
				t.Errorf("GET /metrics has %s, want it left out:\n%s", test.missing, page)
			}
		})
	}
}

// leftOutLine returns the start of the line of a counter, of which the value depends on the order of the collectors.
func leftOutLine(reason string) string {
	return fmt.Sprintf(`crane_metrics_series_left_out_total{metric="crane_test",reason=%q} `, reason)
}

// TestUnguardedCollector checks that a collector beside the guards, as those of libraries, does not take the others down.
func TestUnguardedCollector(t *testing.T) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector{testDesc, func(to chan<- prometheus.Metric) { send(to, 1, "shop", "a"); send(to, 1, "shop", "a") }})
	registry.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "crane_honest", Help: "Honest."}))

	answer := httptest.NewRecorder()
	handler := Handler(registry, logr.Discard(), promhttp.HandlerOpts{Registry: registry})
	handler.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody))

	if answer.Code != http.StatusOK || !strings.Contains(answer.Body.String(), "crane_honest 0") {
		t.Errorf("GET /metrics answers %d, want 200 with crane_honest: %s", answer.Code, answer.Body)
	}

	answer = httptest.NewRecorder()
	handler.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody))

	if !strings.Contains(answer.Body.String(), `promhttp_metric_handler_errors_total{cause="gathering"} 1`) {
		t.Errorf("GET /metrics = %s, want one error of gathering", answer.Body)
	}
}

// TestManySeries checks that the series of one namespace, and of many, are bounded, and that a namespace with few keeps them wherever they stand.
func TestManySeries(t *testing.T) {
	name := strings.Repeat("n", 900)
	for title, namespaces := range map[string]int{"one namespace": 1, "ten namespaces": 10} {
		t.Run(title, func(t *testing.T) {
			const perNamespace = 30_000
			status, page := scrape(t, collector{testDesc, func(to chan<- prometheus.Metric) {
				send(to, 1, "early", "web")
				for i := range perNamespace {
					for n := range namespaces {
						send(to, 1, fmt.Sprint("evil-", n), fmt.Sprint(name, i))
					}
				}

				send(to, 1, "late", "web")
			}})

			if status != http.StatusOK || len(page) > maxBytes+4096 {
				t.Errorf("GET /metrics answers %d with %d bytes, want 200 and at most %d bytes", status, len(page), maxBytes)
			}

			for _, want := range []string{`namespace="early"`, `namespace="late"`, `reason="too_many"`} {
				if !strings.Contains(page, want) {
					t.Errorf("GET /metrics answers without %s", want)
				}
			}

			for n := range namespaces {
				share := strings.Count(page, fmt.Sprintf(`namespace="evil-%d"`, n)) * len(name)
				if most := maxNamespaceBytes / max(1, namespaces/2); share > most || share < most*8/10 {
					t.Errorf("namespace %d has %d bytes, want nearly %d", n, share, most)
				}
			}
		})
	}
}

func TestFairShare(t *testing.T) {
	for _, test := range []struct {
		needs       []int
		limit, want int
	}{
		{needs: []int{1, 2, 3}, limit: 10, want: 10},
		{needs: []int{100}, limit: 10, want: 10},
		{needs: []int{100, 1}, limit: 10, want: 9},
		{needs: []int{100, 100, 1}, limit: 11, want: 5},
		{needs: nil, limit: 10, want: 10},
	} {
		got := fairShare(test.needs, test.limit)
		if got != test.want {
			t.Errorf("fairShare(%v, %d) = %d, want %d", test.needs, test.limit, got, test.want)
		}
	}
}

// BenchmarkCollect collects the series of 20,000 workloads with and without a guard.
func BenchmarkCollect(b *testing.B) {
	all := collector{testDesc, func(to chan<- prometheus.Metric) {
		for i := range 120_000 {
			send(to, 1, fmt.Sprint("namespace-", i%200), fmt.Sprint("workload-", i))
		}
	}}

	for name, wrap := range map[string]func(prometheus.Registerer) prometheus.Registerer{
		"plain":   func(r prometheus.Registerer) prometheus.Registerer { return r },
		"guarded": func(r prometheus.Registerer) prometheus.Registerer { return New(r, logr.Discard()) },
	} {
		b.Run(name, func(b *testing.B) {
			registry := prometheus.NewRegistry()
			wrap(registry).MustRegister(all)

			for b.Loop() {
				_, err := registry.Gather()
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
