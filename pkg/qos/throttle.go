// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package qos

import (
	"fmt"
	"math"
	"strconv"

	"crane.io/crane/pkg/series"
)

// minQuota is the least that the kernel takes: 1 ms in the usual period of 100 ms.
const minQuota series.MilliCPU = 10

// nobody says that no pod of the node may be touched by an action.
const nobody = "no PodQOS allows this action on a pod of this node"

func itoa(n int32) string { return strconv.Itoa(int(n)) }

// throttle plans the steps of a rule that fires: one container after the other, in victim order, each by a step at most, until the gap is
// closed. A metric that is no amount of cpu says nothing of how much has to go: one container is throttled, and the next measurement
// decides on.
func (d *decision) throttle(r *Rule, f *Finding, gap float64, quantified bool) []Throttle {
	t := r.Action.Throttle
	var out []Throttle
	left := gap
	unmeasured, done, others, bare := 0, 0, 0, 0
	candidates := d.victims(r, f, ByCPU)
	for _, p := range candidates {
		if p.Terminating {
			continue
		}
		if len(p.Containers) == 0 {
			bare++
		}
		for i := range p.Containers {
			if quantified && left <= 0 || !quantified && len(out) > 0 {
				break
			}
			c := &p.Containers[i]
			if d.changed[aLimit{CPU, c.ID}] {
				others++
				continue
			}
			if c.Quota <= 0 || !c.UsedCPU.fresh(d.o.At, r.MaxAge) {
				unmeasured++
				continue
			}
			to, frees := lower(c, t, left, quantified)
			if frees <= 0 {
				done++
				continue
			}
			original, before := c.Quota, c.UsedCPU.Value
			if k := d.s.quotas[c.ID]; k != nil {
				original, before = k.Original, series.MilliCPU(k.Before)
			}
			left -= float64(frees)
			out = append(out, Throttle{
				Pod: p.ref(), ContainerID: c.ID, ContainerOf: c.Name, From: c.Quota, To: to, Original: original, Frees: frees,
				Step: t.Step, Weight: p.weight(to, before), Rule: r.Name, Why: fmt.Sprintf("uses %dm; %s", c.UsedCPU.Value, p.why(d.o.At)),
			})
		}
	}
	f.Short = math.Max(left, 0)
	if !quantified {
		f.Short = 0
	}
	switch {
	case len(candidates) == 0:
		f.Why = nobody
	case len(out) == 0:
		f.Why = fmt.Sprintf("nothing to throttle: %d containers are at their floor or use nothing above it, %d are not measured, %d are throttled by another rule", done, unmeasured, others)
		if bare > 0 {
			f.Why += fmt.Sprintf(", %d pods have no container that is known", bare)
		}
	}
	return out
}

// weight is the share of its weight that a pod keeps with a quota, where it used so much before: as much as of its cpu.
func (p *Pod) weight(to Quota, before series.MilliCPU) series.Ratio {
	const least = 0.01
	if !p.Elastic && p.Class != BestEffort || before <= 0 || to == Unlimited {
		return 0
	}
	return min(max(series.Ratio(float64(to)/float64(before)), least), 1)
}

// lower is the next quota of a container and what it takes off its use, 0 for nothing.
func lower(c *Container, t *Throttling, left float64, quantified bool) (Quota, series.MilliCPU) {
	used := c.UsedCPU.Value
	base := used
	if c.Quota != Unlimited {
		base = min(base, series.MilliCPU(c.Quota))
	}
	to := up(float64(base) * (1 - float64(t.Step)))
	if quantified {
		// No more than is needed.
		to = max(to, used-up(math.Min(left, math.MaxInt32)))
	}
	to = max(to, c.Request, up(float64(c.Limit)*float64(t.Floor)), minQuota)
	if to >= used || c.Quota != Unlimited && to >= series.MilliCPU(c.Quota) {
		return 0, 0
	}
	return Quota(to), used - to
}

// up rounds up to whole millicores, but for what floating point adds.
func up(m float64) series.MilliCPU { return series.MilliCPU(math.Ceil(m - 1e-6)) }
