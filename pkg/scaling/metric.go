// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package scaling

import (
	"errors"
	"fmt"
	"math"
)

// Tolerance is how far the ratio of a metric to its target may be from 1 before replicas change; a fraction, 0.1 means 10 %.
type Tolerance struct {
	// Up counts where the metric is above its target.
	Up float64
	// Down counts where it is below.
	Down float64
}

// DefaultTolerance is the controller's --horizontal-pod-autoscaler-tolerance.
func DefaultTolerance() Tolerance { return Tolerance{Up: 0.1, Down: 0.1} }

// contains tells whether a ratio asks for no change.
func (t Tolerance) contains(ratio float64) bool { return 1-t.Down <= ratio && ratio <= 1+t.Up }

// ErrNoMetric means that a metric has no value to decide by. The HPA then never scales down, and scales up only on others.
var ErrNoMetric = errors.New("no metric to decide by")

// PodState says what a pod's sample is worth to the HPA.
type PodState int

const (
	// Ready pods count with their use.
	Ready PodState = iota
	// Unready pods have started a moment ago or are not ready: on the way up they count as idle, so that a start-up peak
	// scales nothing.
	Unready
	// Missing pods run and have no sample: they count as idle on the way up and at their target on the way down.
	Missing
)

// Pod is one pod as a per-pod metric sees it.
type Pod struct {
	State PodState
	// Usage is what the pod uses, in any unit; not looked at where the pod is Missing.
	Usage float64
	// Request is what Target is a fraction of: the pod's request for a utilisation target, 1 for an average value.
	Request float64
}

// ReplicasForPods returns how many replicas a Resource, ContainerResource or Pods metric asks for: target is the use that a pod should
// have, as a fraction of Pod.Request (0.7 for a utilisation of 70 %, or the average value where every Request is 1).
//
// It is the replica calculator of kube-controller-manager (Kubernetes 1.36, "Algorithm details" of the HPA's documentation):
// ceil(pods × use / target), with missing pods assumed to be idle on the way up and at their target on the way down, unready ones
// idle on the way up, and no change where these assumptions turn the direction round.
func ReplicasForPods(pods []Pod, current int32, target float64, tolerance Tolerance) (int32, error) {
	if !(target > 0) || math.IsInf(target, 0) {
		return 0, fmt.Errorf("target %v: must be a positive number", target)
	}
	var ready usageSum
	unready, missing := false, false
	for _, p := range pods {
		if !(p.Request > 0) {
			return 0, fmt.Errorf("a pod requests %v: %w", p.Request, ErrNoMetric)
		}
		switch p.effectiveState() {
		case Missing:
			missing = true
		case Unready:
			unready = true
		default:
			ready.add(p.Usage, p.Request)
		}
	}
	if ready.pods == 0 {
		return 0, fmt.Errorf("no ready pod with a sample among %d: %w", len(pods), ErrNoMetric)
	}
	ratio := ready.ratio(target)
	if missing || unready && ratio > 1 {
		return replicasWithAssumptions(pods, ratio, current, target, tolerance), nil
	}
	if tolerance.contains(ratio) {
		return current, nil
	}
	return ceilReplicas(ratio * float64(ready.pods)), nil
}

// effectiveState is what a sample is worth: one that is no number is none.
func (p Pod) effectiveState() PodState {
	if p.State == Ready && (!(p.Usage >= 0) || math.IsInf(p.Usage, 0)) {
		return Missing
	}
	return p.State
}

// replicasWithAssumptions counts the pods without a sample, and those that start, so that they slow the change that ratio asks for.
func replicasWithAssumptions(pods []Pod, ratio float64, current int32, target float64, tolerance Tolerance) int32 {
	var all usageSum
	for _, p := range pods {
		switch state := p.effectiveState(); {
		case state == Missing && ratio < 1:
			all.add(math.Max(1, target)*p.Request, p.Request)
		case state == Missing || state == Unready && ratio > 1:
			all.add(0, p.Request)
		case state == Ready:
			all.add(p.Usage, p.Request)
		}
	}
	assumed := all.ratio(target)
	if tolerance.contains(assumed) || (ratio < 1) != (assumed < 1) {
		return current
	}
	wanted := ceilReplicas(assumed * float64(all.pods))
	if assumed < 1 && wanted > current || assumed > 1 && wanted < current {
		return current
	}
	return wanted
}

// usageSum adds up pods.
type usageSum struct {
	usage, request float64
	pods           int
}

func (s *usageSum) add(use, request float64) {
	s.usage, s.request, s.pods = s.usage+use, s.request+request, s.pods+1
}

func (s *usageSum) ratio(target float64) float64 { return s.usage / s.request / target }

// ReplicasForTotal returns how many replicas an External or Object metric with an average value asks for: ceil(value / perPod), and the
// current number while value / (current × perPod) is within the tolerance.
func ReplicasForTotal(value, perPod float64, current int32, tolerance Tolerance) (int32, error) {
	switch {
	case math.IsNaN(value) || math.IsInf(value, 0) || value < 0:
		return 0, fmt.Errorf("value %v: %w", value, ErrNoMetric)
	case !(perPod > 0) || math.IsInf(perPod, 0):
		return 0, fmt.Errorf("target %v: must be a positive number", perPod)
	}
	if current > 0 && tolerance.contains(value/(perPod*float64(current))) {
		return current, nil
	}
	return ceilReplicas(value / perPod), nil
}

// ReplicasForValue returns how many replicas an External or Object metric with a plain value asks for: ceil(ready × value / target), and the
// current number while value / target is within the tolerance.
func ReplicasForValue(value, target float64, current, ready int32, tolerance Tolerance) (int32, error) {
	switch {
	case math.IsNaN(value) || math.IsInf(value, 0) || value < 0:
		return 0, fmt.Errorf("value %v: %w", value, ErrNoMetric)
	case !(target > 0) || math.IsInf(target, 0):
		return 0, fmt.Errorf("target %v: must be a positive number", target)
	}
	ratio := value / target
	if tolerance.contains(ratio) {
		return current, nil
	}
	return ceilReplicas(ratio * float64(ready)), nil
}

// ceilReplicas rounds up to whole replicas. A product such as 0.7 × 10 that is whole but for its last bits is not a replica more.
func ceilReplicas(v float64) int32 {
	const slack = 1e-9
	switch r := math.Ceil(v * (1 - slack)); {
	case r >= math.MaxInt32:
		return math.MaxInt32
	case r <= 0:
		return 0
	default:
		return int32(r)
	}
}

// ReplicasForLoad returns the fewest replicas that carry a load at perPod each; 0 where either is not a usable number.
func ReplicasForLoad(load, perPod float64) int32 {
	if !(load >= 0) || !(perPod > 0) || math.IsInf(load, 0) {
		return 0
	}
	return ceilReplicas(load / perPod)
}
