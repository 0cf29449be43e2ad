// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"errors"
	"fmt"
	"time"

	"crane.io/crane/pkg/units"
)

// Policy holds the limits and times of adoption. DefaultPolicy gives each value with its reason.
type Policy struct {
	// Step is the largest share of a request that one step takes away, between 0 and 1 exclusive.
	Step units.Ratio
	// MinChange is the share below which a difference is not worth a step, from 0 to below 1.
	MinChange units.Ratio
	// MinCPU and MinMemory are the smallest values that anything is lowered to.
	MinCPU    units.MilliCPU
	MinMemory units.Bytes
	// Watch is how long a step is watched before the next.
	Watch time.Duration
	// Settle is how long pods may take to get a new size before the step continues without them.
	Settle time.Duration
	// PollInterval is the time between two decisions while pods are resized or a step is watched.
	PollInterval time.Duration
	// ReadyGrace is how long a pod may be not ready before that counts as a regression.
	ReadyGrace time.Duration
	// CoolDown is the pause after a rollback before anything is lowered again; MaxRollbacks in a row stop adoption.
	CoolDown     time.Duration
	MaxRollbacks int
	// PodsAtOnce is the share of a workload's pods that one decision lowers or restarts; at least one pod.
	PodsAtOnce units.Ratio
	// Throttled is the share of throttled CFS periods, and ThrottledIncrease the increase since before the step, from which
	// throttling counts as a regression.
	Throttled, ThrottledIncrease units.Ratio
	// MaxPerNamespace and MaxPerCluster bound the workloads that are being lowered or watched.
	MaxPerNamespace, MaxPerCluster int
	// BreakerShare is the share of the workloads lowered within BreakerWindow that may get worse before the circuit breaker of their namespace,
	// or of the cluster, opens; BreakerMinWorkloads is the smallest number of worse workloads that opens it.
	BreakerShare        units.Ratio
	BreakerMinWorkloads int
	BreakerWindow       time.Duration
}

// DefaultPolicy returns cautious values. A fifth per step and ten minutes between steps lower a request to a third within an hour and
// include an hourly peak at least once. A difference of 5 % is smaller than the error of a histogram bucket. The smallest values let
// a small process answer its probes.
func DefaultPolicy() Policy {
	return Policy{
		Step:                0.2,
		MinChange:           0.05,
		MinCPU:              10,
		MinMemory:           16 << 20,
		Watch:               10 * time.Minute,
		Settle:              5 * time.Minute,
		PollInterval:        15 * time.Second,
		ReadyGrace:          time.Minute,
		CoolDown:            6 * time.Hour,
		MaxRollbacks:        3,
		PodsAtOnce:          0.25,
		Throttled:           0.25,
		ThrottledIncrease:   0.1,
		MaxPerNamespace:     3,
		MaxPerCluster:       20,
		BreakerShare:        0.2,
		BreakerMinWorkloads: 3,
		BreakerWindow:       24 * time.Hour,
	}
}

// Validate returns everything that is wrong with the policy.
func (p Policy) Validate() error {
	var errs []error
	check := func(ok bool, name string, v any, allowed string) {
		if !ok {
			errs = append(errs, fmt.Errorf("%s %v: must be %s", name, v, allowed))
		}
	}

	check(p.Step > 0 && p.Step < 1, "step", p.Step, "more than 0 and less than 1")
	check(p.BreakerShare > 0 && p.BreakerShare < 1, "breakerShare", p.BreakerShare, "more than 0 and less than 1")
	check(p.PodsAtOnce > 0 && p.PodsAtOnce <= 1, "podsAtOnce", p.PodsAtOnce, "more than 0 and at most 1")

	for name, v := range map[string]units.Ratio{"minChange": p.MinChange, "throttled": p.Throttled, "throttledIncrease": p.ThrottledIncrease} {
		check(v >= 0 && v < 1, name, v, "at least 0 and less than 1")
	}

	for name, d := range map[string]time.Duration{
		"watch": p.Watch, "settle": p.Settle, "pollInterval": p.PollInterval, "readyGrace": p.ReadyGrace, "coolDown": p.CoolDown, "breakerWindow": p.BreakerWindow,
	} {
		check(d > 0, name, d, "more than 0")
	}

	for name, n := range map[string]int{
		"maxRollbacks": p.MaxRollbacks, "maxPerNamespace": p.MaxPerNamespace, "maxPerCluster": p.MaxPerCluster, "breakerMinWorkloads": p.BreakerMinWorkloads,
	} {
		check(n >= 1, name, n, "1 or more")
	}

	check(p.MinCPU >= 0 && p.MinMemory >= 0, "minCPU and minMemory", fmt.Sprintf("%d and %d", p.MinCPU, p.MinMemory), "0 or more")
	return errors.Join(errs...)
}

// floor returns the smallest value that a field is lowered to.
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
