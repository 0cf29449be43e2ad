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

// The metrics of CPU in gocrane's policy.
const present, hourly, daily = 0, 1, 2

func report(r *Rules, now, peak units.Ratio, measured time.Time) Report {
	out := loadedReport(r, now, 0.1, measured)
	out.Samples[hourly].Value = peak
	out.Samples[daily].Value = peak

	return out
}

// TestMaximum_RisesByExcess checks that a pod raises a maximum only by the excess of present load, pending load and pod
// over it.
func TestMaximum_RisesByExcess(t *testing.T) {
	r := rules(t, Strategy{})
	for _, c := range []struct {
		name      string
		now, peak units.Ratio
		arrivals  int // of 10 % each
		ended     int // of 10 % each, still in the average and in the maximum
		onWay     units.Ratio
		slack     units.Ratio
		incoming  units.Ratio // of a pod of 10 %
	}{
		{name: "far below", now: 0.2, peak: 0.6, arrivals: 2, slack: 0.2},
		{name: "next to it", now: 0.2, peak: 0.6, arrivals: 4, incoming: 0.1},
		{name: "in part", now: 0.25, peak: 0.6, arrivals: 3, slack: 0.05, incoming: 0.05},
		{name: "above", now: 0.2, peak: 0.3, arrivals: 3, onWay: 0.2, incoming: 0.1},
		{name: "an older maximum is below the present", now: 0.5, peak: 0.4, onWay: 0.1, incoming: 0.1},
		{name: "what ended stays in a maximum", now: 0.6, peak: 0.6, ended: 2, slack: 0.2},
		{name: "what ended makes room", now: 0.6, peak: 0.6, arrivals: 2, ended: 2, incoming: 0.1},
	} {
		t.Run(c.name, func(t *testing.T) {
			var arrivals Arrivals
			for i := range c.arrivals {
				arrivals.Add(fmt.Sprint("new", i), Amount{CPU: 1000}, time.Time{})
			}

			for i := range c.ended {
				arrivals.End(fmt.Sprint("old", i), Credit{Measured: Amount{CPU: 1000}}, at(-3000), at(0))
			}

			n := r.NodeAt(report(r, c.now, c.peak, at(0)), &arrivals, at(0))
			for _, metric := range []int{hourly, daily} {
				l := n.Loads[metric]
				incoming := n.Incoming(metric, Amount{CPU: 1000})
				if !near(l.OnWay, c.onWay) || !near(l.Slack, c.slack) || !near(incoming, c.incoming) {
					t.Errorf("pending load %v, slack %v, a pod adds %v, want %v, %v, %v", l.OnWay, l.Slack, incoming, c.onWay, c.slack, c.incoming)
				}
			}

			if l := n.Loads[present]; l.Slack != 0 || !near(n.Incoming(present, Amount{CPU: 1000}), 0.1) {
				t.Errorf("slack of an average = %v, want 0, and 0.1 for a pod of 1000", l.Slack)
			}
		})
	}
}

func near(a, b units.Ratio) bool { return math.Abs(float64(a-b)) < 1e-9 }

// TestMaximum_WithoutPresent checks that the maximum bounds the present load if that is unknown, and that arrived and
// ended pods compensate each other.
func TestMaximum_WithoutPresent(t *testing.T) {
	r := rules(t, Strategy{})
	stale := report(r, 0.2, 0.5, at(0))
	stale.Samples[present].Time = at(-3600)
	var arrivals Arrivals
	arrivals.Add("pod", Amount{CPU: 1000}, time.Time{})

	if l := r.NodeAt(stale, &arrivals, at(0)).Loads[hourly]; !near(l.OnWay, 0.1) || l.Slack != 0 {
		t.Errorf("maximum beside a stale present = %+v, want a pending load of 0.1 and no slack", l)
	}

	absent := loadedReport(r, 0.2, 0.1, at(0))
	absent.Samples[hourly] = Sample{}
	if l := r.NodeAt(absent, &arrivals, at(0)).Loads[hourly]; l.OnWay < 0 || l.Slack != 0 {
		t.Errorf("absent maximum = %+v, want no negative pending load and no slack", l)
	}

	alone := rules(t, Strategy{}, func(s *Spec) {
		s.Metrics = s.Metrics[1:2]
		s.Predicates = s.Predicates[1:2]
		s.Priorities = s.Priorities[1:2]
	})

	arrivals.End("old", Credit{Measured: Amount{CPU: 3000}}, at(-3000), at(0))
	one := Report{Capacity: testCapacity(), Samples: []Sample{{Value: 0.5, Time: at(0)}}}
	if l := alone.NodeAt(one, &arrivals, at(0)).Loads[0]; l.OnWay != 0 || !near(l.Slack, 0.2) {
		t.Errorf("maximum without a present = %+v, want no pending load and a slack of 0.2", l)
	}
	if n := alone.NodeAt(one, &arrivals, at(0).Add(alone.Horizon())); n.Arriving != 1 {
		t.Errorf("%d pods are remembered; want the one that does not run", n.Arriving)
	}
}

// TestMaximum_Random checks for random events that a fresh maximum with pending load is the larger of itself and the present
// load with pending load, and that incremental placement gives the same node as a rebuild.
func TestMaximum_Random(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for range 3000 {
		r := rules(t, Strategy{})
		var arrivals Arrivals
		for i := range rng.IntN(8) {
			use := Amount{CPU: units.MilliCPU(rng.IntN(3000)), Memory: units.Bytes(rng.IntN(10)) * gib}
			started := at(-rng.IntN(900))
			switch rng.IntN(3) {
			case 0:
				arrivals.Add(fmt.Sprint(i), use, time.Time{})
			case 1:
				arrivals.Add(fmt.Sprint(i), use, started)
			default:
				arrivals.End(fmt.Sprint(i), Credit{Measured: use}, started.Add(-time.Hour), started)
			}
		}

		seen := report(r, units.Ratio(rng.Float64()), units.Ratio(rng.Float64()), at(-rng.IntN(200)))
		n := r.NodeAt(seen, &arrivals, at(0))
		for _, metric := range []int{hourly, daily} {
			l := n.Loads[metric]
			p := n.Loads[present]
			if got, want := l.Value+l.OnWay, max(l.Value, p.Value+p.OnWay); !near(got, want) || l.OnWay < 0 || l.Slack < 0 || l.OnWay > 0 && l.Slack > 0 {
				t.Fatalf("maximum %+v beside a present of %+v, want load and pending load %v and no slack with pending load", l, p, want)
			}
		}

		pod := Amount{CPU: units.MilliCPU(rng.IntN(4000)), Memory: gib}
		joined := n.WithPod(pod)
		arrivals.Add("pod", pod, time.Time{})

		looked := r.NodeAt(seen, &arrivals, at(0))
		for i := range joined.Loads {
			// An average cannot become negative by pods that ended: it stays at 0, and new load is added from there.
			average := n.Loads[i/3*3]
			if average.OnWay > -average.Value && !near(joined.Loads[i].OnWay, looked.Loads[i].OnWay) {
				t.Fatalf("metric %d: WithPod = %+v, want as NodeAt: %+v", i, joined.Loads[i], looked.Loads[i])
			}
		}
	}
}

// TestClosed_Churn lets pods that live ten minutes come and go on a node that they fill by 40 %. Its averages
// are read every three minutes and its maxima every fifteen, as in gocrane's policy. The node stays open: pods that
// started since the maximum was read do not add up on it, although twice as many start between two readings as ever
// run at once.
func TestClosed_Churn(t *testing.T) {
	const pods, life, use, second = 8, 600, 500, time.Second
	r := rules(t, Strategy{})
	var arrivals Arrivals

	seen := report(r, 0.4, 0.4, at(0))
	for now := 0; now < 4*3600; now += 15 {
		if now%(life/pods) == 0 {
			name := func(born int) string { return fmt.Sprint(born) }
			arrivals.End(name(now-life), Credit{Measured: Amount{CPU: use}}, at(now-life), at(now))

			f := fleet(r, at(now), r.NodeAt(seen, &arrivals, at(now)))
			if limit, _ := f.Closed(r.NodeAt(seen, &arrivals, at(now)), Amount{CPU: use}, at(now).UnixNano()); limit != Open {
				t.Fatalf("after %v closed by %s, want open", time.Duration(now)*second, r.Policy.Metrics[r.Policy.Limits[limit].Metric].Name)
			}

			arrivals.Add(name(now), Amount{CPU: use}, at(now))
		}

		for i, m := range r.Policy.Metrics {
			if now%int(m.Period/second) == 0 {
				seen.Samples[i].Time = at(now)
			}
		}

		if n := r.NodeAt(seen, &arrivals, at(now)); n.Arriving > 3*pods {
			t.Fatalf("after %v %d pods are kept, want at most %d", time.Duration(now)*second, n.Arriving, 3*pods)
		}
	}
}

// TestGauge checks that the metric read most often is the present load, and that forecasts and maxima are used only
// without another one.
func TestGauge(t *testing.T) {
	for _, c := range []struct {
		metrics []Metric
		want    int
	}{
		{[]Metric{{Name: "cpu_usage_max_avg_1h", Period: time.Minute}, {Name: "cpu_usage_avg_5m", Period: time.Hour}}, 1},
		{[]Metric{{Name: "cpu_peak", Period: time.Minute, From: FromForecast}, {Name: "cpu_usage_avg_5m", Period: time.Hour}}, 1},
		{[]Metric{{Name: "cpu_usage_max_avg_1d", Period: time.Hour}, {Name: "cpu_usage_max_avg_1h", Period: time.Minute}}, 1},
		{[]Metric{{Name: "cpu_usage_avg_5m", Period: time.Minute}, {Name: "cpu_now", Period: time.Minute, From: FromMetricsServer}}, 0},
	} {
		p, err := NewPolicy(Spec{Metrics: c.metrics, Priorities: []NamedWeight{{c.metrics[0].Name, 1}}})
		if err != nil {
			t.Fatal(err)
		}

		for i := range p.Metrics {
			p.Metrics[i].Resource = units.CPU
		}

		if at, found := p.Gauge(units.CPU); !found || at != c.want {
			t.Errorf("%+v: %d, want %d", c.metrics, at, c.want)
		}
	}
}

// TestMaximum_Forecast checks that arriving pods are added to a forecast, which was made without them, and that
// ended ones are subtracted.
func TestMaximum_Forecast(t *testing.T) {
	r := rules(t, Strategy{}, func(s *Spec) { s.Metrics[hourly].From = FromForecast })
	var arrivals Arrivals
	arrivals.Add("pod", Amount{CPU: 2000}, time.Time{})

	n := r.NodeAt(report(r, 0.2, 0.6, at(0)), &arrivals, at(0))
	if l := n.Loads[hourly]; !near(l.OnWay, 0.2) || l.Slack != 0 {
		t.Errorf("forecast = %+v, want a pending load of 0.2 and no slack", l)
	}
	if l := n.Loads[daily]; l.OnWay != 0 || !near(l.Slack, 0.2) {
		t.Errorf("maximum beside a forecast = %+v, want no pending load and a slack of 0.2", l)
	}
}

// TestResidualShare checks that an average contains an ended pod by the part of its window in which the pod ran.
func TestResidualShare(t *testing.T) {
	const window = 5 * time.Minute
	for _, c := range []struct {
		started, ended, measured int
		want                     units.Ratio
	}{
		{started: -3000, ended: 0, measured: 0, want: 1},
		{started: -3000, ended: 0, measured: 150, want: 0.5},
		{started: -3000, ended: 0, measured: 300, want: 0},
		{started: -3000, ended: 0, measured: 9000, want: 0},
		{started: -3000, ended: 100, measured: 0, want: 1}, // measured before it ended
		{started: -180, ended: 0, measured: 0, want: 0.5},  // warm for half of the window
		{started: -180, ended: 0, measured: 75, want: 0.5}, // and all of that is still in it
		{started: -180, ended: 0, measured: 225, want: 0.25},
		{started: -20, ended: 0, measured: 0, want: 0}, // never warm
	} {
		if got := ResidualShare(at(c.started), at(c.ended), at(c.measured), window); !near(got, c.want) {
			t.Errorf("ResidualShare of %+v = %v, want %v", c, got, c.want)
		}
	}

	rng := rand.New(rand.NewPCG(5, 6))
	for range 2000 {
		ended := rng.IntN(4000) - 2000
		started := ended - rng.IntN(1000)
		measured := ended + rng.IntN(1000) - 200
		got := ResidualShare(at(started), at(ended), at(measured), window)
		later := ResidualShare(at(started), at(ended), at(measured+1), window)

		if got < 0 || got > Coverage(at(started), at(measured), window) {
			t.Fatalf("ResidualShare(started %d, ended %d, measured %d) = %v, want 0 to Coverage", started, ended, measured, got)
		}

		if measured >= ended && measured >= started+30+300 && later > got+1e-12 {
			t.Fatalf("ResidualShare(started %d, ended %d, measured %d) = %v, then %v, want no rise", started, ended, measured, got, later)
		}
	}
}

// TestArrivals_End checks that an end is reported once and that nothing remains of a pod that never ran.
func TestArrivals_End(t *testing.T) {
	var a Arrivals
	use := Amount{CPU: 100}
	a.Add("waiting", use, time.Time{})

	if !a.End("waiting", Credit{Measured: use}, time.Time{}, at(0)) || a.Has("waiting") {
		t.Error("a pod that did not run is kept after End, want it removed")
	}

	a.Add("running", use, at(-60))
	if !a.End("running", Credit{Measured: use}, at(-60), at(0)) || a.End("running", Credit{Measured: use}, at(-60), at(1)) || !a.Has("running") || a.Len() != 0 {
		t.Error("End of a running pod: want true, then false, and the pod kept but not arriving")
	}
	if a.Start("running", at(5)) {
		t.Error("Start of a pod that ended = true, want false")
	}
	if !a.Remove("running") || a.Has("running") {
		t.Error("Remove of a pod that ended = false, want it removed")
	}

	if !a.End("covered", Credit{Measured: use}, at(-9000), at(0)) || a.Len() != 0 || !a.Has("covered") {
		t.Error("End of a pod that was covered: want true, and the pod kept but not arriving")
	}
}
