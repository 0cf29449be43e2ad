// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"crane.io/crane/pkg/cost"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/series"
)

// SavingOf says what a plan is worth for a workload with so many pods. runs marks jobs: they hold what they request only
// while they run, so what counts is the number of pods that ran on average. Init containers hold nothing while the others
// run; where one asks for more than they do together, it is what the pod requests that counts.
func (p Plan) SavingOf(price cost.UnitPrice, pods int32, runs bool) cost.Saving {
	return p.saving(price, pods, runs, 0, len(p.Containers))
}

// ContainerSaving is the part of SavingOf that the i-th container has; what init containers add is with the first.
func (p Plan) ContainerSaving(i int, price cost.UnitPrice, pods int32, runs bool) cost.Saving {
	return p.saving(price, pods, runs, i, i+1)
}

// saving is that of the containers from <= i < to.
func (p Plan) saving(price cost.UnitPrice, pods int32, runs bool, from, to int) cost.Saving {
	if runs && p.MeanPods <= 0 {
		return cost.Saving{Price: price, NotCounted: []string{"no run of the job was seen, so how long it holds its requests is not known"}}
	}
	resizes := make([]cost.Resize, 0, to-from+1)
	for i := from; i < to; i++ {
		if !p.Containers[i].Init {
			resizes = append(resizes, p.resize(i))
		}
	}
	if from == 0 {
		resizes = append(resizes, p.Pod.resizes()...)
	}
	if runs {
		return cost.SavingOfMean(price, p.MeanPods, resizes)
	}
	return cost.SavingOf(price, pods, resizes)
}

// resizes is what init containers add to the sum of the others: nothing where they never ask for more than those.
func (p PodRequest) resizes() []cost.Resize {
	out := cost.Resize{Container: "init containers", ZeroCounts: true}
	if s := p.cpu; s.known && s.now != s.after {
		out.CPUNow, out.CPUNew = new(series.MilliCPU(s.now)), new(series.MilliCPU(s.after))
	}
	if s := p.memory; s.known && s.now != s.after {
		out.MemoryNow, out.MemoryNew = new(series.Bytes(s.now)), new(series.Bytes(s.after))
	}
	if out.CPUNow == nil && out.MemoryNow == nil {
		return nil
	}
	return []cost.Resize{out}
}

// resize is the change of one container; a resource that is not Ready stays as it is.
func (p Plan) resize(i int) cost.Resize {
	c := p.Containers[i]
	out := cost.Resize{Container: c.Container, CPUNow: c.Current.CPURequest, MemoryNow: c.Current.MemoryRequest}
	if c.CPU.Status == rightsize.Ready {
		out.CPUNew = c.Target.CPURequest
	}
	if c.Memory.Status == rightsize.Ready {
		out.MemoryNew = c.Target.MemoryRequest
	}
	return out
}
