// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package qos

import (
	"time"

	"crane.io/crane/pkg/series"
)

// Policy holds the rules and bounds of a node.
type Policy struct {
	// Rules are in the order in which they act.
	Rules []Rule
	// WaterMarks are the shares of the capacity in use below which no pod is evicted; resources without an entry have none.
	WaterMarks map[Resource]series.Ratio
	// Unthrottled lists resources that trigger evictions but are never throttled, so that evictions do not wait for throttles.
	Unthrottled map[Resource]bool
	// Limits bound the actions.
	Limits Limits
}

// Limits bound the actions of all rules.
type Limits struct {
	// MaxEvictions is the number of pods of the node that may be evicted within EvictionWindow.
	MaxEvictions   int
	EvictionWindow time.Duration
	// Excess is the share to release beyond the excess over a threshold, so that the node does not stay right at it.
	Excess series.Ratio
	// RestoreMargin is the share of a threshold that stays free when CPU is restored; without it the next measurement would exceed the
	// threshold again.
	RestoreMargin series.Ratio
	// UnknownHold is how long the actions of a rule stay while its metric is unknown, or the cool-down if that is longer.
	UnknownHold time.Duration
	// StuckAfter is how long beyond its grace period a terminating pod still counts as about to end.
	StuckAfter time.Duration
	// ReclaimWait is how long the evictions of a rule wait while page cache is reclaimed. Page cache counts as available memory, so it is
	// worth only some seconds, and it cannot be reclaimed if pods read it again or the disk is slow.
	ReclaimWait time.Duration
	// RefusalBackoff is how long a pod is spared after its eviction was refused, as by a disruption budget.
	RefusalBackoff time.Duration
}

// DefaultLimits returns the default bounds. Excess is gocrane's --execute-excess; five evictions a minute leave time to see the effect of
// each, since pods take seconds to end; half a minute suffices to reclaim page cache in several steps.
func DefaultLimits() Limits {
	return Limits{
		MaxEvictions: 5, EvictionWindow: time.Minute, Excess: 0.1, RestoreMargin: 0.05,
		UnknownHold: 5 * time.Minute, StuckAfter: time.Minute, ReclaimWait: 30 * time.Second, RefusalBackoff: 10 * time.Second,
	}
}

// Rule defines when the node is under pressure.
type Rule struct {
	// Name identifies the rule, as nodeqos/rule.
	Name string
	// Metric is compared with Threshold, in the metric's own unit.
	Metric    string
	Threshold float64
	// Matches selects series by their labels; nil selects all.
	Matches func(labels map[string]string) bool
	// TriggerCount is the number of consecutive measurements above the threshold after which the rule fires, RestoreCount that of
	// measurements not above it after which the rule ends. Both are at least 1.
	TriggerCount, RestoreCount int
	// MaxAge is the largest age of a usable measurement.
	MaxAge time.Duration
	// Preview reports the action instead of taking it.
	Preview bool
	Action  Action
}

// Action is taken while a rule fires. New pods are kept away in any case.
type Action struct {
	Name string
	// CoolDown is how long new pods are kept away after the rule last fired.
	CoolDown time.Duration
	Throttle *CPUThrottling
	// ThrottleMemory is nil if memory is not throttled.
	ThrottleMemory *MemoryThrottleSettings
	Evict          *EvictionSettings
}

// CPUThrottling lowers the CPU quota of pods.
type CPUThrottling struct {
	// Step is the share by which a container's quota, or its use if lower, is reduced per measurement, and restored.
	Step series.Ratio
	// Floor is the share of its limit that a container keeps; it always keeps its request.
	Floor series.Ratio
}

// EvictionSettings evict pods.
type EvictionSettings struct {
	// GracePeriod is the grace period; nil for the pod's own.
	GracePeriod *time.Duration
}
