// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"fmt"
	"math"
	"time"
)

const mib = 1 << 20

// Catalog returns n generated workloads. Equal seeds generate equal workloads, and a larger n only appends to them.
func Catalog(seed uint64, n int) []*Workload {
	base := catalog()
	workloads := make([]*Workload, 0, n)
	for round := 0; len(workloads) < n; round++ {
		for _, e := range base {
			if len(workloads) == n {
				break
			}

			if e.controller == 'n' && round > 0 {
				continue // More DaemonSets would fill every node.
			}

			if round > 0 {
				e.name = fmt.Sprintf("%s-%d", e.name, round+1)
			}

			workloads = append(workloads, generate(seed, e))
		}
	}

	return workloads
}

// generate draws the sizes of one workload from the seed.
func generate(seed uint64, e entry) *Workload {
	key := mix(seed, hashString(e.namespace+"/"+e.name))

	// The key makes each workload independent of the others and of its place in the catalog.
	w := &Workload{Namespace: e.namespace, Name: e.name, Replicas: replicas(e, key)}
	switch e.controller {
	case 's':
		w.Kind = "StatefulSet"
	case 'n':
		w.Kind = "DaemonSet"
	case 'c':
		w.Kind = "CronJob"
		w.Schedule = e.schedule
		w.RunTime = time.Duration(between(mix(key, 21), 3, 9)) * time.Minute

	default:
		w.Kind = "Deployment"
		if unit(mix(key, 22)) < 0.4 {
			w.Rollout = between(mix(key, 23), 0.25, 0.85)
		}
	}

	if e.scaled {
		w.MaxReplicas = w.Replicas + 2
	}
	if e.migrates {
		w.Containers = append(w.Containers, sized(mix(key, 30), "migrate", idle(mix(key, 30)), true))
	}

	w.Containers = append(w.Containers, sized(key, e.name, profile(key, e), false))
	if e.sidecar {
		w.Containers = append(w.Containers, sized(mix(key, 31), "proxy", proxy(mix(key, 31), e.kind), false))
	}

	return w
}

func replicas(e entry, key uint64) int {
	if e.controller == 'c' || e.controller == 'n' || e.kind == Idle {
		return 1
	}

	return []int{1, 2, 2, 2, 3, 3, 5}[mix(key, 20)%7]
}

// profile draws the use of the main container. Most peaks are in the afternoon, a few in the evening.
func profile(key uint64, e entry) Profile {
	h := func(i uint64) uint64 { return mix(key, i) }
	p := Profile{
		Kind:      e.kind,
		Seed:      key,
		Noise:     between(h(1), 0.03, 0.09),
		Weekend:   between(h(2), 0.15, 0.5),
		PeakHour:  between(h(3), 12, 20),
		Bandwidth: between(h(4), 0.2, 4) * mib,
		Low:       0.05,
		High:      skewed(h(5), 0.15, 1.6),
		Memory:    skewed(h(6), 120, 800) * mib,
	}

	p.Low = p.High * between(h(7), 0.08, 0.3)
	p.Busy = p.Memory * between(h(8), 0.02, 0.25)
	switch e.kind {
	case Idle:
		p = idle(key)
	case Bursty:
		p.High = skewed(h(5), 0.3, 1.2)
		p.Low = p.High * 0.06
		p.High *= 0.9

	case Leak:
		p.High = skewed(h(5), 0.1, 0.4)
		p.Low = p.High
		p.Busy = 0
		p.Grow = p.Memory * between(h(9), 1.2, 2.5)
		p.Life = time.Duration(between(h(10), 40, 110)) * time.Hour

	case Flat:
		p.Low = p.High * 0.8
		p.Noise *= 2
	case Shift:
		p.Low = p.High * 0.15
	case Batch:
		p.Low = 0.01
		p.High = skewed(h(5), 0.5, 2)
		p.PeakHour = between(h(3), 0, 4)
		p.Busy = p.Memory * between(h(8), 0.5, 1.5)

	case Run:
		p.Low = 0.1
		p.High = skewed(h(5), 0.4, 1.5)
	case Cache:
		p.Grow = skewed(h(9), 1000, 4000) * mib
	case Java:
		p.Memory = skewed(h(6), 500, 1200) * mib
		p.Grow = p.Memory * between(h(9), 0.5, 1.2)
	}

	if e.controller == 'n' { // agents that run on every node are small
		p.Low *= 0.08
		p.High *= 0.08
		p.Memory = between(h(6), 60, 180) * mib
		p.Busy = p.Memory * 0.05
	}

	return p
}

func idle(key uint64) Profile {
	return Profile{
		Kind:      Idle,
		Seed:      key,
		Noise:     0.1,
		Low:       0.001,
		High:      between(mix(key, 5), 0.001, 0.006),
		Memory:    between(mix(key, 6), 20, 90) * mib,
		Bandwidth: 0.05 * mib,
	}
}

// proxy returns the profile of a sidecar: it follows the main container at a tenth of its size.
func proxy(key uint64, kind Kind) Profile {
	high := between(mix(key, 5), 0.03, 0.12)
	return Profile{
		Kind:      kind,
		Seed:      key,
		Noise:     0.05,
		Weekend:   0.3,
		PeakHour:  15,
		Low:       high * 0.1,
		High:      high,
		Memory:    between(mix(key, 6), 40, 90) * mib,
		Busy:      8 * mib,
		Bandwidth: 8 * mib,
	}
}

// skewed maps a hash to [low, high) with a log-uniform distribution, in which small values are as frequent as in real
// clusters.
func skewed(h uint64, low, high float64) float64 { return low * math.Pow(high/low, unit(h)) }
