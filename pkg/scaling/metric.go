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
	// Unlisted pods have a sample and are no pods of the target: they count in an average, and not as pods.
	Unlisted
)

// Pod is one pod with its sample of a metric. Amounts are in thousandths, as the HPA controller reads them.
type Pod struct {
	State PodState
	// Usage of the pod; unused for Missing pods.
	Usage int64
	// Request is what a utilization is a fraction of; unused for an average value.
	Request int64
}

// Thousandths returns a value in thousandths, rounded up as a quantity of the Kubernetes API is.
func Thousandths(v float64) int64 {
	const limit = float64(math.MaxInt64) / 2

	// Floating-point noise above a whole number of thousandths is not rounded up.
	const slack = 1e-6

	switch scaled := v * 1000; {
	case math.IsNaN(v):
		return 0
	case scaled >= limit:
		return int64(limit)
	case scaled <= -limit:
		return -int64(limit)
	case v > 0:
		return max(1, int64(math.Ceil(scaled-slack)))
	default:
		return int64(math.Ceil(scaled - slack))
	}
}

// ReplicasForUtilization returns the replicas that a Resource or ContainerResource metric with a target utilization asks for; percent is the
// desired usage of the pods in per cent of their requests.
//
// It implements the replica calculator of kube-controller-manager (Kubernetes 1.36, "Algorithm details" of the HPA documentation):
// ceil(pods × utilization / target), with the utilization in whole per cent. Missing pods are assumed to be idle when scaling up and to use
// their request, or the target where it is higher, when scaling down; unready ones to be idle when scaling up. Where these assumptions reverse
// the direction, nothing changes.
func ReplicasForUtilization(pods []Pod, current, percent int32, tolerance Tolerance) (int32, error) {
	if percent <= 0 {
		return 0, fmt.Errorf("target %d %%: must be positive", percent)
	}

	fallback := int64(max(100, percent))
	return replicasForPods(pods, current, tolerance, podRule{
		ratio: func(s usageSum) (float64, bool) {
			if s.request == 0 {
				return 0, false
			}

			// Samples of other pods have no request to compare with.
			return float64(int32((s.usage-s.unlisted)*100/s.request)) / float64(percent), true
		},
		usageOfMissing: func(p Pod) int64 { return p.Request * fallback / 100 },
	})
}

// ReplicasForAverage returns the replicas that a metric of pods with a target value asks for, as ReplicasForUtilization does: the average over the
// pods counts in whole thousandths, and a missing pod as at its target when scaling down. target is in thousandths.
func ReplicasForAverage(pods []Pod, current int32, target int64, tolerance Tolerance) (int32, error) {
	if target <= 0 {
		return 0, fmt.Errorf("target %dm: must be positive", target)
	}

	return replicasForPods(pods, current, tolerance, podRule{
		ratio: func(s usageSum) (float64, bool) {
			return float64(s.usage/s.samples) / float64(target), true
		},
		usageOfMissing: func(Pod) int64 { return target },
	})
}

// podRule is how a metric of pods is compared with its target.
type podRule struct {
	// ratio returns the usage relative to the target; false where it is undefined.
	ratio func(usageSum) (float64, bool)
	// usageOfMissing is the assumed usage of a pod without a sample when scaling down.
	usageOfMissing func(Pod) int64
}

func replicasForPods(pods []Pod, current int32, tolerance Tolerance, rule podRule) (int32, error) {
	var measured usageSum
	ready := 0
	hasUnready := false
	hasMissing := false
	for _, p := range pods {
		switch p.State {
		case Missing:
			hasMissing = true
		case Unready:
			hasUnready = true
		case Unlisted:
			measured.addUnlisted(p.Usage)
		case Ready:
			measured.add(p.Usage, p.Request)
			ready++
		}
	}

	if measured.samples == 0 {
		return 0, fmt.Errorf("no ready pod with a sample among %d: %w", len(pods), ErrNoMetric)
	}

	ratio, ok := rule.ratio(measured)
	if !ok {
		return 0, fmt.Errorf("the ready pods request nothing: %w", ErrNoMetric)
	}

	// Missing pods dampen a change in either direction, unready ones only scaling up.
	if hasMissing || hasUnready && ratio > 1 {
		return replicasWithAssumptions(pods, measured, ratio, current, tolerance, rule)
	}

	if tolerance.contains(ratio) {
		return current, nil
	}

	return wholeReplicas(ratio * float64(ready)), nil
}

// replicasWithAssumptions includes the assumed usage of missing and unready pods, which dampens the change that ratio asks for.
func replicasWithAssumptions(pods []Pod, all usageSum, ratio float64, current int32, tolerance Tolerance, rule podRule) (int32, error) {
	for _, p := range pods {
		switch {
		case p.State == Missing && ratio < 1:
			all.add(rule.usageOfMissing(p), p.Request)
		case (p.State == Missing || p.State == Unready) && ratio > 1:
			all.add(0, p.Request)
		}
	}

	assumed, ok := rule.ratio(all)
	if !ok {
		return 0, fmt.Errorf("the pods request nothing: %w", ErrNoMetric)
	}

	if tolerance.contains(assumed) || ratio < 1 && assumed > 1 || ratio > 1 && assumed < 1 {
		return current, nil
	}

	replicas := wholeReplicas(assumed * float64(all.samples))
	if assumed < 1 && replicas > current || assumed > 1 && replicas < current {
		return current, nil
	}

	return replicas, nil
}

// usageSum is a sum over pods.
type usageSum struct {
	usage, request int64
	samples        int64
	unlisted       int64 // of usage
}

func (s *usageSum) add(use, request int64) {
	s.usage += use
	s.request += request
	s.samples++
}

func (s *usageSum) addUnlisted(use int64) {
	s.usage += use
	s.unlisted += use
	s.samples++
}

// ReplicasForTotal returns the replicas that an External or Object metric with an average value asks for: ceil(value / perPod), or
// current while value / (current × perPod) is within the tolerance. value and perPod are in thousandths.
func ReplicasForTotal(value, perPod int64, current int32, tolerance Tolerance) (int32, error) {
	if perPod <= 0 {
		return 0, fmt.Errorf("target %dm: must be positive", perPod)
	}

	if tolerance.contains(float64(value) / (float64(perPod) * float64(current))) {
		return current, nil
	}

	return wholeReplicas(float64(value) / float64(perPod)), nil
}

// ReplicasForValue returns the replicas that an External or Object metric with a plain value asks for: ceil(ready × value / target), or
// current while value / target is within the tolerance. At 0 replicas it is ceil(value / target). value and target are in thousandths; ready
// is negative where the target has no pods, ready or not.
func ReplicasForValue(value, target int64, current, ready int32, tolerance Tolerance) (int32, error) {
	if target <= 0 {
		return 0, fmt.Errorf("target %dm: must be positive", target)
	}

	ratio := float64(value) / float64(target)
	switch {
	case current == 0:
		return wholeReplicas(ratio), nil
	case tolerance.contains(ratio):
		return current, nil
	case ready < 0:
		return 0, fmt.Errorf("the target has no pods: %w", ErrNoMetric)
	}

	return wholeReplicas(ratio * float64(ready)), nil
}

// wholeReplicas rounds up as the HPA controller does, noise of floating-point numbers included: 10 × 1.1 is 12. A number that is too large is
// the largest one; the controller has no defined result for it.
func wholeReplicas(v float64) int32 {
	return int32(max(math.MinInt32, min(math.MaxInt32, math.Ceil(v))))
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
