// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"time"

	"crane.io/crane/pkg/rightsize/calibrate"
)

// Input is everything that a decision about one workload depends on.
type Input struct {
	Now    time.Time
	Policy Policy
	// DesiredSize is the recommended size; empty when adoption was switched off. Recommendation names its source as namespace/name.
	DesiredSize    Size
	Recommendation string
	// Stale is the reason why the recommendation is too old, or failed, to lower anything by it; empty when it is current.
	Stale string

	// Template is the size in the pod template, limited to the containers of the desired size; Owner is the field manager that
	// set it. Effective is the size that new pods of the template get without adoption, with the defaults of the API server and of
	// LimitRanges; empty if it is the template's.
	Template  Size
	Effective Size
	Owner     string
	// Blocked is the reason why no new change may start, up or down, because another object would have to change as well; empty
	// when changes may start. A change that has started is still watched and rolled back if necessary.
	Blocked string
	// Targets are the utilization targets of the workload's autoscaler that may change together with the requests.
	Targets []Target

	// OptedOut (by label) and Terminating (the workload or its namespace) both leave everything untouched.
	OptedOut, Terminating bool
	// RolloutInProgress reports a roll-out of the workload that Crane did not start.
	RolloutInProgress bool
	// UpdateTemplate writes the size into the pod template once running pods have proved it.
	UpdateTemplate bool

	// Reach selects the pods that get the size. MinReplicas is the number of pods that must run before one is changed; 0 selects
	// the default of the reach.
	Reach       Reach
	MinReplicas int32
	// DesiredReplicas is the number of pods that the workload should have; 0 when unknown.
	DesiredReplicas int32

	Pods    []Pod
	Signals Signals
	// Creation is what is known of the creation of pods. Bounds are the objects of the namespace that bound the desired size, each with what
	// it allows.
	Creation Creation
	Bounds   []string
	// NewPodsUnsized is the reason why new pods never get a size at their creation; empty if they do.
	NewPodsUnsized string
	// Demands are the containers whose CPU usage exceeded the request within the last minutes, by which single pods are raised; none
	// where no reaction acts on the workload. Reaction has the headroom and the hold.
	Demands  []Demand
	Reaction calibrate.Reaction
	State    State
	// Allowance holds the limits of budgets, circuit breaker and maintenance windows.
	Allowance Allowance
	// DisruptionsAllowed is the number of pods that the disruption budgets let restart now; negative without a budget.
	DisruptionsAllowed int
	// MinHealthy is the number of healthy pods that the disruption budgets require; 0 without a budget.
	MinHealthy int32
}
