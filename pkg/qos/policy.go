// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package qos

import (
	"time"

	"crane.io/crane/pkg/series"
)

// Policy is what holds for a node.
type Policy struct {
	// Rules are in the order in which they act.
	Rules []Rule
	// WaterMarks are the use below which nobody is evicted for it, whatever a rule says; a resource without one has none.
	WaterMarks map[Resource]series.Ratio
	// Unthrottled are resources that are never taken from pods, since nobody carries throttling of them out: evictions do not wait for it.
	Unthrottled map[Resource]bool
	// Limits bound what is done.
	Limits Limits
}

// Limits bound what is done, whatever rules say.
type Limits struct {
	// MaxEvictions is how many pods of the node may be evicted within Window.
	MaxEvictions   int
	EvictionWindow time.Duration
	// Excess is how much more than what is above a threshold has to go, so that the node does not stand right at it.
	Excess series.Ratio
	// RestoreMargin is the share of a threshold that stays free below it when cpu is given back: without it the node would come to stand right
	// at the threshold, and the next breath would be a breach.
	RestoreMargin series.Ratio
	// UnknownHold is how long a rule that has fired holds while its metric is unknown. The cool-down counts where it is longer.
	UnknownHold time.Duration
	// StuckAfter is how long beyond its grace period a pod that is ending counts as about to be gone.
	StuckAfter time.Duration
	// ReclaimWait is how long the evictions of a rule wait for files to be dropped. These count as memory that is available, before and after: it
	// is worth some seconds, and cannot be had where pods read again what they lose, or where the kernel or the disk is slow.
	ReclaimWait time.Duration
	// RefusalBackoff is how long a pod is left alone after its eviction was refused, as by a disruption budget.
	RefusalBackoff time.Duration
}

// DefaultLimits are the bounds without a configuration: Excess is gocrane's --execute-excess; at most five pods a minute leave time
// to see what each eviction brought, since pods take some seconds to end; in half a minute files are dropped in some steps, whatever the
// kernel does.
func DefaultLimits() Limits {
	return Limits{
		MaxEvictions: 5, EvictionWindow: time.Minute, Excess: 0.1, RestoreMargin: 0.05,
		UnknownHold: 5 * time.Minute, StuckAfter: time.Minute, ReclaimWait: 30 * time.Second, RefusalBackoff: 10 * time.Second,
	}
}

// Rule says when the node is tight.
type Rule struct {
	// Name tells rules apart, as nodeqos/rule.
	Name string
	// Metric is compared with Above, in the metric's own unit.
	Metric    string
	Threshold float64
	// Matches chooses series by their labels; nil for all.
	Matches func(labels map[string]string) bool
	// TriggerCount is the number of measurements in a row above the threshold after which the rule fires, Restore that of those not above
	// it after which it has ended. Both are at least 1.
	TriggerCount, RestoreCount int
	// MaxAge is the age up to which a measurement counts.
	MaxAge time.Duration
	// Preview tells of the action instead of taking it.
	Preview bool
	Action  Action
}

// Action is what is done while a rule fires. New pods are kept away in any case.
type Action struct {
	Name string
	// CoolDown is how long after a rule last fired new pods are still kept away.
	CoolDown time.Duration
	Throttle *CPUThrottling
	// ThrottleMemory is nil where no memory is taken.
	ThrottleMemory *MemoryThrottleSettings
	Evict          *EvictionSettings
}

// CPUThrottling takes cpu from pods.
type CPUThrottling struct {
	// Step is taken from a container's quota, or from its use where that is less, in one measurement; and given back.
	Step series.Ratio
	// Floor is the share of a container's limit that it keeps; it keeps its request in any case.
	Floor series.Ratio
}

// EvictionSettings evicts pods.
type EvictionSettings struct {
	// GracePeriod is the time that a pod has to end; nil for the pod's own.
	GracePeriod *time.Duration
}
