// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeload

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"crane.io/crane/pkg/units"
)

const gib = 1 << 30

// testCapacity is a node of 10 cores and 100 GiB, so that a core or 10 GiB are 10 %.
func testCapacity() Amount { return Amount{CPU: 10_000, Memory: 100 * gib} }

func rules(t testing.TB, strategy Strategy, change ...func(*Spec)) *Rules {
	t.Helper()

	spec := GocraneSpec()
	for _, c := range change {
		c(&spec)
	}

	policy, err := NewPolicy(spec)
	if err != nil {
		t.Fatal(err)
	}

	r, err := NewRules(policy, strategy)
	if err != nil {
		t.Fatal(err)
	}

	return r
}

// loadedReport returns a report whose metrics were all measured at one time: those of CPU at cpu, of memory at
// memory.
func loadedReport(r *Rules, cpu, memory units.Ratio, measured time.Time) Report {
	report := Report{Capacity: testCapacity()}
	for _, m := range r.Policy.Metrics {
		value := cpu
		if m.Resource == units.Memory {
			value = memory
		}

		report.Samples = append(report.Samples, Sample{Value: value, Time: measured})
	}

	return report
}

func fleet(r *Rules, now time.Time, nodes ...*Node) *Fleet {
	count := r.NewCount(now)
	for _, n := range nodes {
		count.Add(n, Amount{CPU: 8_000, Memory: 80 * gib})
	}

	return count.Fleet(DefaultMinFresh)
}

func TestClosed(t *testing.T) {
	r := rules(t, Strategy{})
	now := at(0)
	pod := Amount{CPU: 500, Memory: gib}
	for _, c := range []struct {
		name        string
		cpu, memory units.Ratio
		age         time.Duration
		arrivals    []Amount
		use         Amount
		want        string
		unknown     bool
	}{
		{name: "idle", cpu: 0.1, memory: 0.1, use: pod},
		{name: "at the limit with the pod", cpu: 0.6, memory: 0.1, use: pod},
		{name: "above the limit with the pod", cpu: 0.61, memory: 0.1, use: pod, want: "cpu_usage_avg_5m"},
		{name: "memory", cpu: 0.1, memory: 0.66, use: pod, want: "mem_usage_avg_5m"},
		{name: "on its way", cpu: 0.3, memory: 0.1, arrivals: []Amount{{CPU: 1000}, {CPU: 1600}, {CPU: 500}}, use: pod, want: "cpu_usage_avg_5m"},
		{name: "a large pod on a node under half its limit", cpu: 0.32, memory: 0.1, use: Amount{CPU: 9000}},
		{name: "a large pod on a node above half its limit", cpu: 0.33, memory: 0.1, use: Amount{CPU: 9000}, want: "cpu_usage_avg_5m"},
		{name: "one metric too old", cpu: 0.66, memory: 0.1, age: 8*time.Minute + time.Second, use: pod, unknown: true},
		{name: "still counts", cpu: 0.66, memory: 0.1, age: 8 * time.Minute, use: pod, want: "cpu_usage_avg_5m"},
		{name: "from the future", cpu: 0.99, memory: 0.1, age: -2 * time.Minute, use: pod, unknown: true},
		{name: "a clock that is a little ahead", cpu: 0.99, memory: 0.1, age: -time.Minute, use: pod, want: "cpu_usage_avg_5m"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var arrivals Arrivals
			for i, a := range c.arrivals {
				arrivals.Add(fmt.Sprint(i), a, time.Time{})
			}

			others := r.NodeAt(loadedReport(r, 0.3, 0.3, now), &Arrivals{}, now)
			n := r.NodeAt(loadedReport(r, c.cpu, c.memory, now.Add(-c.age)), &arrivals, now)

			limit, unknown := fleet(r, now, others, others, n).Closed(n, c.use, now.UnixNano())
			got := ""
			if limit != Open {
				got = r.Policy.Metrics[r.Policy.Limits[limit].Metric].Name
			}
			if got != c.want || unknown != c.unknown {
				t.Errorf("closed by %q, unknown %v; want %q, %v", got, unknown, c.want, c.unknown)
			}
		})
	}
}

func TestClosed_WaterMark(t *testing.T) {
	r := rules(t, Strategy{}, func(s *Spec) {
		s.Marks = map[units.Resource]WaterMarks{units.CPU: {Low: 0.2, Schedule: 0.5, Evict: 0.8}}
	})

	n := r.NodeAt(loadedReport(r, 0.49, 0.1, at(0)), &Arrivals{}, at(0))
	f := fleet(r, at(0), n)
	if limit, _ := f.Closed(n, Amount{CPU: 50}, at(0).UnixNano()); limit != Open {
		t.Errorf("Closed below the mark = limit %d, want open", limit)
	}
	if limit, _ := f.Closed(n, Amount{CPU: 200}, at(0).UnixNano()); limit == Open {
		t.Error("Closed above the mark schedule = open, want a limit")
	}
}

func TestCoverage(t *testing.T) {
	for _, c := range []struct {
		started, measured int
		want              units.Ratio
	}{
		{0, 0, 0}, {0, 30, 0}, {0, 180, 0.5}, {0, 330, 1}, {0, 5000, 1}, {100, 0, 0},
	} {
		if got := Coverage(at(c.started), at(c.measured), 5*time.Minute); got != c.want {
			t.Errorf("Coverage(started %d, measured %d) = %v, want %v", c.started, c.measured, got, c.want)
		}
	}

	if Coverage(time.Time{}, at(0), time.Minute) != 0 || Coverage(at(0), time.Time{}, time.Minute) != 0 {
		t.Error("Coverage without a start or without a sample is above 0, want 0")
	}
}

// TestArrivals_Arrival follows one pod: the sample and the pending load add up to the pod's usage at any time.
func TestArrivals_Arrival(t *testing.T) {
	r := rules(t, Strategy{}, func(s *Spec) {
		s.Metrics = s.Metrics[:1]
		s.Predicates = s.Predicates[:1]
		s.Priorities = s.Priorities[:1]
	})

	var arrivals Arrivals
	arrivals.Add("pod", Amount{CPU: 1000}, time.Time{})
	sum := func(second int) units.Ratio {
		// A five-minute average of a node at 30 % to which 10 % arrive, started at 60 and warm at 90.
		held := min(max(float64(second-90)/300, 0), 1) * 0.1
		n := r.NodeAt(Report{Capacity: testCapacity(), Samples: []Sample{{Value: units.Ratio(0.3 + held), Time: at(second)}}}, &arrivals, at(second))

		return n.Loads[0].Value + n.Loads[0].OnWay
	}

	for second := 0; second <= 900; second += 15 {
		if second == 60 && !arrivals.Start("pod", at(60)) {
			t.Fatal("Start of an arriving pod = false, want true")
		}

		if got := sum(second); math.Abs(float64(got)-0.4) > 1e-9 {
			t.Errorf("load and pending load at %d s = %v, want 0.4", second, got)
		}
	}

	if arrivals.Len() != 0 {
		t.Errorf("%d pods are arriving after 15 minutes, want none", arrivals.Len())
	}
	if arrivals.Start("pod", at(60)) || arrivals.Remove("pod") {
		t.Error("Start or Remove of a covered pod = true, want false")
	}
}

// TestArrivals_Departure follows one pod that ends: its share of the sample is subtracted at any time.
func TestArrivals_Departure(t *testing.T) {
	r := rules(t, Strategy{})
	for _, lived := range []int{100, 3000} {
		var arrivals Arrivals
		arrivals.Add("pod", Amount{CPU: 1000}, at(-lived-30))

		if lived == 3000 {
			// Covered long ago: nothing was kept of it.
			arrivals = Arrivals{}
		}

		if !arrivals.End("pod", Credit{Measured: Amount{CPU: 1000}}, at(-lived-30), at(0)) || arrivals.End("pod", Credit{Measured: Amount{CPU: 1000}}, at(-lived-30), at(9)) {
			t.Fatal("End returns something else than true for the first call and false for the second, want that")
		}

		if arrivals.Len() != 0 {
			t.Errorf("%d pods are arriving after the only one ended, want none", arrivals.Len())
		}

		for second := 0; second <= 600; second += 15 {
			// An average over five minutes of a node at 30 % on which 10 % ran until 0.
			ran := min(max(min(lived, 300-second), 0), min(lived, 300))
			ran = min(ran, max(min(lived+second, 300)-second, 0))
			report := loadedReport(r, 0.3+units.Ratio(ran)/300*0.1, 0.3, at(second))

			n := r.NodeAt(report, &arrivals, at(second))
			if got := n.Loads[0].Value + n.Loads[0].OnWay; math.Abs(float64(got)-0.3) > 1e-9 {
				t.Errorf("load and pending load of a pod that lived %d s, %d s later = %v, want 0.3", lived, second, got)
			}
			if n.Loads[1].OnWay != 0 {
				t.Errorf("pending load of a maximum = %v, want 0", n.Loads[1].OnWay)
			}
		}

		if len(arrivals.pods) != 0 {
			t.Errorf("%d pods are kept after the last window, want none", len(arrivals.pods))
		}
	}

	// Never more is subtracted than there is, and nothing without a fresh sample.
	var arrivals Arrivals
	arrivals.End("pod", Credit{Measured: Amount{CPU: 9000}}, at(-3000), at(0))

	if n := r.NodeAt(loadedReport(r, 0.1, 0.1, at(0)), &arrivals, at(0)); n.Loads[0].Value+n.Loads[0].OnWay != 0 {
		t.Errorf("load and pending load = %v, want 0: no more is subtracted than the load of 0.1", n.Loads[0].Value+n.Loads[0].OnWay)
	}
	if n := r.NodeAt(loadedReport(r, 0.1, 0.1, at(-90000)), &arrivals, at(0)); n.Loads[0].OnWay != 0 {
		t.Errorf("pending load beside a stale load = %v, want 0", n.Loads[0].OnWay)
	}

	arrivals = Arrivals{}
	if arrivals.End("never ran", Credit{Measured: Amount{CPU: 1}}, time.Time{}, at(0)) || len(arrivals.pods) != 0 {
		t.Errorf("after End of a pod that never ran %d pods are kept, want no change", len(arrivals.pods))
	}
}

// TestArrivals_UnknownNode checks that, without a sample, a pod counts for a bounded time.
func TestArrivals_UnknownNode(t *testing.T) {
	r := rules(t, Strategy{})
	var arrivals Arrivals
	arrivals.Add("pod", Amount{CPU: 1000, Memory: gib}, at(0))

	report := Report{Capacity: testCapacity(), Samples: make([]Sample, len(r.Policy.Metrics))}
	if n := r.NodeAt(report, &arrivals, at(60)); math.Abs(float64(n.Loads[0].OnWay)-0.1) > 1e-9 || n.Arriving != 1 {
		t.Errorf("after a minute the pending load is %v of %d pods, want 0.1 of 1", n.Loads[0].OnWay, n.Arriving)
	}
	if n := r.NodeAt(report, &arrivals, at(0).Add(r.Horizon())); n.Arriving != 0 || n.Loads[2].OnWay != 0 {
		t.Errorf("after %v %d pods are arriving, want none", r.Horizon(), n.Arriving)
	}
}

func TestEstimate(t *testing.T) {
	share := Share{CPU: 0.5, Memory: 0.25}
	for _, c := range []struct {
		name    string
		ask     PodRequest
		history Amount
		want    Amount
		basis   Basis
	}{
		{"history", PodRequest{Request: Amount{CPU: 1000, Memory: gib}}, Amount{CPU: 300, Memory: 2 * gib}, Amount{CPU: 300, Memory: 2 * gib}, FromHistory},
		{"history above the limit", PodRequest{Limit: Amount{CPU: 200, Memory: gib}}, Amount{CPU: 300, Memory: 2 * gib}, Amount{CPU: 200, Memory: gib}, FromHistory},
		{"request", PodRequest{Request: Amount{CPU: 1000, Memory: gib}}, Amount{}, Amount{CPU: 500, Memory: gib / 4}, FromRequest},
		{"limit", PodRequest{Limit: Amount{CPU: 1000, Memory: gib}}, Amount{}, Amount{CPU: 500, Memory: gib / 4}, FromLimit},
		{"best effort", PodRequest{}, Amount{}, BestEffortUse(), FromNothing},
		{"one of them", PodRequest{Request: Amount{CPU: 1}}, Amount{}, Amount{CPU: 1, Memory: 200 << 20}, FromRequest},
	} {
		if got, basis := Estimate(c.ask, c.history, share); got != c.want || basis != c.basis {
			t.Errorf("%s: Estimate = %v from %v, want %v from %v", c.name, got, basis, c.want, c.basis)
		}
	}

	if got := LearnShare(Amount{CPU: 300, Memory: gib}, Amount{CPU: 1000}); got.CPU != 0.3 || got.Memory != DefaultShare().Memory {
		t.Errorf("LearnShare = %v, want 0.3 for CPU and the default for memory", got)
	}
	if got := LearnShare(Amount{CPU: 9e6}, Amount{CPU: 1}); got.CPU != 1 {
		t.Errorf("LearnShare of a usage above the requests = %v, want 1", got)
	}
}

func TestWindow(t *testing.T) {
	for name, want := range map[string]time.Duration{
		"cpu_usage_avg_5m": 5 * time.Minute, "cpu_usage_avg_1h": time.Hour, "cpu_usage_max_avg_1h": 5 * time.Minute,
		"cpu_usage_avg_10m_raw": 10 * time.Minute, "load": 5 * time.Minute, "cpu_avg_-3s": 5 * time.Minute, "cpu_avg_999h": 5 * time.Minute,
	} {
		if got := Window(Metric{Name: name}); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

func TestDeviation(t *testing.T) {
	var steady, swinging Deviation
	for i := range 40 {
		steady.Add(Sample{Value: 0.4, Time: at(180 * i)})
		swinging.Add(Sample{Value: 0.4 + 0.2*units.Ratio(i%2*2-1), Time: at(180 * i)})
		swinging.Add(Sample{Value: 1, Time: at(180*i - 60)}) // Older than the last.

		if i == 2 && swinging.Ratio() != 0 {
			t.Errorf("Ratio after three samples = %v, want 0", swinging.Ratio())
		}
	}

	if steady.Ratio() != 0 || math.Abs(float64(swinging.Ratio())-0.2) > 0.01 {
		t.Errorf("Ratio of a steady load = %v, of one that swings by 0.2 %v, want 0 and 0.2", steady.Ratio(), swinging.Ratio())
	}
}

func BenchmarkClosedAndWeigh(b *testing.B) {
	r := rules(b, Strategy{})
	rng := rand.New(rand.NewPCG(1, 1))
	nodes := make([]*Node, 5000)
	for i := range nodes {
		nodes[i] = r.NodeAt(loadedReport(r, units.Ratio(rng.Float64()*0.6), 0.3, at(0)), &Arrivals{}, at(0))
	}

	f := fleet(r, at(0), nodes...)
	now := at(10).UnixNano()
	pod := Amount{CPU: 100, Memory: gib}
	b.ReportAllocs()

	for i := 0; b.Loop(); i++ {
		n := nodes[i%len(nodes)]
		if limit, _ := f.Closed(n, pod, now); limit == Open {
			f.CostOf(n, pod, now)
		}
	}
}
