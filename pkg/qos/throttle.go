// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package qos

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"crane.io/crane/pkg/units"
)

// minQuota is the least quota the kernel accepts: 1 ms of the usual period of 100 ms.
const minQuota units.MilliCPU = 10

// noCandidate is the reason when an action may be taken on no pod of the node.
const noCandidate = "no PodQOS allows this action on a pod of this node"

// outsideContainers is why a limit of a container has no effect on its pod.
const outsideContainers = "outside of their containers' cgroups (a runtime with virtual machines or its own kernel, such as Kata or gVisor), " +
	"where no limit has an effect"

func itoa(n int32) string { return strconv.Itoa(int(n)) }

// isEnough reports whether the steps that are planned close the gap, or are one where the metric measures no amount.
func isEnough(quantified bool, remaining float64, steps int) bool {
	if quantified {
		return remaining <= 0
	}

	return steps > 0
}

// planThrottles plans the CPU steps of a firing rule: one container after the other in victim order, at most one step each, until the gap
// is closed. If the metric measures no amount of CPU, one container is throttled per measurement.
func (d decision) planThrottles(r *Rule, gap float64, quantified bool, earlier *planned) (out []Throttle, shortfall float64, reason string) {
	t := r.Action.Throttle
	remaining := gap

	var skipped skippedThrottles
	candidates := d.orderVictims(r, ByCPU)
	for _, p := range candidates {
		if p.Terminating {
			continue
		}

		if len(p.Containers) == 0 {
			skipped.withoutContainers++
		}

		if p.runsOutsideContainers(d.observation.At, r.MaxAge) {
			skipped.sandboxed++
			continue
		}

		for i := range p.Containers {
			if isEnough(quantified, remaining, len(out)) {
				break
			}

			c := &p.Containers[i]
			if earlier.limits[limitKey{units.CPU, c.ID}] {
				skipped.otherRules++
				continue
			}
			if c.Quota <= 0 || !c.UsedCPU.fresh(d.observation.At, r.MaxAge) {
				skipped.unmeasured++
				continue
			}

			to, freed := nextQuota(c, t, remaining, quantified)
			if freed <= 0 {
				skipped.atFloor++
				continue
			}

			// A further step keeps the original quota and the use before the first one.
			original := c.Quota

			before := c.UsedCPU.Value
			if record := d.state.quotas[c.ID]; record != nil {
				original = record.Original
				before = cmp.Or(units.MilliCPU(record.Before), before)
			}

			remaining -= float64(freed)
			out = append(out, Throttle{
				Pod:           p.ref(),
				ContainerID:   c.ID,
				ContainerName: c.Name,
				From:          c.Quota,
				To:            to,
				Original:      original,
				Freed:         freed,
				Step:          t.Step,
				Weight:        p.reducedWeight(to, before),
				Rule:          r.Name,
				Reason:        fmt.Sprintf("uses %dm; %s", c.UsedCPU.Value, p.describe(d.observation.At)),
			})
		}
	}

	if quantified {
		shortfall = max(remaining, 0)
	}

	switch {
	case len(candidates) == 0:
		reason = noCandidate
	case len(out) == 0:
		reason = skipped.reason()
	}

	return out, shortfall, reason
}

// skippedThrottles counts what a rule does not throttle, by reason: containers, and pods without containers or with processes outside of them.
type skippedThrottles struct {
	atFloor, unmeasured, otherRules, withoutContainers, sandboxed int
}

// reason returns why nothing is throttled.
func (s skippedThrottles) reason() string {
	text := fmt.Sprintf("nothing to throttle: %d containers are at their floor or use no more, %d are unmeasured, %d are throttled by another rule",
		s.atFloor, s.unmeasured, s.otherRules)
	if s.withoutContainers > 0 {
		text += fmt.Sprintf(", %d pods have no known container", s.withoutContainers)
	}

	if s.sandboxed > 0 {
		text += fmt.Sprintf(", the processes of %d pods are %s", s.sandboxed, outsideContainers)
	}

	return text
}

// runsOutsideContainers reports whether a pod uses CPU and its containers do not: the runtime runs them in a group of its own.
func (p *Pod) runsOutsideContainers(now time.Time, maxAge time.Duration) bool {
	const noticeable = 100
	return usesOutsideContainers(p, p.UsedCPU, func(c *Container) Measurement[units.MilliCPU] { return c.UsedCPU }, noticeable, now, maxAge)
}

// usesOutsideContainers reports whether a pod has a noticeable use and its containers less than a tenth of it. False if a use is unknown.
func usesOutsideContainers[T units.MilliCPU | units.Bytes](
	p *Pod, whole Measurement[T], part func(*Container) Measurement[T], noticeable T, now time.Time, maxAge time.Duration,
) bool {
	if len(p.Containers) == 0 || !whole.fresh(now, maxAge) || whole.Value < noticeable {
		return false
	}

	sum := T(0)
	for i := range p.Containers {
		use := part(&p.Containers[i])
		if !use.fresh(now, maxAge) {
			return false
		}

		sum += use.Value
	}

	return sum < whole.Value/10
}

// reducedWeight returns the share of its CPU weight that a pod keeps with a quota: the share of its previous use; 0 for all of it. A pod
// that requests ordinary CPU keeps the weight of that.
func (p *Pod) reducedWeight(to Quota, before units.MilliCPU) units.Ratio {
	const minWeight = 0.01
	if !p.Elastic && p.Class != BestEffort || before <= 0 || to == Unlimited {
		return 0
	}

	if slices.ContainsFunc(p.Containers, func(c Container) bool { return c.Request > 0 }) {
		return 0
	}

	return min(max(units.Ratio(float64(to)/float64(before)), minWeight), 1)
}

// nextQuota returns the next quota of a container and the reduction of its use; 0 for none.
func nextQuota(c *Container, t *CPUThrottling, gap float64, quantified bool) (Quota, units.MilliCPU) {
	used := c.UsedCPU.Value
	base := used
	if c.Quota != Unlimited {
		base = min(base, units.MilliCPU(c.Quota))
	}

	to := ceilMilli(float64(base) * (1 - float64(t.Step)))
	if quantified {
		// No more than needed.
		to = max(to, used-ceilMilli(math.Min(gap, math.MaxInt32)))
	}

	to = max(to, c.Request, ceilMilli(float64(c.Limit)*float64(t.Floor)), cmp.Or(c.MinQuota, minQuota))
	if to >= used || c.Quota != Unlimited && to >= units.MilliCPU(c.Quota) {
		return 0, 0
	}

	return Quota(to), used - to
}

// ceilMilli rounds up to whole millicores, ignoring floating-point noise.
func ceilMilli(m float64) units.MilliCPU { return units.MilliCPU(math.Ceil(m - 1e-6)) }
