// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package qos

import (
	"cmp"
	"math"
	"slices"
	"time"

	"crane.io/crane/pkg/units"
)

const (
	// persistedSamples is the number of samples kept per ring: a third of them, enough for stable statistics.
	persistedSamples = 40
	// baselineWait is how long loaded baselines are kept before a rule uses them: rules arrive shortly after the start.
	baselineWait = 5 * time.Minute
	// maxBaselines bounds the number of pods.
	maxBaselines = 1000
)

// Baseline holds the samples of a pod across restarts of the agent.
type Baseline struct {
	UID string `json:"uid"`
	// Waits are shares of time, 0 to 1, the pod waited for a resource in calm times, the oldest first; Uses its use in millicores, bytes
	// or DiskWork.
	Waits map[units.Resource][]float32 `json:"waits,omitempty"`
	Uses  map[units.Resource][]float32 `json:"uses,omitempty"`
	// Above is since when the pod waits longer than usual; absent if it does not.
	Above map[units.Resource]time.Time `json:"above,omitempty"`
}

// Baselines returns the samples of the node's pods ordered by UID; none unless a rule uses them.
func (s *State) Baselines() []Baseline {
	if s.detector == nil {
		return nil
	}

	out := make([]Baseline, 0, min(len(s.detector.pods), maxBaselines))
	for uid, h := range s.detector.pods {
		if b, ok := h.baseline(uid); ok && len(out) < maxBaselines {
			out = append(out, b)
		}
	}

	slices.SortFunc(out, func(a, b Baseline) int { return cmp.Compare(a.UID, b.UID) })
	return out
}

// RestoreBaselines loads the samples of another state, for pods that still exist, into a new state.
func (s *State) RestoreBaselines(list []Baseline) {
	if len(list) == 0 {
		return
	}

	s.detector = &detector{pods: make(map[string]*podHistory, min(len(list), maxBaselines)), restored: true}
	for i := range list {
		if len(s.detector.pods) < maxBaselines {
			s.detector.pods[list[i].UID] = list[i].history()
		}
	}
}

// expired reports whether a detector that no rule uses can be dropped. A loaded one is kept for baselineWait.
func (d *detector) expired(now time.Time) bool {
	if d == nil || !d.restored {
		return true
	}

	if d.restoredAt.IsZero() {
		d.restoredAt = now
	}

	return absolute(now.Sub(d.restoredAt)) >= baselineWait
}

func (h *podHistory) baseline(uid string) (b Baseline, ok bool) {
	b = Baseline{
		UID:   uid,
		Waits: map[units.Resource][]float32{},
		Uses:  map[units.Resource][]float32{},
		Above: map[units.Resource]time.Time{},
	}

	for k, r := range contendedResources {
		if waits := h.waits[k].evenSamples(persistedSamples); len(waits) > 0 {
			b.Waits[r] = waits
		}
		if uses := h.uses[k].evenSamples(persistedSamples); len(uses) > 0 {
			b.Uses[r] = uses
		}
		if !h.aboveSince[k].IsZero() {
			b.Above[r] = h.aboveSince[k]
		}
	}

	return b, len(b.Waits)+len(b.Uses) > 0
}

// history converts the baseline to rings and drops impossible values.
func (b *Baseline) history() *podHistory {
	h := &podHistory{}
	for k, r := range contendedResources {
		for _, v := range b.Waits[r] {
			if v >= 0 && v <= 1 {
				h.waits[k].add(float64(v))
			}
		}

		for _, v := range b.Uses[r] {
			if v >= 0 {
				h.uses[k].add(float64(v))
			}
		}

		h.aboveSince[k] = b.Above[r]
	}

	return h
}

const (
	// ringSize samples, one per sampleInterval, cover ten minutes: short enough to follow a daily load.
	ringSize       = 120
	sampleInterval = 5 * time.Second
	// minSamples is the number of samples, two minutes of them, from which the statistics are used.
	minSamples = 24
)

// ring holds the last samples of a pod in fixed space.
type ring struct {
	values [ringSize]float32
	n      int // number of samples held
	next   int // position of the next sample

	cached            bool // median and dev are up to date
	median, deviation float64
}

// add replaces the oldest sample.
func (r *ring) add(v float64) {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return
	}

	r.values[r.next] = float32(v)
	r.next = (r.next + 1) % ringSize
	r.n = min(r.n+1, ringSize)
	r.cached = false
}

func (r *ring) clear() { *r = ring{} }

// stats returns the median of the samples and their scatter, 1.4826 times the median absolute deviation, which estimates the standard
// deviation of a normal distribution (Hampel, The influence curve and its role in robust estimation, 1974). A few outliers, as from a
// start or a backup, change neither.
func (r *ring) stats() (middle, deviation float64) {
	if r.cached || r.n == 0 {
		return r.median, r.deviation
	}

	var scratch [ringSize]float32
	sorted := scratch[:copy(scratch[:], r.values[:r.n])]
	r.median = median(sorted)
	for i := range sorted {
		sorted[i] = float32(math.Abs(float64(sorted[i]) - r.median))
	}

	const normal = 1.4826
	r.deviation = normal * median(sorted)
	r.cached = true

	return r.median, r.deviation
}

// median sorts values, which must not be empty, and returns their median.
func median(values []float32) float64 {
	slices.Sort(values)
	half := len(values) / 2
	if len(values)%2 == 1 {
		return float64(values[half])
	}

	return (float64(values[half-1]) + float64(values[half])) / 2
}

// evenSamples returns at most n samples, the oldest first, evenly spaced.
func (r *ring) evenSamples(limit int) []float32 {
	n := min(r.n, limit)
	out := make([]float32, n)
	for i := range out {
		out[i] = r.values[(r.next-r.n+i*r.n/n+ringSize)%ringSize]
	}

	return out
}
