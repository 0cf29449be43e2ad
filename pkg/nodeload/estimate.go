// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeload

import (
	"math"

	"crane.io/crane/pkg/series"
)

// Amount is CPU and memory.
type Amount struct {
	CPU    series.MilliCPU
	Memory series.Bytes
}

// Ask is what a pod asks for; 0 where it asks for nothing.
type Ask struct {
	Request Amount
	Limit   Amount
}

// Share is how much of what is requested is used.
type Share struct {
	CPU    series.Ratio
	Memory series.Ratio
}

// Basis says what an estimate was made from.
type Basis int8

// The bases of an estimate, the best first.
const (
	// FromHistory is what the workload was found to need.
	FromHistory Basis = iota
	// FromRequest is a share of the request.
	FromRequest
	// FromLimit is a share of the limit, of a pod that requests nothing.
	FromLimit
	// FromNothing is BestEffortUse, of a pod that asks for nothing.
	FromNothing
)

func (b Basis) String() string {
	return [...]string{"history", "request", "limit", "nothing"}[b]
}

// Limits of what is believed of a share that was learned.
const (
	minShare, maxShare = 0.05, 1
)

// DefaultShare is used until the use of the cluster beside its requests is known. It lies between what is usual (a
// third and two thirds) and all, because an estimate that is too high spreads pods more than needed and one that is too
// low lets a burst fall on one node.
func DefaultShare() Share { return Share{CPU: 0.6, Memory: 0.8} }

// BestEffortUse is what a pod counts that asks for nothing: what kube-scheduler counts for it when it scores.
func BestEffortUse() Amount { return Amount{CPU: 100, Memory: 200 << 20} }

// LearnShare is how much of its requests a cluster uses, if both are known, within sensible bounds.
func LearnShare(used, requested Amount) Share {
	share := DefaultShare()
	if used.CPU > 0 && requested.CPU > 0 {
		share.CPU = series.Ratio(min(max(float64(used.CPU)/float64(requested.CPU), minShare), maxShare))
	}
	if used.Memory > 0 && requested.Memory > 0 {
		share.Memory = series.Ratio(min(max(float64(used.Memory)/float64(requested.Memory), minShare), maxShare))
	}
	return share
}

// Estimate is what a pod will use: of each resource what its workload was found to need; else the share of its request;
// else the share of its limit; else BestEffortUse. It is never more than the limit. The basis is that of the CPU.
func Estimate(ask Ask, history Amount, share Share) (Amount, Basis) {
	cpu, basis := estimate(float64(ask.Request.CPU), float64(ask.Limit.CPU), float64(history.CPU), float64(share.CPU), float64(BestEffortUse().CPU))
	memory, _ := estimate(float64(ask.Request.Memory), float64(ask.Limit.Memory), float64(history.Memory), float64(share.Memory), float64(BestEffortUse().Memory))
	return Amount{CPU: series.MilliCPU(cpu), Memory: series.Bytes(memory)}, basis
}

func estimate(request, limit, history, share, nothing float64) (float64, Basis) {
	var use float64
	var basis Basis
	switch {
	case history > 0:
		use, basis = history, FromHistory
	case request > 0:
		use, basis = request*share, FromRequest
	case limit > 0:
		use, basis = limit*share, FromLimit
	default:
		use, basis = nothing, FromNothing
	}
	if limit > 0 {
		use = min(use, limit)
	}
	// A pod that is counted at nothing could come any number of times.
	return max(math.Round(use), 1), basis
}
