// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package dirty

import (
	"math"
	"math/rand/v2"

	"crane.io/crane/internal/testbed/promserver"
	"crane.io/crane/pkg/series"
)

// usageKinds are faults of the series of cAdvisor of one workload.
func usageKinds() []Kind {
	return []Kind{
		{Name: "counter dip", Minimum: 1, damage: onEach(cpuTotal, dip)},
		{Name: "counter reset", Minimum: 1, damage: onEach(cpuTotal, reset)},
		{Name: "counter spike", Minimum: 1, damage: onEach(cpuTotal, spike)},
		{Name: "restart with a new id", Minimum: 1, damage: restartWithNewID},
		{Name: "bogus memory sample", Minimum: 1, damage: onEach(workingSet, bogus)},
		{Name: "NaN, infinite and negative samples", Minimum: 1, damage: onUsage(invalid)},
		{Name: "stale markers", Minimum: 1, damage: onUsage(stale)},
		{Name: "gaps", Minimum: 1, damage: onUsage(gapsOf)},
		{Name: "outage of days", Minimum: 1, damage: outage},
		{Name: "duplicate from a replica", Minimum: 1, damage: replica},
		{Name: "two jobs with two intervals", Minimum: 1, damage: twoJobs},
		{Name: "one pod scraped less often", Minimum: 1, process: unequalPods, damage: slowPod},
		{Name: "scrape interval changes", Minimum: 1, damage: slowerBefore},
		{Name: "clock skew", Minimum: 1, damage: skewed},
		{Name: "no CPU series", Minimum: 1, damage: without(cpuTotal), expect: noUse},
		{Name: "no memory series", Minimum: 1, damage: without(workingSet, activeFile, rss), expect: noUse},
		{Name: "never scraped", Minimum: 1, damage: without(cpuTotal, workingSet, activeFile, rss), expect: func(*Workload) Expectation {
			return Expectation{Refusals: []string{"no use was measured"}, Noted: "have no usage"}
		}},
		{Name: "some pods never scraped", Minimum: 1, damage: onePodScraped, expect: func(*Workload) Expectation {
			return Expectation{Noted: "have no usage"}
		}},
		{Name: "renamed into another namespace", Minimum: 1, damage: renamedInto, expect: func(*Workload) Expectation {
			return Expectation{Refusals: []string{"exported_namespace"}}
		}},
	}
}

// onEach changes the values of each series of a metric.
func onEach(metric string, change func(r *rand.Rand, values []float64)) func(*rand.Rand, *Workload, []*Series, string) []*Series {
	return func(r *rand.Rand, _ *Workload, all []*Series, _ string) []*Series {
		for _, s := range all {
			if s.name() == metric {
				change(r, s.Values)
			}
		}

		return all
	}
}

// onUsage changes the values of each series of cAdvisor.
func onUsage(change func(r *rand.Rand, values []float64)) func(*rand.Rand, *Workload, []*Series, string) []*Series {
	return func(r *rand.Rand, _ *Workload, all []*Series, _ string) []*Series {
		for _, s := range all {
			if s.isCadvisor() {
				change(r, s.Values)
			}
		}

		return all
	}
}

// within returns a minute in the middle of the history that has a sample.
func within(r *rand.Rand, values []float64) int {
	for range 1000 {
		if m := len(values)/10 + r.IntN(len(values)*8/10); isSample(values[m]) {
			return m
		}
	}

	return 0
}

// dip lowers a few samples of a counter below the one before, as two CPUs of different clocks do.
func dip(r *rand.Rand, values []float64) {
	for range 1 + r.IntN(3) {
		m := within(r, values)
		if before := values[m-1]; isSample(before) {
			values[m] = before - 0.01 - 5*r.Float64()
		}
	}
}

// reset restarts a counter.
func reset(r *rand.Rand, values []float64) {
	for range 1 + r.IntN(3) {
		m := within(r, values)
		base := values[m-1]
		if !isSample(base) {
			continue
		}

		for i := m; i < len(values); i++ {
			values[i] -= base
		}
	}
}

// spike multiplies one sample of a counter.
func spike(r *rand.Rand, values []float64) { values[within(r, values)] *= 2 + 1000*r.Float64() }

// bogus replaces a sample by one that no node has.
func bogus(r *rand.Rand, values []float64) {
	values[within(r, values)] = float64(nodeMemory) * (2 + math.Exp(10*r.Float64()))
}

// invalid replaces samples by values that are no measurements.
func invalid(r *rand.Rand, values []float64) {
	for range 20 {
		values[within(r, values)] = []float64{math.Inf(1), math.Inf(-1), -1, math.NaN()}[r.IntN(4)]
	}
}

// stale replaces samples by stale markers.
func stale(r *rand.Rand, values []float64) {
	for range 200 {
		values[within(r, values)] = promserver.StaleMarker()
	}
}

// gapsOf drops a share of the samples, and some hours.
func gapsOf(r *rand.Rand, values []float64) {
	share := 0.3 * r.Float64()
	for m := range values {
		if r.Float64() < share {
			values[m] = series.Gap()
		}
	}

	for range 4 {
		drop(values, r.IntN(len(values)), 30+r.IntN(180))
	}
}

func drop(values []float64, from, length int) {
	for m := from; m < min(len(values), from+length); m++ {
		values[m] = series.Gap()
	}
}

// outage drops two days of everything.
func outage(r *rand.Rand, _ *Workload, all []*Series, _ string) []*Series {
	from := minutesADay * (1 + r.IntN(historyDays-4))
	for _, s := range all {
		drop(s.Values, from, 2*minutesADay)
	}

	return all
}

// restartWithNewID ends each series of a container and continues it under a new id, with a counter from zero.
func restartWithNewID(r *rand.Rand, _ *Workload, all []*Series, _ string) []*Series {
	m := minutesADay + r.IntN(minutes-2*minutesADay)
	for _, s := range all {
		if !s.isCadvisor() {
			continue
		}

		after := s.clone("id", s.Labels["id"]+"-restarted")
		if s.name() == cpuTotal {
			base := s.Values[m-1]
			for i := m; i < len(after.Values); i++ {
				after.Values[i] -= base
			}
		}

		drop(after.Values, 0, m)
		drop(s.Values, m, minutes)
		all = append(all, after)
	}

	return all
}

// replica adds what a second Prometheus scraped.
func replica(_ *rand.Rand, _ *Workload, all []*Series, _ string) []*Series {
	for _, s := range all {
		all = append(all, s.clone("prometheus_replica", "prometheus-1"))
		s.Labels["prometheus_replica"] = "prometheus-0"
	}

	return all
}

// twoJobs adds what a second job with a longer interval scraped.
func twoJobs(r *rand.Rand, _ *Workload, all []*Series, _ string) []*Series {
	interval := []int{2, 3, 5}[r.IntN(3)]
	for _, s := range all {
		if s.isCadvisor() {
			second := s.clone("job", "cadvisor", "instance", "n1")
			thin(second.Values, interval, r.IntN(interval))
			all = append(all, second)
		}
	}

	return all
}

// unequalPods makes the second pod need three times the CPU of the first.
func unequalPods(_ *rand.Rand, w, reference *Workload) {
	for _, x := range []*Workload{w, reference} {
		for m := range x.Pods[1].Cores {
			x.Pods[1].Cores[m] *= 3
		}
	}
}

// slowPod has the second pod scraped by a job of its own, every five minutes.
func slowPod(_ *rand.Rand, w *Workload, all []*Series, _ string) []*Series {
	for _, s := range all {
		if s.isCadvisor() && s.Labels["pod"] == w.Pods[1].Name {
			s.Labels["job"] = "cadvisor"
			thin(s.Values, 5, 2)
		}
	}

	return all
}

// thin keeps every n-th sample.
func thin(values []float64, n, offset int) {
	for m := range values {
		if m%n != offset {
			values[m] = series.Gap()
		}
	}
}

// slowerBefore makes the scrape interval of the first half five minutes.
func slowerBefore(_ *rand.Rand, _ *Workload, all []*Series, _ string) []*Series {
	for _, s := range all {
		if s.isCadvisor() {
			thin(s.Values[:minutes/2], 5, 0)
		}
	}

	return all
}

// skewed moves the samples of a node whose clock is wrong by some minutes.
func skewed(r *rand.Rand, _ *Workload, all []*Series, _ string) []*Series {
	shift := 2 + r.IntN(8)
	ahead := r.IntN(2) == 0
	for _, s := range all {
		if !s.isCadvisor() {
			continue
		}

		moved := gaps(len(s.Values))
		if ahead {
			copy(moved[shift:], s.Values)
		} else {
			copy(moved, s.Values[shift:])
		}
		s.Values = moved
	}

	return all
}

// without removes metrics.
func without(metrics ...string) func(*rand.Rand, *Workload, []*Series, string) []*Series {
	return func(_ *rand.Rand, _ *Workload, all []*Series, _ string) []*Series {
		var out []*Series
		for _, s := range all {
			missing := false
			for _, m := range metrics {
				missing = missing || s.name() == m
			}

			if !missing {
				out = append(out, s)
			}
		}

		return out
	}
}

// noUse accepts that there is no number without a measurement.
func noUse(*Workload) Expectation { return Expectation{Refusals: []string{"no use was measured"}} }

// onePodScraped removes the usage of all pods but the first.
func onePodScraped(_ *rand.Rand, w *Workload, all []*Series, _ string) []*Series {
	var out []*Series
	for _, s := range all {
		if !s.isCadvisor() || s.Labels["pod"] == w.Pods[0].Name {
			out = append(out, s)
		}
	}

	return out
}

// renamedInto gives the series of cAdvisor the namespace of another, as a scrape job without honorLabels does with the namespace of its
// target. They use more than those of the other.
func renamedInto(_ *rand.Rand, w *Workload, all []*Series, neighbor string) []*Series {
	for _, s := range all {
		if s.isCadvisor() {
			s.Labels["exported_namespace"] = w.Namespace
			s.Labels["namespace"] = neighbor
			for m := range s.Values {
				s.Values[m] *= 3
			}
		}
	}

	return all
}
