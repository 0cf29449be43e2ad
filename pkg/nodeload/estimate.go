// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeload

import (
	"math"

	"crane.io/crane/pkg/units"
)

// Amount is CPU and memory.
type Amount struct {
	CPU    units.MilliCPU
	Memory units.Bytes
}

// PodRequest is the request or limit of a pod; 0 if there is none.
type PodRequest struct {
	Request Amount
	Limit   Amount
}

// Share is the ratio of usage to requests.
type Share struct {
	CPU    units.Ratio
	Memory units.Ratio
}

// Basis is the source of an estimate.
type Basis int8

// Sources of an estimate, the best first.
const (
	// FromHistory is the usage of the workload.
	FromHistory Basis = iota
	// FromRequest is a share of the request.
	FromRequest
	// FromLimit is a share of the limit, of a pod that requests nothing.
	FromLimit
	// FromNothing is BestEffortUse, of a pod without request and limit.
	FromNothing
)

func (b Basis) String() string {
	return [...]string{"history", "request", "limit", "nothing"}[b]
}

// Bounds of a learned share.
const (
	minShare, maxShare = 0.05, 1
)

// DefaultShare is used until the usage and requests of the cluster are known. It lies between the usual values (a
// third and two thirds) and all, because an estimate that is too high only spreads pods more than needed, while one
// that is too low lets a burst land on one node.
func DefaultShare() Share { return Share{CPU: 0.6, Memory: 0.8} }

// BestEffortUse is the estimate for a pod without request and limit: the value that kube-scheduler uses in scoring.
func BestEffortUse() Amount { return Amount{CPU: 100, Memory: 200 << 20} }

// LearnShare returns the ratio of usage to requests, bounded, if both are known.
func LearnShare(used, requested Amount) Share {
	share := DefaultShare()
	if used.CPU > 0 && requested.CPU > 0 {
		share.CPU = units.Ratio(min(max(float64(used.CPU)/float64(requested.CPU), minShare), maxShare))
	}
	if used.Memory > 0 && requested.Memory > 0 {
		share.Memory = units.Ratio(min(max(float64(used.Memory)/float64(requested.Memory), minShare), maxShare))
	}

	return share
}

// Estimate returns the expected usage of a pod, by resource: the usage of its workload; else a share of the request;
// else a share of the limit; else BestEffortUse. It is never above the limit. The basis is that of the CPU.
func Estimate(ask PodRequest, history Amount, share Share) (Amount, Basis) {
	cpu, basis := estimate(float64(ask.Request.CPU), float64(ask.Limit.CPU), float64(history.CPU), float64(share.CPU), float64(BestEffortUse().CPU))
	memory, _ := estimate(float64(ask.Request.Memory), float64(ask.Limit.Memory), float64(history.Memory), float64(share.Memory), float64(BestEffortUse().Memory))
	return Amount{CPU: units.MilliCPU(cpu), Memory: units.Bytes(memory)}, basis
}

// departedShare is the part of an estimate that a departed pod is credited with. A recommendation is a high quantile of
// the usage and a margin, so that the mean usage is about half of it; and of pods with the same request more than half
// use less than the mean, because few use much.
const departedShare = 0.5

// Credit is what a departed pod is assumed to have used, by resource either measured or estimated.
type Credit struct {
	// Measured follows from the usage of the pod's workload.
	Measured Amount
	// Estimated follows from its request or limit. An idle pod with a large request used nothing of it.
	Estimated Amount
}

// DepartureCredit returns what a pod that has ended is assumed to have used: a part of its Estimate, because a credit
// that is too high makes a loaded node look free, while one that is too low lasts only until the next samples.
func DepartureCredit(ask PodRequest, history Amount, share Share) Credit {
	var c Credit
	use, _ := Estimate(ask, history, share)

	use.CPU = units.MilliCPU(float64(use.CPU) * departedShare)
	use.Memory = units.Bytes(float64(use.Memory) * departedShare)
	if history.CPU > 0 {
		c.Measured.CPU = use.CPU
	} else {
		c.Estimated.CPU = use.CPU
	}

	if history.Memory > 0 {
		c.Measured.Memory = use.Memory
	} else {
		c.Estimated.Memory = use.Memory
	}

	return c
}

func estimate(request, limit, history, share, nothing float64) (float64, Basis) {
	var use float64
	var basis Basis
	switch {
	case history > 0:
		use = history
		basis = FromHistory
	case request > 0:
		use = request * share
		basis = FromRequest

	case limit > 0:
		use = limit * share
		basis = FromLimit
	default:
		use = nothing
		basis = FromNothing
	}

	if limit > 0 {
		use = min(use, limit)
	}

	// With an estimate of 0 any number of pods would fit.
	return max(math.Round(use), 1), basis
}
