// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"errors"
	"fmt"
	"time"

	"crane.io/crane/pkg/series"
)

// Policy says how careful adoption is. DefaultPolicy gives each value with its reason.
type Policy struct {
	// Step is the share of what a container has now that one step takes away at most, 0 to 1 exclusive.
	Step series.Ratio
	// MinChange is the share below which a difference is not worth a step, 0 to 1 exclusive.
	MinChange series.Ratio
	// MinCPU and MinMemory are floors: nothing is lowered below them.
	MinCPU    series.MilliCPU
	MinMemory series.Bytes
	// Watch is how long a step is watched before the next.
	Watch time.Duration
	// Settle is how long pods may take to get a new size; those that wait longer are left waiting, and the step goes on.
	Settle time.Duration
	// PollInterval is the time between two looks while pods get a new size or a step is watched.
	PollInterval time.Duration
	// ReadyGrace is how long a pod may be not ready before that counts as worse.
	ReadyGrace time.Duration
	// CoolDown is the rest after a roll-back before anything is lowered again; MaxRollbacks in a row end it for good.
	CoolDown     time.Duration
	MaxRollbacks int
	// PodsAtOnce is the share of the pods of a workload that are lowered, or restarted, in one look; one at least.
	PodsAtOnce series.Ratio
	// Throttled is the share of CFS periods that counts as throttled, and ThrottledIncrease how much more than before the step it
	// has to be.
	Throttled, ThrottledIncrease series.Ratio
	// MaxPerNamespace and MaxPerCluster bound the workloads of which something is being lowered, the watch included.
	MaxPerNamespace, MaxPerCluster int
	// BreakerShare is the share of the workloads lowered within BreakerWindow that may have got worse before all adoption
	// stops; BreakerMinWorkloads is how many have to have got worse for that.
	BreakerShare        series.Ratio
	BreakerMinWorkloads int
	BreakerWindow       time.Duration
}

// DefaultPolicy is careful: a fifth at a time and ten minutes between, so that a container goes to a third of its request in
// an hour, and an hourly peak is met at least once on the way. A difference of 5 % is smaller than the error of a histogram
// bucket. The floors are what a small process needs to answer its probes.
func DefaultPolicy() Policy {
	return Policy{
		Step: 0.2, MinChange: 0.05, MinCPU: 10, MinMemory: 16 << 20,
		Watch: 10 * time.Minute, Settle: 5 * time.Minute, PollInterval: 15 * time.Second, ReadyGrace: time.Minute,
		CoolDown: 6 * time.Hour, MaxRollbacks: 3,
		PodsAtOnce: 0.25, Throttled: 0.25, ThrottledIncrease: 0.1,
		MaxPerNamespace: 3, MaxPerCluster: 20,
		BreakerShare: 0.2, BreakerMinWorkloads: 3, BreakerWindow: 24 * time.Hour,
	}
}

// Validate returns everything that is wrong with a policy.
func (p Policy) Validate() error {
	var errs []error
	share := func(name string, v series.Ratio) {
		if !(v > 0 && v < 1) {
			errs = append(errs, fmt.Errorf("%s %v: must be more than 0 and less than 1", name, v))
		}
	}
	share("step", p.Step)
	share("breakerShare", p.BreakerShare)
	if !(p.PodsAtOnce > 0 && p.PodsAtOnce <= 1) {
		errs = append(errs, fmt.Errorf("podsAtOnce %v: must be more than 0 and at most 1", p.PodsAtOnce))
	}
	for name, v := range map[string]series.Ratio{"material": p.MinChange, "throttled": p.Throttled, "throttledMore": p.ThrottledIncrease} {
		if !(v >= 0 && v < 1) {
			errs = append(errs, fmt.Errorf("%s %v: must be at least 0 and less than 1", name, v))
		}
	}
	for name, d := range map[string]time.Duration{
		"watch": p.Watch, "settle": p.Settle, "look": p.PollInterval, "readyGrace": p.ReadyGrace, "coolDown": p.CoolDown, "breakerWindow": p.BreakerWindow,
	} {
		if d <= 0 {
			errs = append(errs, fmt.Errorf("%s %s: must be more than 0", name, d))
		}
	}
	for name, n := range map[string]int{
		"maxRollbacks": p.MaxRollbacks, "perNamespace": p.MaxPerNamespace, "perCluster": p.MaxPerCluster, "breakerLeast": p.BreakerMinWorkloads,
	} {
		if n < 1 {
			errs = append(errs, fmt.Errorf("%s %d: must be 1 or more", name, n))
		}
	}
	if p.MinCPU < 0 || p.MinMemory < 0 {
		errs = append(errs, errors.New("minCPU and minMemory: must not be negative"))
	}
	return errors.Join(errs...)
}

func (p Policy) floor(f field) int64 {
	switch f {
	case replicas:
		return 1
	case cpuRequest, cpuLimit:
		return int64(p.MinCPU)
	default:
		return int64(p.MinMemory)
	}
}
