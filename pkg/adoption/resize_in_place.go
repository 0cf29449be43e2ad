// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import "slices"

// planResizes returns the changes that bring running pods to a goal: resizes in place, and evictions where the reach allows them.
func planResizes(in Input, s State, goal Size) podChanges {
	if goal.Replicas != nil {
		return planScale(in, *goal.Replicas)
	}

	if reason := untouchedReason(in, s); reason != "" {
		var changes podChanges
		if s.Reach == NewPods {
			return changes
		}

		changes.remarkf("%s", reason)
		for _, p := range in.Pods {
			if s.lacksSize(p, goal) {
				changes.excluded++
			}
		}

		return changes
	}

	if s.Reach == Recreate {
		return planRecreation(in, s, goal)
	}

	return planUnresizable(in, s, goal).merge(planInPlaceResizes(in, s, goal))
}

// lacksSize reports whether the pod has another size than the goal gives it.
func (s State) lacksSize(p Pod, goal Size) bool {
	to, reason := s.targetSize(p, goal)
	return reason == "" && !p.size().Equal(to)
}

// excludeUnresizable adds a remark on a pod that cannot be resized and does not have the goal.
func (c *podChanges) excludeUnresizable(s State, p Pod, goal Size) {
	if s.lacksSize(p, goal) {
		c.excludef("pod %s: %s", p.Name, p.NotResizable)
	}
}

func planScale(in Input, replicas int32) podChanges {
	if in.Template.Replicas == nil || *in.Template.Replicas == replicas {
		return podChanges{}
	}

	return podChanges{replicas: &replicas, remaining: 1}
}

// planInPlaceResizes returns the pods to resize in place now. Pods that get less, or that restart, are limited to
// Policy.PodsAtOnce; those that restart also to the disruption budgets.
func planInPlaceResizes(in Input, s State, goal Size) podChanges {
	var changes podChanges
	limits := newResizeLimits(in, s)
	for _, p := range refusedLast(podsByAge(in.Pods)) {
		if p.NotResizable != "" {
			changes.excludeUnresizable(s, p, goal)
			continue
		}

		to, reason := p.InPlaceSize(s.raisedSize(p, goal, in.Now))
		switch {
		case reason != "":
			changes.excludef("pod %s: %s", p.Name, reason)

		case p.size().Equal(to):
			if remark := p.resizeRemark(); remark != "" {
				changes.excludef("%s", remark)
				changes.requeueAfter = in.Policy.Settle // The node reports the result later.
			}

			if p.ResizeStatus == ResizeInProgress {
				changes.remaining++
			}

		case !s.isKnownSize(p):
			changes.excludef(unknownSizeRemark, p.Name, p.size().restrictTo(goal))

		default:
			changes.remaining++
			resize := PodResize{
				Pod:      p.Name,
				UID:      p.UID,
				From:     p.size().restrictTo(goal),
				To:       to.restrictTo(goal),
				Restarts: p.restarts(to),
			}

			allowed, reason := limits.take(reduces(p.size(), to), resize.Restarts)
			if reason != "" {
				changes.remarkf("pod %s: %s", p.Name, reason)
			}
			if allowed {
				changes.resizes = append(changes.resizes, resize)
			}
		}
	}

	return changes
}

// unknownSizeRemark is the remark on a pod that another webhook, or its owner, gave a size of its own.
const unknownSizeRemark = "pod %s was created with %s, which is neither the size of its template nor an adopted one; it is left alone"

// resizeLimits counts how many more pods may be lowered and restarted by one decision.
type resizeLimits struct{ reductions, restarts int }

// newResizeLimits counts resizes in progress against the reductions, and those that fail as long as they may take.
func newResizeLimits(in Input, s State) resizeLimits {
	atOnce := podsAtOnce(in)
	limits := resizeLimits{reductions: atOnce, restarts: atOnce}
	if in.DisruptionsAllowed >= 0 {
		limits.restarts = min(atOnce, in.DisruptionsAllowed)
	}

	mayFail := in.Now.Sub(s.PhaseSince) < in.Policy.Settle
	for _, p := range in.Pods {
		if p.ResizeStatus == ResizeInProgress || p.ResizeStatus == ResizeFailed && mayFail {
			limits.reductions--
		}
	}

	return limits
}

// take reserves one resize. It returns a reason where a restart is not allowed; reductions wait for their turn without one.
func (l *resizeLimits) take(reduces, restarts bool) (allowed bool, reason string) {
	if reduces {
		if l.reductions <= 0 {
			return false, ""
		}

		l.reductions--
	}

	if restarts {
		if l.restarts <= 0 {
			return false, "the resize restarts it, and a disruption budget or the share of pods at once does not allow that now"
		}

		l.restarts--
	}

	return true, ""
}

// podsAtOnce is the number of pods that one decision may lower, restart or evict; at least one.
func podsAtOnce(in Input) int {
	return max(1, int(float64(len(in.Pods))*float64(in.Policy.PodsAtOnce)))
}

// podsByAge returns the pods, the oldest first.
func podsByAge(pods []Pod) []Pod {
	sorted := slices.Clone(pods)
	slices.SortFunc(sorted, func(a, b Pod) int { return a.Created.Compare(b.Created) })
	return sorted
}

// refusedLast returns the pods in their order, those with a refused size behind all others, so that they do not take their turns.
func refusedLast(pods []Pod) []Pod {
	slices.SortStableFunc(pods, func(a, b Pod) int {
		switch {
		case a.Refused == "" && b.Refused != "":
			return -1
		case a.Refused != "" && b.Refused == "":
			return 1
		}

		return 0
	})

	return pods
}

// isKnownSize reports whether the pod has a size that adoption set, or would set nothing on it.
func (s State) isKnownSize(p Pod) bool {
	sizes := append([]Size{s.Original, s.Previous, s.Current}, s.EarlierSizes...)
	if s.NewPods != nil { // It may be older than all of them.
		sizes = append(sizes, *s.NewPods)
	}

	return slices.ContainsFunc(sizes, func(size Size) bool {
		to, reason := p.InPlaceSize(size)
		s.ignoreRaises(p, &to)
		return reason != "" || p.size().Equal(to)
	})
}
