// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package dirty

import (
	"fmt"
	"math"
	"math/rand/v2"

	"crane.io/crane/pkg/series"
)

// killKinds are kills of a container at its memory limit, which samples do not show.
func killKinds() []Kind {
	kinds := []Kind{
		{Name: "kill between scrapes", Minimum: 1, process: killedBetween, damage: records(1)},
		{Name: "kills of a crash loop", Minimum: 1, process: killedBetween, damage: records(200)},
		{Name: "kill in the current hour", Minimum: 1, process: killedBetween, damage: recordsNow},
		{Name: "kill of a pod that is replaced soon", Minimum: 1, process: killedAndReplaced, damage: records(1)},
		{Name: "kills of a sidecar", Minimum: 1, process: killedBetween, damage: sidecar},
	}

	for i := range kinds {
		kinds[i].expect = killedAtLimit
	}

	return append(kinds,
		Kind{Name: "old kill while kube-state-metrics restarts", Minimum: 1, process: killedBetween, damage: sawTooth, expect: killedAtLimit},
		Kind{Name: "kube-state-metrics restarts", Minimum: 1, damage: restartsOfState},
		Kind{Name: "heap limit in the image", Minimum: 1, process: javaProcess, damage: heapMetrics, expect: func(w *Workload) Expectation {
			return Expectation{Memory: Span{0.75 * w.Limit, 1.1 * w.Limit}}
		}},
	)
}

// killedAtLimit accepts memory from the limit on.
func killedAtLimit(w *Workload) Expectation {
	return Expectation{Memory: Span{w.Limit, math.Max(1.6*w.Limit, w.Limit+128*mib)}, Killed: w.Limit}
}

// killedBetween sets the limit to what the process reached for seconds, which no sample shows.
func killedBetween(_ *rand.Rand, w, _ *Workload) {
	w.Limit = math.Round(1.45*w.memory/mib) * mib
	w.Request = w.Limit
}

// killedAndReplaced ends the first pod, which another replaces, some minutes after its kill.
func killedAndReplaced(r *rand.Rand, w, reference *Workload) {
	killedBetween(r, w, reference)
	w.Pods = w.Pods[1:]
	middle := minutes - 3*minutesADay
	w.addPod(r, "web-5d4f8c7b9d-zzzzz", "web-5d4f8c7b9d", 0, middle)
	w.addPod(r, "web-5d4f8c7b9d-wwwww", "web-5d4f8c7b9d", middle, minutes)
}

// killSeries returns the reason of the last termination from a minute on, and adds kills to the counter of restarts.
func killSeries(all []*Series, pod string, at, n int) []*Series {
	for _, s := range all {
		if s.name() != restarts || s.Labels["pod"] != pod {
			continue
		}

		from := at - s.From
		for m := from; m < len(s.Values); m++ {
			s.Values[m] = math.Min(float64(n), float64((m-from)/5+1))
		}

		reason := s.clone("__name__", lastReason, "reason", "OOMKilled")
		for m := range reason.Values {
			reason.Values[m] = 1
			if m < from {
				reason.Values[m] = series.Gap()
			}
		}

		return append(all, reason)
	}

	return all
}

// records adds kills, five minutes apart: shortly before the end of the pod that ends first, or two days ago.
func records(n int) func(*rand.Rand, *Workload, []*Series, string) []*Series {
	return func(r *rand.Rand, w *Workload, all []*Series, _ string) []*Series {
		at := minutes - 2*minutesADay + r.IntN(minutesADay)
		pod := w.Pods[0]
		for _, p := range w.Pods {
			if last := p.From + len(p.Cores); last < minutes {
				pod = p
				at = last - 7
			}
		}

		return killSeries(all, pod.Name, at, n)
	}
}

// recordsNow adds a kill some minutes ago.
func recordsNow(r *rand.Rand, w *Workload, all []*Series, _ string) []*Series {
	return killSeries(all, w.Pods[0].Name, minutes-3-r.IntN(20), 1)
}

// sidecar exports the container as a native sidecar, which has metrics of its own, and adds kills.
func sidecar(r *rand.Rand, w *Workload, all []*Series, neighbor string) []*Series {
	all = records(20)(r, w, all, neighbor)
	for _, s := range all {
		const app, initial = "kube_pod_container_", "kube_pod_init_container_"
		if name := s.name(); len(name) > len(app) && name[:len(app)] == app {
			s.Labels["__name__"] = initial + name[len(app):]
			if s.name() == initial+"info" {
				s.Labels["restart_policy"] = "Always"
			}
		}
	}

	return all
}

// restartsOfState lets kube-state-metrics restart some times: its series pause for minutes and have another instance afterward.
func restartsOfState(r *rand.Rand, _ *Workload, all []*Series, _ string) []*Series {
	var out []*Series
	cuts := []int{minutesADay + r.IntN(minutesADay), 5*minutesADay + r.IntN(minutesADay), minutes - minutesADay + r.IntN(minutesADay/2)}
	for _, s := range all {
		if s.Labels["job"] != "kube-state-metrics" {
			out = append(out, s)
			continue
		}

		for i := range len(cuts) + 1 {
			part := s.clone("instance", fmt.Sprintf("10.0.0.%d:8080", 9+i))
			if i > 0 {
				drop(part.Values, 0, max(0, cuts[i-1]+3-s.From))
			}
			if i < len(cuts) {
				drop(part.Values, max(0, cuts[i]-s.From), minutes)
			}
			out = append(out, part)
		}
	}

	return out
}

// sawTooth records one kill some days ago and then lets kube-state-metrics restart often: its counter of restarts begins at zero for a scrape and
// returns, which is no further kill. The container got a larger limit meanwhile.
func sawTooth(_ *rand.Rand, w *Workload, all []*Series, _ string) []*Series {
	// An EffectiveVPA counts kills of a week.
	const raised = minutes - 5*minutesADay
	all = killSeries(all, w.Pods[0].Name, raised-minutesADay, 1)
	for _, s := range all {
		switch s.name() {
		case restarts:
			for m := raised; m < len(s.Values); m += 700 {
				s.Values[m] = 0
			}
		case requestsName, limitsName:
			for m := raised; m < len(s.Values) && s.Labels["resource"] == "memory"; m++ {
				s.Values[m] *= 2
			}
		}
	}

	return all
}

// javaProcess reserves a heap of three quarters of its limit and uses half of it.
func javaProcess(_ *rand.Rand, w, _ *Workload) {
	w.Limit = math.Round(2.6*w.memory/mib) * mib
	w.Request = w.Limit
}

// heapMetrics adds the metrics of Micrometer.
func heapMetrics(_ *rand.Rand, w *Workload, all []*Series, _ string) []*Series {
	for _, p := range w.Pods {
		heap := &Series{Values: constant(math.Round(0.75*w.Limit), minutes), Labels: map[string]string{
			"__name__":  "jvm_memory_max_bytes",
			"namespace": w.Namespace,
			"pod":       p.Name,
			"container": "app",
			"area":      "heap",
			"id":        "G1 Old Gen",
			"instance":  p.Name,
			"job":       "app",
		}}
		live := heap.clone("__name__", "jvm_gc_live_data_size_bytes")
		live.Values = constant(math.Round(0.4*w.memory), minutes)
		delete(live.Labels, "area")
		delete(live.Labels, "id")
		all = append(all, heap, live)
	}

	return all
}
