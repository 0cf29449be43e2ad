// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package messy

import (
	"fmt"
	"math/rand/v2"
)

// stream separates the numbers of this package from those of others with the same seed.
const stream = 36

// drawer draws from a sequence of random numbers.
type drawer struct{ rng *rand.Rand }

// Draw returns the case of a seed with a number of events.
func Draw(seed uint64, events int) Case {
	d := drawer{rand.New(rand.NewPCG(seed, stream))}
	c := Case{Seed: seed, Namespace: d.namespace()}
	for i := range 1 + d.rng.IntN(2) {
		c.Workloads = append(c.Workloads, d.workload(fmt.Sprintf("w%d", i)))
	}

	for range events {
		c.Events = append(c.Events, d.event(c.Workloads))
	}

	return c
}

// once reports true in one of n draws.
func (d drawer) once(n int) bool { return d.rng.IntN(n) == 0 }

func pick[T any](d drawer, from ...T) T { return from[d.rng.IntN(len(from))] }

// amounts draws CPU in millicores and memory in MiB.
func (d drawer) amounts() Amounts {
	return Amounts{CPU: 50 * (1 + d.rng.Int64N(40)), Memory: 64 * (1 + d.rng.Int64N(16))}
}

func (d drawer) namespace() Namespace {
	ns := Namespace{}
	if d.once(2) {
		for range 1 + d.rng.IntN(2) {
			ns.LimitRanges = append(ns.LimitRanges, d.limitRange())
		}
	}

	if d.once(3) {
		ns.Quotas = append(ns.Quotas, d.quota())
	}

	if d.once(5) {
		ns.PodSecurity = pick(d, "baseline", "privileged")
	}

	if d.once(4) {
		ns.Foreign = pick(d, ForeignRequests, ForeignLimits)
		ns.ForeignLast = d.once(2)
	}

	if d.once(5) {
		ns.MinCPU = d.minCPU()
	}

	return ns
}

// minCPU draws a request that most workloads exceed.
func (d drawer) minCPU() int64 { return 50 * (1 + d.rng.Int64N(10)) }

// limitRange draws a range that many workloads fit, and that many recommendations do not.
func (d drawer) limitRange() LimitRange {
	if d.once(4) {
		return LimitRange{Type: "Pod", Min: Amounts{CPU: d.minCPU()}, Max: Amounts{CPU: 2000 + d.rng.Int64N(4000)}}
	}

	out := LimitRange{Type: "Container"}
	if d.once(2) {
		out.Min = Amounts{CPU: d.minCPU(), Memory: pick[int64](d, 0, 64, 128)}
	}
	if d.once(2) {
		out.Max = Amounts{CPU: 1000 + d.rng.Int64N(3000), Memory: pick[int64](d, 0, 2048)}
	}
	if d.once(2) {
		// The API server refuses defaults outside of the bounds, and a default request above the default.
		out.DefaultRequest = Amounts{CPU: min(max(out.Min.CPU, 100+d.rng.Int64N(900)), capacity(out.Max.CPU)), Memory: 256}
	}
	if d.once(3) {
		out.Default = Amounts{CPU: min(max(out.DefaultRequest.CPU, out.Min.CPU, 1000), capacity(out.Max.CPU)), Memory: 1024}
	}
	if d.once(4) {
		out.Ratio = pick[int64](d, 1, 2, 4)
	}

	return out
}

// capacity returns a maximum, or a large number where there is none.
func capacity(most int64) int64 {
	if most == 0 {
		return 1 << 40
	}

	return most
}

func (d drawer) quota() Quota {
	q := Quota{Scope: pick(d, "", "", "", "NotBestEffort", "NotTerminating", "PriorityClass")}
	switch d.rng.IntN(4) {
	case 0:
		q.Limits = Amounts{CPU: 4000 + d.rng.Int64N(12000)}
	case 1:
		q.Pods = 2 + d.rng.Int64N(8)
	default:
		q.Requests = Amounts{CPU: 1000 + d.rng.Int64N(9000), Memory: pick[int64](d, 0, 2048, 8192)}
	}

	return q
}

func (d drawer) container(name string) Container {
	c := Container{Name: name, Requests: d.amounts(), Wanted: d.amounts(), Restarts: d.once(8)}
	switch d.rng.IntN(8) {
	case 0: // A limit without a request.
		c.Limits = c.Requests
		c.Requests = Amounts{}
	case 1: // Nothing, or a default.
		c.Requests = Amounts{}
	case 2:
		c.Limits = c.Requests // Guaranteed, if all are.
	case 3:
		c.Limits = Amounts{CPU: 2 * c.Requests.CPU, Memory: c.Requests.Memory}
	case 4:
		c.Limits = Amounts{Memory: 2 * c.Requests.Memory}
		c.Requests.Memory = 0
	}

	if d.once(2) { // Mostly less is recommended than is requested.
		c.Wanted.CPU = 10 * (1 + c.Wanted.CPU/50)
	}
	if d.once(4) {
		c.Wanted.Memory = 0
	}
	if d.once(20) {
		c.HugePages = 4
		c.Requests.CPU = max(c.Requests.CPU, 100) // The API server wants CPU or memory beside them.
	}

	return c
}

func (d drawer) workload(name string) Workload {
	w := Workload{
		Kind:         pick(d, "Deployment", "Deployment", "Deployment", "StatefulSet", "StatefulSet", "DaemonSet"),
		Name:         name,
		Replicas:     pick[int32](d, 1, 1, 2, 2, 3, 4),
		Containers:   []Container{d.container("app")},
		MinAvailable: -1,
		Reach:        pick(d, "", "", "", "InPlace", "NewPods", "Recreate", "InPlaceOrRecreate"),
	}

	if d.once(4) {
		w.Containers = append(w.Containers, d.container("log"))
	}
	if d.once(8) {
		w.Init = new(d.container("init"))
	}
	if d.once(8) {
		w.Sidecar = new(d.container("proxy"))
	}
	if d.once(12) {
		w.PodLevel = Amounts{CPU: 4000, Memory: 8192}
	}

	d.rollOut(&w)
	if d.once(5) {
		w.MinAvailable = d.rng.Int32N(w.Replicas + 1)
	}
	if d.once(10) && w.Kind != "DaemonSet" {
		w.Autoscaled = true
	}
	if d.once(12) {
		w.VPA = pick(d, "Off", "Recreate")
	}

	w.Priority = d.once(8)
	w.HostNetwork = d.once(12)
	w.AdoptTemplate = d.once(6)
	return w
}

// rollOut draws how the workload rolls out.
func (d drawer) rollOut(w *Workload) {
	if !d.once(4) {
		return
	}

	switch w.Kind {
	case "Deployment":
		w.Paused = d.once(2)
		w.Recreate = !w.Paused
	case "StatefulSet":
		w.OnDelete = d.once(2)
		if !w.OnDelete {
			w.Partition = 1 + d.rng.Int32N(w.Replicas)
		}
	default:
		w.OnDelete = true
	}
}

// event draws an event.
func (d drawer) event(workloads []Workload) Event {
	e := Event{Workload: d.rng.IntN(len(workloads))}
	e.Kind = pick(d,
		DeletePod, DeletePod, DeletePod, DeletePod, Drain, Drain, RollOut, RollOut, Scale, Scale, Crash, Edit,
		Recommend, Recommend, Recommend, Recommend, Off, On, On, OptOut, OptIn, OptIn,
		LimitRangeAppears, LimitRangeAppears, LimitRangeGone, QuotaAppears, QuotaAppears, QuotaGone, PolicyAppears, PolicyAppears, PolicyGone,
		Nothing, Nothing, Nothing)

	switch e.Kind {
	case Scale:
		e.Replicas = 1 + d.rng.Int32N(4)
	case Recommend, Edit:
		e.Containers = d.resized(workloads[e.Workload].Containers)
	case LimitRangeAppears:
		e.LimitRange = new(d.limitRange())
	case QuotaAppears:
		e.Quota = new(d.quota())
	case PolicyAppears:
		e.MinCPU = d.minCPU()
	}

	return e
}

// resized returns containers of the same names with other amounts.
func (d drawer) resized(containers []Container) []Container {
	var out []Container
	for _, c := range containers {
		next := d.container(c.Name)
		next.Restarts = c.Restarts
		next.HugePages = c.HugePages
		out = append(out, next)
	}

	return out
}
