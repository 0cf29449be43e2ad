// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package scaling

import (
	"errors"
	"fmt"
	"math"
)

// Tolerance is the deviation of a metric from its target, as a fraction, that causes no scaling; 0.1 means 10 %.
type Tolerance struct {
	// Up applies to values above the target.
	Up float64
	// Down applies to values below the target.
	Down float64
}

// DefaultTolerance returns the default of --horizontal-pod-autoscaler-tolerance.
func DefaultTolerance() Tolerance { return Tolerance{Up: 0.1, Down: 0.1} }

// contains reports whether a ratio causes no scaling.
func (t Tolerance) contains(ratio float64) bool { return 1-t.Down <= ratio && ratio <= 1+t.Up }

// ErrNoMetric means that a metric has no usable value. The HPA then does not scale down, and scales up only on other metrics.
var ErrNoMetric = errors.New("no metric to decide by")

// PodState determines how an HPA counts a pod.
type PodState int

const (
	// Ready pods count with their usage.
	Ready PodState = iota
	// Unready pods started recently or are not ready. They count as idle when scaling up, so that a start-up peak scales nothing.
	Unready
	// Missing pods run without a sample. They count as idle when scaling up and at their target when scaling down.
	Missing
)

// Pod is one pod with its sample of a metric.
type Pod struct {
	State PodState
	// Usage of the pod in any unit; unused for Missing pods.
	Usage float64
	// Request is what the target is a fraction of: the request of the pod for a utilization target, 1 for an average value.
	Request float64
}

// ReplicasForPods returns the replicas that a Resource, ContainerResource or Pods metric asks for. target is the desired usage of a
// pod as a fraction of Pod.Request: 0.7 for a utilization of 70 %, or the average value where every Request is 1.
//
// It implements the replica calculator of kube-controller-manager (Kubernetes 1.36, "Algorithm details" of the HPA documentation):
// ceil(pods × usage / target). Missing pods are assumed to be idle when scaling up and at their target when scaling down, unready
// ones to be idle when scaling up. Where these assumptions reverse the direction, nothing changes.
func ReplicasForPods(pods []Pod, current int32, target float64, tolerance Tolerance) (int32, error) {
	if !(target > 0) || math.IsInf(target, 0) {
		return 0, fmt.Errorf("target %v: must be a positive number", target)
	}

	var ready usageSum
	unready := false
	missing := false
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

	// Missing pods dampen a change in either direction, unready ones only scaling up.
	ratio := ready.ratio(target)
	if missing || unready && ratio > 1 {
		return replicasWithAssumptions(pods, ratio, current, target, tolerance), nil
	}
	if tolerance.contains(ratio) {
		return current, nil
	}

	return ceilReplicas(ratio * float64(ready.pods)), nil
}

// effectiveState returns Missing for a ready pod whose usage is no valid number, else its state.
func (p Pod) effectiveState() PodState {
	if p.State == Ready && (!(p.Usage >= 0) || math.IsInf(p.Usage, 0)) {
		return Missing
	}

	return p.State
}

// replicasWithAssumptions includes the assumed usage of missing and unready pods, which dampens the change that ratio asks for.
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

// usageSum is a sum over pods.
type usageSum struct {
	usage, request float64
	pods           int
}

func (s *usageSum) add(use, request float64) {
	s.usage += use
	s.request += request
	s.pods++
}

func (s *usageSum) ratio(target float64) float64 { return s.usage / s.request / target }

// ReplicasForTotal returns the replicas that an External or Object metric with an average value asks for: ceil(value / perPod), or
// current while value / (current × perPod) is within the tolerance.
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

// ReplicasForValue returns the replicas that an External or Object metric with a plain value asks for: ceil(ready × value / target),
// or current while value / target is within the tolerance.
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

// ceilReplicas rounds up to whole replicas. Floating-point noise, as in 0.7 × 10, adds no replica.
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

// ReplicasForLoad returns the fewest replicas that carry a load at perPod each; 0 where either is no valid number.
func ReplicasForLoad(load, perPod float64) int32 {
	if !(load >= 0) || !(perPod > 0) || math.IsInf(load, 0) {
		return 0
	}

	return ceilReplicas(load / perPod)
}
