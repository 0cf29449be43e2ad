// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"crane.io/crane/pkg/cost"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/series"
)

// SavingOf returns the saving of a plan for a workload with a number of pods. runs marks jobs, which hold their requests
// only while they run: the mean number of running pods counts. Init containers hold nothing while the other containers run;
// if one requests more than these together, the request of the pod counts.
func (p Plan) SavingOf(price cost.UnitPrice, pods int32, runs bool) cost.Saving {
	return p.saving(price, pods, runs, 0, len(p.Containers))
}

// ContainerSaving returns the part of SavingOf of the i-th container; the part of init containers belongs to the first.
func (p Plan) ContainerSaving(i int, price cost.UnitPrice, pods int32, runs bool) cost.Saving {
	return p.saving(price, pods, runs, i, i+1)
}

// saving returns the saving of the containers from <= i < to.
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

// resizes returns the change of the excess of init containers; nothing if there is none.
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

// resize returns the change of one container; resources that are not Ready stay unchanged.
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
