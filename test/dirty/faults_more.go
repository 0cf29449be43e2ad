// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package dirty

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"crane.io/crane/pkg/series"
)

const (
	oomEvents        = "container_oom_events_total"
	periods          = "container_cpu_cfs_periods_total"
	throttledPeriods = "container_cpu_cfs_throttled_periods_total"
)

// moreKinds are variants of the other faults.
func moreKinds() []Kind {
	return []Kind{
		{Name: "pod of the same name again", Minimum: 1, process: statefulSet, damage: sameNameAgain},
		{Name: "extreme samples", Minimum: 1, damage: onUsage(extreme)},
		{Name: "scrape interval grows", Minimum: 1, damage: slowerAfter},
		{Name: "clock skew of kube-state-metrics", Minimum: 1, damage: skewedState},
		{Name: "runs of one sample", Minimum: 1, process: tinyRuns, expect: func(w *Workload) Expectation {
			return Expectation{CPU: Span{0, 2 * w.cpu}, Memory: Span{0.85 * w.memory, 1.6 * w.memory}, Refusals: []string{"no use was measured", "no use of a run was measured"}}
		}},
		{Name: "kill of a process", Minimum: 1, process: killedBetween, damage: processKilled, expect: killedAtLimit},
		{Name: "kill seen by two kube-state-metrics", Minimum: 1, process: killedBetween, damage: twoStates, expect: killedAtLimit},
		{Name: "kill at an unknown limit", Minimum: 1, process: killedBetween, damage: killedWithoutLimits, expect: killedAtLimit},
		{Name: "throttled in bursts", Minimum: 1, process: limitedCPU, damage: throttledBy(0.4), expect: func(w *Workload) Expectation {
			return Expectation{CPU: Span{0.99 * w.LimitCPU, 1.15 * w.LimitCPU}, Covered: math.Inf(1), Named: []string{"throttled in"}}
		}},
		{Name: "not throttled by its counters", Minimum: 1, process: limitedCPU, damage: throttledBy(0)},
	}
}

// statefulSet names the pods of a StatefulSet.
func statefulSet(_ *rand.Rand, w, reference *Workload) {
	for _, x := range []*Workload{w, reference} {
		x.Kind = "StatefulSet"
		for i, p := range x.Pods {
			p.Name = "web-" + string(rune('0'+i))
			p.Owner = ""
		}
	}
}

// sameNameAgain replaces a pod by another one of the same name, with a cgroup, a UID and counters of its own.
func sameNameAgain(r *rand.Rand, w *Workload, all []*Series, neighbor string) []*Series {
	all = restartWithNewID(r, w, all, neighbor)
	for _, s := range all {
		if s.isCadvisor() {
			s.Labels["id"] = strings.Replace(s.Labels["id"], "/c0-restarted", "-again/c0", 1)
		}
	}

	return all
}

// extreme replaces samples by numbers at the ends of the range of floats.
func extreme(r *rand.Rand, values []float64) {
	for range 8 {
		values[within(r, values)] = []float64{math.MaxFloat64, -math.MaxFloat64, math.SmallestNonzeroFloat64, 1e300, math.Copysign(0, -1)}[r.IntN(5)]
	}
}

// slowerAfter makes the scrape interval of the second half five minutes.
func slowerAfter(_ *rand.Rand, _ *Workload, all []*Series, _ string) []*Series {
	for _, s := range all {
		if s.isCadvisor() && len(s.Values) == minutes {
			thin(s.Values[minutes/2:], 5, 0)
		}
	}

	return all
}

// skewedState moves the samples of kube-state-metrics by some minutes.
func skewedState(r *rand.Rand, _ *Workload, all []*Series, _ string) []*Series {
	shift := 2 + r.IntN(8)
	for _, s := range all {
		if isState(s) {
			moved := gaps(len(s.Values))
			copy(moved[shift:], s.Values)
			s.Values = moved
		}
	}

	return all
}

// tinyRuns runs a CronJob for one scrape.
func tinyRuns(r *rand.Rand, w, reference *Workload) {
	for _, x := range []*Workload{w, reference} {
		x.Kind = "CronJob"
	}
	w.runs(r, 60, 1, cronName)
	reference.runs(r, 120, 9, cronName)
}

// processKilled counts a kill of a process in a container that goes on.
func processKilled(r *rand.Rand, w *Workload, all []*Series, _ string) []*Series {
	at := minutes - 2*minutesADay + r.IntN(minutesADay)
	for _, s := range all {
		if s.name() != workingSet {
			continue
		}

		count := s.clone("__name__", oomEvents)
		for m := range count.Values {
			count.Values[m] = 0
			if m >= at && s.Labels["pod"] == w.Pods[0].Name {
				count.Values[m] = 1
			}
		}

		all = append(all, count)
	}

	return all
}

// twoStates has a kill exported by two instances of kube-state-metrics.
func twoStates(r *rand.Rand, w *Workload, all []*Series, neighbor string) []*Series {
	all = records(1)(r, w, all, neighbor)
	for _, s := range slices.Clone(all) {
		if isState(s) {
			all = append(all, s.clone("instance", "10.0.0.77:8080"))
		}
	}

	return all
}

// killedWithoutLimits has a kill while limits are not exported: the request, which was the limit, must not be lowered.
func killedWithoutLimits(r *rand.Rand, w *Workload, all []*Series, neighbor string) []*Series {
	return without(limitsName)(r, w, records(1)(r, w, all, neighbor), neighbor)
}

// limitedCPU sets a CPU limit, and the request to the same.
func limitedCPU(_ *rand.Rand, w, reference *Workload) {
	for _, x := range []*Workload{w, reference} {
		x.LimitCPU = x.RequestCPU
	}
}

// throttledBy adds the counters of the kernel with a share of throttled periods.
func throttledBy(share float64) func(*rand.Rand, *Workload, []*Series, string) []*Series {
	return func(_ *rand.Rand, _ *Workload, all []*Series, _ string) []*Series {
		for _, s := range slices.Clone(all) {
			if s.name() != cpuTotal {
				continue
			}

			total := s.clone("__name__", periods)
			throttled := s.clone("__name__", throttledPeriods)
			for m := range total.Values {
				if series.IsGap(total.Values[m]) {
					continue
				}

				total.Values[m] = 600 * float64(m)
				throttled.Values[m] = 600 * share * float64(m)
			}

			all = append(all, total, throttled)
		}

		return all
	}
}

// severalKind applies some faults at once, each of which leaves the right answer as it is.
func severalKind() Kind {
	names := []string{
		"counter dip", "bogus memory sample", "NaN, infinite and negative samples", "stale markers", "gaps", "outage of days",
		"duplicate from a replica", "two jobs with two intervals", "scrape interval changes", "clock skew", "kube-state-metrics restarts",
	}

	k := Kind{Name: "several faults", Minimum: 1}
	for _, all := range [][]Kind{usageKinds(), killKinds()} {
		for _, part := range all {
			if slices.Contains(names, part.Name) {
				k.parts = append(k.parts, part)
			}
		}
	}

	return k
}

// choose returns the kind with the two to four of its parts that it has in a round. A kind without parts, or with chosen ones, stays.
func (k Kind) choose(round uint64) Kind {
	if len(k.parts) == 0 || k.chosen {
		return k
	}

	r := rand.New(rand.NewPCG(seedOf(round, k.Name), 4))
	order := r.Perm(len(k.parts))[:2+r.IntN(3)]
	slices.Sort(order)

	chosen := k
	chosen.parts = nil
	chosen.chosen = true
	for _, i := range order {
		chosen.parts = append(chosen.parts, k.parts[i])
	}

	return chosen
}

// smallest returns the fewest faults that still fail: it leaves out each in turn that is not needed for that.
func smallest(faults []Kind, fails func([]Kind) (bool, error)) ([]Kind, error) {
	for i := 0; i < len(faults) && len(faults) > 1; {
		rest := slices.Delete(slices.Clone(faults), i, i+1)
		failed, err := fails(rest)
		if err != nil {
			return nil, err
		}

		if failed {
			faults = rest
		} else {
			i++
		}
	}

	return faults, nil
}
