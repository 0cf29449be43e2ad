// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import "crane.io/crane/pkg/units"

// Raise returns the size with every amount that should grow at its goal, and whether that changes anything. Requests that from lacks
// are added, which only new pods can get; limits are not, since a new limit is a reduction.
func Raise(from, goal Size, p Policy) (Size, bool) {
	to := from.Clone()
	changed := false
	for _, a := range goal.amounts() {
		want, _ := goal.get(a)
		now, isSet := from.get(a)
		if want <= 0 || isSet && (want <= now || !isMaterial(now, want, p)) || !isSet && a.field.limit() {
			continue
		}

		to.set(a, want)
		changed = true
	}

	raiseLimitsToRequests(&to)
	return to, changed
}

// Lower returns the size one step down toward its goal, and whether that changes anything. Replicas are not lowered below
// minReplicas.
func Lower(from, goal Size, p Policy, minReplicas int32) (Size, bool) {
	to := from.Clone()
	changed := false
	for _, a := range goal.amounts() {
		want, _ := goal.get(a)
		now, isSet := from.get(a)

		floor := p.floor(a.field)
		if a.field == replicas {
			floor = max(floor, int64(minReplicas))
		}

		want = max(want, floor)
		if !isSet || want >= now || !isMaterial(now, want, p) {
			continue
		}

		step := roundMemory(a.field, now, now-stepAmount(now, p.Step))
		if next := max(want, step); next < now {
			to.set(a, next)
			changed = true
		}
	}

	// A request that is still above its goal keeps its limit up.
	raiseLimitsToRequests(&to)
	return to, changed
}

// roundMemory rounds memory up to whole MiB, for readable numbers, as long as that still lowers it.
func roundMemory(f field, now, next int64) int64 {
	const unit = 1 << 20
	if f != memoryRequest && f != memoryLimit {
		return next
	}

	roundedUp := (next + unit - 1) / unit * unit
	if roundedUp < now {
		return roundedUp
	}

	return next
}

// stepAmount returns how much one step lowers an amount: the share of it, at least 1 (a replica cannot be divided).
func stepAmount(now int64, share units.Ratio) int64 {
	return max(1, int64(float64(now)*float64(share)))
}

// isMaterial reports whether the difference is worth a step.
func isMaterial(now, goal int64, p Policy) bool {
	diff := max(goal-now, now-goal)
	return diff > 0 && float64(diff) >= float64(p.MinChange)*float64(now)
}

// raiseLimitsToRequests raises limits that are below their requests.
func raiseLimitsToRequests(s *Size) {
	for _, a := range s.amounts() {
		if !a.field.limit() {
			continue
		}

		limit, _ := s.get(a)
		if request, ok := s.get(amount{a.container, a.field.request()}); ok && request > limit {
			s.set(a, request)
		}
	}
}
