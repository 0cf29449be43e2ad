// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package dirty

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
)

// stackKinds are what other parts of a monitoring stack do to series: federation, remote write, relabeling, shards, container runtimes. Those
// without a minimum are not right in each round.
func stackKinds() []Kind {
	return []Kind{
		{Name: "federated copy without labels", Minimum: 1, damage: federated},
		{Name: "losses of remote write", Minimum: 1, damage: onUsage(lossy)},
		{Name: "cached counters", damage: onEach(cpuTotal, cached)},
		{Name: "counter at zero for a scrape", Minimum: 1, damage: onEach(cpuTotal, zero)},
		{Name: "counters by CPU", Minimum: 1, damage: byCPU},
		{Name: "cgroups of pods and pause containers", Minimum: 1, damage: otherCgroups},
		{Name: "shards of kube-state-metrics", Minimum: 1, damage: shards},
		{Name: "pod without an owner", Minimum: 1, damage: withoutOwner},
		{Name: "CPU request of zero", Minimum: 1, damage: zeroRequest},
		{Name: "container renamed", Minimum: 1, damage: renamedContainer},
		{Name: "resized in place", Minimum: 1, process: clipped, damage: resized},
	}
}

// federated adds the series as a federation or a recording rule of the same name keeps them: every five minutes, and with the labels of the
// container alone.
func federated(_ *rand.Rand, _ *Workload, all []*Series, _ string) []*Series {
	for _, s := range slices.Clone(all) {
		if !s.isCadvisor() {
			continue
		}

		second := s.clone("job", "federate")
		for _, name := range []string{"id", "instance", "node", "cpu"} {
			delete(second.Labels, name)
		}

		thin(second.Values, 5, 3)
		all = append(all, second)
	}

	return all
}

// lossy drops some hours of each series, others of each.
func lossy(r *rand.Rand, values []float64) {
	for range 12 {
		drop(values, r.IntN(len(values)), 20+r.IntN(400))
	}
}

// cached repeats a counter for some scrapes, as an exporter with a cache does: rates over a few scrapes are then up to half too large.
func cached(r *rand.Rand, values []float64) {
	n := 2 + r.IntN(2)
	for m := range values {
		if m%n != 0 && isSample(values[m]) && isSample(values[m-1]) {
			values[m] = values[m-1]
		}
	}
}

// zero sets a counter to zero for a scrape, as an agent that starts does.
func zero(r *rand.Rand, values []float64) {
	for range 1 + r.IntN(3) {
		values[within(r, values)] = 0
	}
}

// byCPU splits the counters by CPU.
func byCPU(r *rand.Rand, _ *Workload, all []*Series, _ string) []*Series {
	share := 0.2 + 0.6*r.Float64()
	for _, s := range slices.Clone(all) {
		if s.name() != cpuTotal {
			continue
		}

		other := s.clone("cpu", "cpu01")
		s.Labels["cpu"] = "cpu00"
		for m := range s.Values {
			other.Values[m] *= 1 - share
			s.Values[m] *= share
		}

		all = append(all, other)
	}

	return all
}

// otherCgroups adds the cgroups of pods, whose use includes that of their containers, and of pause containers.
func otherCgroups(_ *rand.Rand, _ *Workload, all []*Series, _ string) []*Series {
	for _, s := range slices.Clone(all) {
		if !s.isCadvisor() {
			continue
		}

		pod := s.clone("id", strings.TrimSuffix(s.Labels["id"], "/c0"))
		delete(pod.Labels, "container")
		pause := s.clone("id", s.Labels["id"]+"-pause", "container", "POD")
		for m := range s.Values {
			pod.Values[m] *= 1.2
			pause.Values[m] *= 0.2
		}

		all = append(all, pod, pause)
	}

	return all
}

// shards has each pod exported by one of two shards of kube-state-metrics, which change in the middle: both export it for an hour.
func shards(r *rand.Rand, _ *Workload, all []*Series, _ string) []*Series {
	change := minutes/4 + r.IntN(minutes/2)
	for _, s := range slices.Clone(all) {
		if !isState(s) || s.Labels["instance"] == "" {
			continue
		}

		other := s.clone("instance", "10.0.0.10:8080", "shard", "1")
		drop(other.Values, 0, max(0, change-s.From))
		drop(s.Values, max(0, change+60-s.From), minutes)
		all = append(all, other)
	}

	return all
}

// withoutOwner removes what is known of the owner of the first pod, as of one that lives while kube-state-metrics does not run.
func withoutOwner(_ *rand.Rand, w *Workload, all []*Series, _ string) []*Series {
	return slices.DeleteFunc(all, func(s *Series) bool { return s.name() == podOwner && s.Labels["pod"] == w.Pods[0].Name })
}

// zeroRequest sets the CPU request to zero, which is not the same as none.
func zeroRequest(_ *rand.Rand, _ *Workload, all []*Series, _ string) []*Series {
	for _, s := range all {
		if s.name() != requestsName || s.Labels["resource"] != "cpu" {
			continue
		}

		for m := range s.Values {
			s.Values[m] *= 0
		}
	}

	return all
}

// renamedContainer gives the container another name in the first days.
func renamedContainer(r *rand.Rand, _ *Workload, all []*Series, _ string) []*Series {
	change := (1 + r.IntN(5)) * minutesADay
	for _, s := range slices.Clone(all) {
		if s.Labels["container"] != "app" {
			continue
		}

		before := s.clone("container", "main")
		if id := s.Labels["id"]; id != "" {
			before.Labels["id"] = id + "-main"
		}

		drop(before.Values, change, minutes)
		drop(s.Values, 0, change)
		all = append(all, before)
	}

	return all
}

// clipped keeps CPU below a limit in the first days, as a process that needs more has it there.
func clipped(_ *rand.Rand, w, _ *Workload) {
	for _, p := range w.Pods {
		for m := range p.Cores[:resizedAt] {
			p.Cores[m] = math.Min(p.Cores[m], 0.7*w.cpu)
		}
	}
}

// resizedAt is the minute at which containers are resized: a week before the end.
const resizedAt = minutes / 2

// resized exports a limit that is raised in place.
func resized(_ *rand.Rand, w *Workload, all []*Series, _ string) []*Series {
	for _, s := range slices.Clone(all) {
		if s.name() != requestsName || s.Labels["resource"] != "cpu" {
			continue
		}

		limit := s.clone("__name__", limitsName)
		for m := range limit.Values {
			limit.Values[m] = 3 * w.cpu
			if m < resizedAt {
				limit.Values[m] = 0.7 * w.cpu
				s.Values[m] = 0.7 * w.cpu
			}
		}

		all = append(all, limit)
	}

	return all
}
