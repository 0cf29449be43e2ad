// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package dirty

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"crane.io/crane/pkg/series"
)

// processKinds are processes whose need is easily read wrong.
func processKinds() []Kind {
	return []Kind{
		{Name: "new pods each day", Minimum: 1, process: rollouts},
		{Name: "part time", Minimum: 1, process: partTime},
		{Name: "weekly peak", process: weeklyPeak, expect: func(w *Workload) Expectation {
			return Expectation{CPU: Span{0.85 * w.cpu, 8 * w.cpu}, Covered: 0.85 * w.peak, Named: []string{"peak", "day each week", "every ", "target-missed"}}
		}},
		{Name: "leader", Minimum: 1, process: leader, expect: func(w *Workload) Expectation {
			return Expectation{Memory: Span{3 * w.memory, 4 * w.memory}}
		}},
		{Name: "leak with restarts", Minimum: 1, process: leak, expect: func(w *Workload) Expectation {
			return Expectation{Memory: Span{0.85 * w.memory, 3 * w.memory}}
		}},
		{Name: "page cache", Minimum: 1, process: pageCache, expect: func(w *Workload) Expectation {
			// The policies hold a part of the cache.
			return Expectation{Memory: Span{0.85 * w.memory, 2 * w.memory}}
		}},
		{Name: "runs by the thousand", Minimum: 1, process: manyRuns},
		{Name: "runs of two minutes", Minimum: 1, process: shortRuns, expect: func(w *Workload) Expectation {
			return Expectation{CPU: Span{0.5 * w.cpu, 2 * w.cpu}, Memory: Span{0.85 * w.memory, 1.6 * w.memory}}
		}},
		{Name: "bare pods with random names", Minimum: 1, process: bareRuns},
		{Name: "Jobs with random names", Minimum: 1, process: randomJobs},
	}
}

// rollouts replaces the pods by those of a new ReplicaSet every day.
func rollouts(r *rand.Rand, w, _ *Workload) {
	w.Pods = nil
	for day := range historyDays {
		owner := "web-" + suffix(day) + "bb"
		for i := range 2 {
			w.addPod(r, owner+"-"+suffix(i), owner, day*minutesADay, (day+1)*minutesADay)
		}
	}
}

// keep removes the process outside of some times.
func (w *Workload) keep(runs func(time.Time) bool) {
	for _, p := range w.Pods {
		for m := range p.Cores {
			if !runs(timeOf(p.From + m)) {
				p.Cores[m] = series.Gap()
				p.Bytes[m] = series.Gap()
			}
		}
	}
}

// partTime runs the process for nine hours on weekdays only.
func partTime(_ *rand.Rand, w, _ *Workload) {
	w.keep(func(t time.Time) bool {
		return t.Weekday() != time.Saturday && t.Weekday() != time.Sunday && t.Hour() >= 8 && t.Hour() < 17
	})
}

// weeklyPeak needs some times as much CPU for six hours of one weekday.
func weeklyPeak(r *rand.Rand, w, _ *Workload) {
	weekday := time.Weekday(1 + r.IntN(5))
	factor := 3 + 3*r.Float64()
	w.peak = factor * w.cpu
	for _, p := range w.Pods {
		for m := range p.Cores {
			if t := timeOf(p.From + m); t.Weekday() == weekday && t.Hour() >= 6 && t.Hour() < 12 {
				p.Cores[m] = min(nodeCPU, factor*p.Cores[m])
			}
		}
	}
}

// leader makes the first pod of a StatefulSet need three times the memory of its followers.
func leader(_ *rand.Rand, w, _ *Workload) {
	w.Kind = "StatefulSet"
	w.Limit = 8 * w.memory
	for i, p := range w.Pods {
		p.Name = fmt.Sprintf("web-%d", i)
		p.Owner = ""
		for m := range p.Bytes {
			if i == 0 {
				p.Bytes[m] *= 3.1
			}
		}
	}
}

// leak makes the memory of the first pod grow until it doubles, and then restarts it, every five days. Its sibling does not leak.
func leak(_ *rand.Rand, w, _ *Workload) {
	w.Limit = 4 * w.memory
	for m := range w.Pods[0].Bytes {
		w.Pods[0].Bytes[m] *= 1 + float64(m%(5*minutesADay))/(5*minutesADay)
	}
}

// pageCache adds a cache that fills up to the limit over each day.
func pageCache(r *rand.Rand, w, _ *Workload) {
	for _, p := range w.Pods {
		p.Cache = gaps(len(p.Bytes))
		for m := range p.Cache {
			free := w.Limit - p.Bytes[m]
			p.Cache[m] = math.Max(0, free*0.9*float64(m%minutesADay)/minutesADay*(0.9+0.1*r.Float64()))
		}
	}
}

// runs replaces the pods by runs of some minutes, of which the last one is there now.
func (w *Workload) runs(r *rand.Rand, every, length int, name func(i, minute int) (pod, owner string)) {
	w.Pods = nil
	i := 0
	for m := (minutes - length) % every; m+length <= minutes; m += every {
		pod, owner := name(i, m)
		w.addPod(r, pod, owner, m, m+length)
		i++
	}
}

// cronName names the pods of a CronJob.
func cronName(_, minute int) (pod, owner string) {
	owner = fmt.Sprintf("web-%d", timeOf(minute).Unix()/60)
	return owner + "-x8k2p", owner
}

// manyRuns runs a CronJob every 20 minutes; its reference runs every two hours.
func manyRuns(r *rand.Rand, w, reference *Workload) {
	for _, x := range []*Workload{w, reference} {
		x.Kind = "CronJob"
	}
	w.runs(r, 20, 9, cronName)
	reference.runs(r, 120, 9, cronName)
}

// shortRuns runs a CronJob for less than the window of a rate.
func shortRuns(r *rand.Rand, w, reference *Workload) {
	for _, x := range []*Workload{w, reference} {
		x.Kind = "CronJob"
	}
	w.runs(r, 60, 3, cronName)
	reference.runs(r, 120, 9, cronName)
}

// bareRuns runs pods without a controller whose names end at random, as CI and Airflow do; its reference is a CronJob.
func bareRuns(r *rand.Rand, w, reference *Workload) {
	reference.Kind = "CronJob"
	reference.runs(r, 120, 30, cronName)
	w.Kind = "Pod"
	w.runs(r, 120, 30, func(int, int) (string, string) { return fmt.Sprintf("web-load-%08x", r.Uint32()), "" })
}

// randomJobs runs Jobs that nothing owns, each with a name that ends at random; its reference is a CronJob.
func randomJobs(r *rand.Rand, w, reference *Workload) {
	reference.Kind = "CronJob"
	reference.runs(r, 120, 30, cronName)
	w.Kind = "Job"
	w.runs(r, 120, 30, func(i, _ int) (string, string) {
		owner := "web-load-" + suffix(7*i+r.IntN(5))
		return owner + "-" + suffix(i), owner
	})
}
