// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"crane.io/crane/internal/metrics/prometheus"
	"crane.io/crane/internal/nodeload/policyfile"
)

// fakePrometheus answers any query with one series per node. Five-minute loads vary by about a point from reading to
// reading, the maxima of an hour and of a day by less.
type fakePrometheus struct {
	random  *rand.Rand
	nodes   int
	clock   clock.PassiveClock
	levels  map[string][]float64
	queries atomic.Int64
}

func (l *fakePrometheus) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l.queries.Add(1)
	name, _, _ := strings.Cut(r.FormValue("query"), "{")
	dated := strings.Contains(name, "timestamp(")

	level := l.levels[name]
	if level == nil {
		level = make([]float64, l.nodes)
		for i := range level {
			level[i] = 10 + 50*l.random.Float64()
		}
		l.levels[name] = level
	}

	step := 1.0
	if strings.Contains(name, "max") {
		step = 0.3
	}

	var b strings.Builder
	b.WriteString(`{"status":"success","data":{"resultType":"vector","result":[`)

	for i := range level {
		// The load returns to its mean, so that it neither stands still nor drifts away.
		level[i] = math.Max(0, level[i]+step*l.random.NormFloat64())

		if i > 0 {
			b.WriteByte(',')
		}

		value := level[i]
		if dated {
			value = float64(l.clock.Now().Add(-30 * time.Second).Unix())
		}

		fmt.Fprintf(&b, `{"metric":{"__name__":%q,"instance":"n%d:9100","job":"node-exporter"},"value":[1714564800,"%.6f"]}`, name, i, value)
	}

	b.WriteString(`]}}`)
	_, _ = w.Write([]byte(b.String()))
}

// BenchmarkHour5000Nodes runs an hour of the built-in policy in virtual time: real queries over HTTP, real decoding
// and decisions; nodes and patches are in memory, so the share of the API client is not included. The first round,
// which writes all nodes, is excluded.
func BenchmarkHour5000Nodes(b *testing.B) {
	const nodes = 5000
	clk := clocktesting.NewFakeClock(begin)
	source := &fakePrometheus{random: rand.New(rand.NewPCG(1, 2)), nodes: nodes, levels: map[string][]float64{}, clock: clk}
	server := httptest.NewServer(source)
	defer server.Close()

	cfg := prometheus.DefaultConfig()
	cfg.Address = server.URL

	cfg.Concurrency = 1
	client, err := prometheus.New(cfg)
	if err != nil {
		b.Fatalf("New of the Prometheus source: %v, want no error", err)
	}

	w := newCluster(nodes)
	policy, err := policyfile.Builtin()
	if err != nil {
		b.Fatalf("Builtin: %v, want no error", err)
	}

	c, err := New(Config{
		Policy: policyfile.Fixed(policy, clk), Sources: Sources{Prometheus: client}, Nodes: w, Patches: indexedCluster{w}, Binds: w,
		Labels: []string{"node", "instance"}, Material: 0.02, Workers: 10, Events: events.NewFakeRecorder(1000), Metrics: NewMetrics(), Clock: clk,
	})
	if err != nil {
		b.Fatalf("New: %v, want a controller", err)
	}

	clk.SetTime(c.Round(b.Context()))
	w.drain()
	source.queries.Store(0)
	rounds := 0

	readings := 0
	patches := 0
	var busy time.Duration
	for b.Loop() {
		end := clk.Now().Add(time.Hour)
		for clk.Now().Before(end) {
			before := source.queries.Load()
			cpu := cpuTime()
			next := c.Round(b.Context())
			busy += cpuTime() - cpu

			if source.queries.Load() > before {
				readings++
			}

			_, sent := w.drain()
			rounds++
			patches += len(sent)
			clk.SetTime(next)
		}
	}

	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	runtime.KeepAlive(w)
	hours := float64(b.N)
	b.ReportMetric(float64(source.queries.Load())/hours, "queries/h")

	b.ReportMetric(float64(source.queries.Load())/float64(readings), "queries/reading")
	b.ReportMetric(float64(patches)/hours/60, "patches/min")
	b.ReportMetric(busy.Seconds()/hours/3600*1000, "mCPU")
	b.ReportMetric(float64(m.HeapAlloc)/(1<<20), "MiB-heap")
	b.ReportMetric(float64(rounds)/hours, "rounds/h")
}

// cpuTime returns the CPU time of this process, including the server of the benchmark.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}

	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
