// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"fmt"
	"math"
	"slices"
)

// bringAll gives every pod what it shall have, new ones too.
func (d *decision) bringAll() {
	if d.s.Phase == Untouched || d.s.Phase == Stopped {
		return
	}
	if d.bring(d.s.Current) > 0 {
		d.again(d.in.Policy.PollInterval)
	}
}

// bring gives pods the goal, a few at once where that lowers or restarts them, and returns how many do not have it yet.
func (d *decision) bring(goal Size) (left int) {
	if goal.Replicas != nil {
		return d.scale(goal)
	}
	if why := d.untouched(); why != "" {
		if d.s.Reach != NewPods {
			d.remarkf("%s", why)
		}
		return 0
	}
	if d.s.Reach == Recreate {
		return d.recreate(goal)
	}
	known := d.known()
	pods := d.byAge()
	left = d.stuck(goal)
	atOnce := d.atOnce()
	restarts := d.in.DisruptionsAllowed
	if restarts < 0 {
		restarts = atOnce
	}
	restarts = min(restarts, atOnce)
	for _, p := range pods { // What is on its way counts.
		if p.ResizeStatus == ResizeInProgress || p.ResizeStatus == ResizeFailed {
			atOnce--
		}
	}
	for _, p := range pods {
		if p.NotResizable != "" {
			continue
		}
		to, why := p.InPlaceSize(goal)
		if why != "" {
			d.remarkf("pod %s: %s", p.Name, why)
			continue
		}
		if p.size().Equal(to) {
			if w := p.resizeRemark(); w != "" {
				d.remarkf("%s", w)
				d.again(d.in.Policy.Settle) // To see that it has it.
			}
			if p.ResizeStatus == ResizeInProgress {
				left++
			}
			continue
		}
		if !known(p) {
			d.remarkf("pod %s was made with %s, which is neither its template's nor adopted; it is left alone", p.Name, p.size().restrictTo(goal))
			continue
		}
		left++
		change := PodResize{Pod: p.Name, UID: p.UID, From: p.size().restrictTo(goal), To: to.restrictTo(goal), Restarts: p.restarts(to)}
		if reduces(p.size(), to) {
			if atOnce <= 0 {
				continue
			}
			atOnce--
		}
		if change.Restarts {
			if restarts <= 0 {
				d.remarkf("pod %s: resizing restarts it, and a disruption budget or the share of pods at once keeps it for now", p.Name)
				continue
			}
			restarts--
		}
		d.plan.Resizes = append(d.plan.Resizes, change)
	}
	return left
}

// atOnce is how many pods may be lowered, restarted or evicted in one look; one at least.
func (d *decision) atOnce() int {
	return max(1, int(math.Floor(float64(len(d.in.Pods))*float64(d.in.Policy.PodsAtOnce))))
}

// scale brings the number of replicas to the goal.
func (d *decision) scale(goal Size) (left int) {
	if d.in.Template.Replicas == nil || *d.in.Template.Replicas == *goal.Replicas {
		return 0
	}
	n := *goal.Replicas
	d.plan.Replicas = &n
	return 1
}

func (d *decision) remarkf(format string, args ...any) {
	if len(d.plan.Remarks) < maxOutcomes {
		d.plan.Remarks = append(d.plan.Remarks, fmt.Sprintf(format, args...))
	}
}

// known tells of a pod whether it has a size that adoption has to do with.
func (d *decision) known() func(Pod) bool { return isKnownSize(d.s) }

func isKnownSize(s State) func(Pod) bool {
	sizes := append([]Size{s.Original, s.Previous, s.Current}, s.EarlierSizes...)
	return func(p Pod) bool {
		return slices.ContainsFunc(sizes, func(size Size) bool {
			to, why := p.InPlaceSize(size)
			return why != "" || p.size().Equal(to)
		})
	}
}
