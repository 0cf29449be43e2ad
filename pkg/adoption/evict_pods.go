// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"fmt"
	"slices"
	"time"
)

// Reach says which pods get a size, and how. New pods get it in all of them, as they are created.
type Reach string

// The reaches.
const (
	// InPlace resizes running pods in place.
	InPlace Reach = ""
	// NewPods touches no running pod.
	NewPods Reach = "NewPods"
	// Recreate evicts running pods, so that others take their place.
	Recreate Reach = "Recreate"
	// InPlaceOrRecreate resizes in place, and evicts a pod that can never be given its size so.
	InPlaceOrRecreate Reach = "InPlaceOrRecreate"
)

// Eviction is one pod that is evicted, so that another takes its place with another size.
type Eviction struct {
	Pod, UID string
	From, To Size
	Reason   string
}

const (
	// defaultMinReplicas is how many pods have to run before one of them is evicted, where nothing is said; as VerticalPodAutoscaler
	// has it: the only pod of a workload is not taken away to be made smaller.
	defaultMinReplicas = 2
	// webhookDelay is how long whoever makes new pods their size may need to learn of it. Nothing is evicted before, and what was created
	// before may be.
	webhookDelay = 3 * time.Second
)

// replacementSize is what a pod would be given that takes this one's place; why says that it would get nothing else than this one.
func (p Pod) replacementSize(goal Size) (to Size, why string) {
	to = p.size()
	after := p
	after.Containers = nil
	for _, c := range p.Containers {
		if _, wanted := goal.Containers[c.Name]; wanted {
			for f := cpuRequest; f <= memoryLimit; f++ {
				if v, ok := goal.get(amount{c.Name, f}); ok {
					to.set(amount{c.Name, f}, v)
				}
			}
		}
		c.Size = to.Containers[c.Name]
		after.Containers = append(after.Containers, c)
	}
	if p.Guaranteed() && !after.Guaranteed() {
		return p.size(), "it would no longer be guaranteed its resources"
	}
	return to, ""
}

// targetSize is what a pod of today is brought to, by whatever way the reach leaves.
func (s State) targetSize(p Pod, goal Size) (to Size, why string) {
	switch s.Reach {
	case NewPods:
		return p.size(), "only new pods get it"
	case Recreate:
		return p.replacementSize(goal)
	default:
		return p.InPlaceSize(goal)
	}
}

// untouched says why no running pod is touched at the moment; empty where they are.
func (d *decision) untouched() string {
	least := int(d.in.MinReplicas)
	switch {
	case d.s.Reach == NewPods:
		return "only new pods get it"
	case d.s.Reach == Recreate && d.s.Phase == Withdrawing:
		return "new pods get what their template says" // Nothing is evicted to give something back.
	case d.in.MinReplicas > 0 && len(d.in.Pods) < least:
		return fmt.Sprintf("%d pods run, and none is touched below %d", len(d.in.Pods), least)
	}
	return ""
}

// recreate evicts the pods that another size is wanted for, and returns how many do not have it yet.
func (d *decision) recreate(goal Size) (left int) {
	known := d.known()
	var all []Eviction
	for _, p := range d.byAge() {
		to, why := p.replacementSize(goal)
		switch {
		case p.NotResizable != "" || p.size().Equal(to):
		case why != "":
			d.remarkf("pod %s: %s", p.Name, why)
		case !known(p):
			d.remarkf("pod %s was made with %s, which is neither its template's nor adopted; it is left alone", p.Name, p.size().restrictTo(goal))
		case d.evictable(p):
			left++
			all = append(all, Eviction{Pod: p.Name, UID: p.UID, From: p.size().restrictTo(goal), To: to.restrictTo(goal), Reason: "the update mode is Recreate"})
		}
	}
	d.evict(all)
	return left
}

// stuck evicts, where that is allowed, the pods that can never be given their size in place.
func (d *decision) stuck(goal Size) (left int) {
	if d.s.Reach != InPlaceOrRecreate || d.s.Phase == Withdrawing {
		return 0
	}
	known := d.known()
	var all []Eviction
	for _, p := range d.byAge() {
		if p.NotResizable != "" || !known(p) {
			continue
		}
		aimed, unfit := p.InPlaceSize(goal)
		to, why := p.replacementSize(goal)
		if unfit == "" && p.Refused != "" && p.RefusedSize.Equal(aimed.restrictTo(goal)) {
			unfit = p.Refused
		}
		switch {
		case why != "" || unfit == "" && p.ResizeStatus != ResizeInfeasible:
			continue
		case unfit == "" && !p.size().Equal(aimed):
			continue // It is given another size in place, which its node may have.
		case unfit == "":
			unfit = "its node can never give it " + to.restrictTo(goal).String()
		case p.size().Equal(to):
			continue
		}
		if d.evictable(p) {
			left++
			all = append(all, Eviction{Pod: p.Name, UID: p.UID, From: p.size().restrictTo(goal), To: to.restrictTo(goal), Reason: "not possible in place: " + unfit})
		}
	}
	d.evict(all)
	return left
}

// byAge are the pods, the oldest first.
func (d *decision) byAge() []Pod {
	pods := slices.Clone(d.in.Pods)
	slices.SortFunc(pods, func(a, b Pod) int { return a.Created.Compare(b.Created) })
	return pods
}

// evictable tells of a pod that the next one in its place would get another size. One that was created since that size was
// written down, and did not get it, shows that it would not: it is never evicted a second time for the same size.
func (d *decision) evictable(p Pod) bool {
	if d.older(p) {
		return true
	}
	d.remarkf("pod %s was created without what is adopted: the webhook for new pods did not change it, so it is not evicted", p.Name)
	return false
}

// older tells whether a pod was there before the size was known to whoever makes new pods theirs.
func (d *decision) older(p Pod) bool {
	return p.Created.Before(d.changedAt().Add(webhookDelay - time.Second))
}

// changedAt is when the size was written down that pods shall have.
func (d *decision) changedAt() time.Time {
	if !d.s.Current.Equal(d.in.State.Current) || d.in.State.Phase == Untouched {
		return d.in.Now
	}
	if d.s.ChangedAt.IsZero() {
		return d.s.PhaseSince
	}
	return d.s.ChangedAt
}

// evict takes of some pods as many as may go now: never more than the share of pods at once and the disruption budgets leave, and
// of those that serve only while all others do too.
func (d *decision) evict(all []Eviction) {
	if len(all) == 0 {
		return
	}
	d.again(d.in.Policy.PollInterval)
	least := int(d.in.MinReplicas)
	if least == 0 {
		least = defaultMinReplicas
	}
	running := len(d.in.Pods)
	switch {
	case running < least:
		d.remarkf("%d pods run, and none is evicted below %d", running, least)
		return
	case d.in.RolloutInProgress || running < int(d.in.DesiredReplicas):
		d.remarkf("a roll-out is under way, or a pod is missing: none is evicted until that is over")
		return
	case d.in.Now.Before(d.changedAt().Add(webhookDelay)):
		d.again(min(d.in.Policy.PollInterval, webhookDelay))
		return
	}
	atOnce := d.atOnce()
	if d.in.DisruptionsAllowed >= 0 {
		atOnce = min(atOnce, d.in.DisruptionsAllowed)
	}
	ready := map[string]bool{}
	serving := true
	for _, p := range d.in.Pods {
		ready[p.UID] = p.Ready
		serving = serving && p.Ready
	}
	held := false
	for _, e := range all {
		switch {
		case atOnce <= 0, ready[e.UID] && !serving:
			held = true
		default:
			atOnce--
			d.plan.Evictions = append(d.plan.Evictions, e)
		}
	}
	if held {
		d.remarkf("further pods are evicted when all others are ready and disruption budgets have room")
	}
}
