// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package qos

import (
	"cmp"
	"slices"
	"time"
)

const (
	// persistedSamples are kept of a ring: enough to say what is usual, and a third of what there may be.
	persistedSamples = 40
	// baselineWait is how long what was remembered waits for a rule on interference: after a start rules come a moment later.
	baselineWait = 5 * time.Minute
	// maxBaselines bounds how many pods are remembered.
	maxBaselines = 1000
)

// Baseline is what is usual with a pod, to outlast who has learnt it.
type Baseline struct {
	UID string `json:"uid"`
	// Waits are shares of time, 0 to 1, that it waited for a resource in calm times, the oldest first; Uses what it used of it, in
	// millicores, bytes or DiskWork.
	Waits map[Resource][]float32 `json:"waits,omitempty"`
	Uses  map[Resource][]float32 `json:"uses,omitempty"`
	// Above is since when it has waited more than usual; absent where it does not.
	Above map[Resource]time.Time `json:"above,omitempty"`
}

// Baselines are what is usual with the pods of the node, by their UIDs; none where no rule asks for it.
func (s *State) Baselines() []Baseline {
	if s.detector == nil {
		return nil
	}
	out := make([]Baseline, 0, min(len(s.detector.pods), maxBaselines))
	for uid, h := range s.detector.pods {
		if b, learnt := h.baseline(uid); learnt && len(out) < maxBaselines {
			out = append(out, b)
		}
	}
	slices.SortFunc(out, func(a, b Baseline) int { return cmp.Compare(a.UID, b.UID) })
	return out
}

// RestoreBaselines takes over what another state had learnt, for the pods that are still there. It is for a state that has seen nothing yet.
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

// expired tells whether a detector that no rule asks for may go. One that was remembered waits for its rules for a while.
func (d *detector) expired(now time.Time) bool {
	if d == nil || !d.restored {
		return true
	}
	if d.restoredAt.IsZero() {
		d.restoredAt = now
	}
	return absolute(now.Sub(d.restoredAt)) >= baselineWait
}

func (h *podHistory) baseline(uid string) (b Baseline, learnt bool) {
	b = Baseline{UID: uid, Waits: map[Resource][]float32{}, Uses: map[Resource][]float32{}, Above: map[Resource]time.Time{}}
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

// history is what a detector works with. What cannot have been measured is left out.
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
