// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package simcluster

import (
	"math"
	"math/rand/v2"
	"strings"
	"time"

	"crane.io/crane/internal/scheduler/simulate/simscenario"
)

// Windows of the meter, as gocrane's recording rules have them: averages over five minutes, worked out each minute for the
// maxima of an hour, and kept by their maximum of five minutes for the maxima of a day.
const (
	averageOver = 5 * time.Minute
	hour        = time.Hour
	daily       = 24 * time.Hour
)

// Meter is the metrics pipeline: it takes samples of what nodes use, of which some get lost, and answers as a Prometheus with
// gocrane's recording rules would.
type Meter struct {
	spec   simscenario.Metrics
	rng    *rand.Rand
	broken []bool
	dead   []bool
	newest []time.Duration // of the last sample of a node; negative for none
	cpu    gauge
	memory gauge
	lost   []bool
}

// NewMeter returns a meter without samples. Which samples get lost follows from the seed alone.
func NewMeter(spec simscenario.Metrics, nodes int, seed uint64) *Meter {
	m := &Meter{
		spec:   spec,
		rng:    rand.New(rand.NewPCG(seed, streamMetrics)),
		broken: make([]bool, nodes),
		lost:   make([]bool, nodes),
		dead:   make([]bool, nodes),
		newest: make([]time.Duration, nodes),
		cpu:    newGauge(nodes, spec.Scrape.Duration),
		memory: newGauge(nodes, spec.Scrape.Duration),
	}

	for i := range m.broken {
		m.broken[i] = m.rng.Float64() < spec.Broken
		m.newest[i] = -1
	}

	// A stream of its own leaves scenarios without dead exporters as they were.
	deaths := rand.New(rand.NewPCG(seed, streamDeaths))
	for i := range m.dead {
		m.dead[i] = deaths.Float64() < spec.Dead
	}

	return m
}

// Down reports whether nothing is measured and nothing can be read at time t.
func (m *Meter) Down(t time.Duration) bool {
	for _, o := range m.spec.Outages {
		if t >= o.From.Duration && t < o.From.Duration+o.For.Duration {
			return true
		}
	}

	return false
}

// Scrape takes a sample of every node at time t: what it uses as shares of its capacity. CPU beyond capacity is not seen.
func (m *Meter) Scrape(t time.Duration, cpu, memory []float64) {
	down := m.Down(t)
	for i := range m.lost {
		// One draw for each node and scrape, so that an outage does not change what is lost later.
		m.lost[i] = m.rng.Float64() < m.spec.Loss || m.broken[i] || down || m.dead[i] && t >= m.spec.DeadFrom.Duration
		if !m.lost[i] {
			m.newest[i] = t
		}
	}

	m.cpu.add(t, cpu, m.lost)
	m.memory.add(t, memory, m.lost)
}

// SampleTime returns the time of the newest sample of a node; false if there is none.
func (m *Meter) SampleTime(node int) (time.Duration, bool) {
	return m.newest[node], m.newest[node] >= 0
}

// Read is the value of a metric of a node: one of gocrane's recording rules, by its name, as a share of capacity. It is false
// where Prometheus would have no series.
func (m *Meter) Read(metric string, node int) (float64, bool) {
	// The names are those of gocrane's recording rules: the resource, then the window.
	g := &m.cpu
	window, ok := strings.CutPrefix(metric, "cpu_usage_")
	if !ok {
		if window, ok = strings.CutPrefix(metric, "mem_usage_"); !ok {
			return 0, false
		}

		g = &m.memory
	}

	switch window {
	case "active":
		return g.last(node)
	case "avg_5m":
		return g.average(node)
	case "max_avg_1h":
		return g.minutes.max(node)
	case "max_avg_1d":
		return g.days.max(node)
	}

	if short, ok := strings.CutPrefix(window, "avg_"); ok {
		if d, err := time.ParseDuration(short); err == nil && d > 0 && d <= averageOver {
			return g.averageOf(node, d)
		}
	}

	return 0, false
}

// gauge keeps the samples of one resource.
type gauge struct {
	every   time.Duration
	samples ring
	minutes ring
	days    ring
}

func newGauge(nodes int, every time.Duration) gauge {
	return gauge{
		every:   every,
		samples: newRing(nodes, int(max(1, averageOver/every))),
		minutes: newRing(nodes, int(hour/time.Minute)),
		days:    newRing(nodes, int(daily/averageOver)),
	}
}

// add appends a sample of all nodes, and updates the coarser rows that are due.
func (g *gauge) add(t time.Duration, values []float64, lost []bool) {
	row := g.samples.advance()
	for i, v := range values {
		if lost[i] {
			row[i] = nan32()
			continue
		}

		row[i] = float32(min(1, v))
	}

	if t%time.Minute >= g.every {
		return
	}

	minute := g.minutes.advance()
	for i := range minute {
		minute[i] = nan32()
		if v, ok := g.average(i); ok {
			minute[i] = float32(v)
		}
	}

	if t%averageOver < time.Minute {
		copy(g.days.advance(), minute)
	}
}

func (g *gauge) last(node int) (float64, bool) { return g.averageOf(node, g.every) }

func (g *gauge) average(node int) (float64, bool) { return g.averageOf(node, averageOver) }

func (g *gauge) averageOf(node int, over time.Duration) (float64, bool) {
	n := min(g.samples.filled, int(max(1, over/g.every)))
	var sum float64
	count := 0
	for i := range n {
		if v := g.samples.back(i)[node]; v == v {
			sum += float64(v)
			count++
		}
	}

	return sum / float64(max(1, count)), count > 0
}

// ring keeps the last rows of values by node; NaN is none.
type ring struct {
	rows   [][]float32
	next   int
	filled int
}

func newRing(nodes, rows int) ring {
	r := ring{rows: make([][]float32, rows)}
	all := make([]float32, nodes*rows)
	for i := range r.rows {
		r.rows[i] = all[i*nodes : (i+1)*nodes]
	}

	return r
}

// advance returns the oldest row, to be overwritten with the newest.
func (r *ring) advance() []float32 {
	row := r.rows[r.next]
	r.next = (r.next + 1) % len(r.rows)
	r.filled = min(r.filled+1, len(r.rows))

	return row
}

// back is the row i before the newest.
func (r *ring) back(i int) []float32 {
	return r.rows[(r.next-1-i+2*len(r.rows))%len(r.rows)]
}

func (r *ring) max(node int) (float64, bool) {
	best := 0.0
	ok := false
	for i := range r.filled {
		if v := float64(r.back(i)[node]); v == v && (!ok || v > best) {
			best = v
			ok = true
		}
	}

	return best, ok
}

func nan32() float32 { return float32(math.NaN()) }
