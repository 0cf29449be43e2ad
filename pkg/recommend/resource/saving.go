// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"crane.io/crane/pkg/cost"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/units"
)

// SavingOf returns the saving of a plan for a workload with a number of pods. Jobs, which runs marks, and other workloads whose
// pods were seen to be runs hold their requests only while they run: the mean number of running pods counts. Init containers hold nothing while the other containers run;
// if one requests more than these together, the request of the pod counts.
func (p Plan) SavingOf(price cost.UnitPrice, pods int32, runs bool) cost.Saving {
	return p.saving(price, pods, runs, 0, len(p.Containers))
}

// ContainerSaving returns the part of SavingOf of the i-th container; the part of init containers belongs to the first.
func (p Plan) ContainerSaving(i int, price cost.UnitPrice, pods int32, runs bool) cost.Saving {
	return p.saving(price, pods, runs, i, i+1)
}

// Requests returns the requests of all pods, today and as recommended, of the resources that SavingOf counts: their difference is the
// saving.
func (p Plan) Requests(pods int32, runs bool) (now, after cost.Amounts) {
	mean := float64(pods)
	if runs || p.MeanPods > 0 {
		mean = max(p.MeanPods, 0)
	}

	for _, r := range p.resizes(0, len(p.Containers)) {
		if r.CPUNow != nil && r.CPUNew != nil {
			now.CPU += units.MilliCPU(mean * float64(*r.CPUNow))
			after.CPU += units.MilliCPU(mean * float64(*r.CPUNew))
		}

		if r.MemoryNow != nil && r.MemoryNew != nil {
			now.Memory += units.Bytes(mean * float64(*r.MemoryNow))
			after.Memory += units.Bytes(mean * float64(*r.MemoryNew))
		}
	}

	return now, after
}

// saving returns the saving of the containers from <= i < to.
func (p Plan) saving(price cost.UnitPrice, pods int32, runs bool, from, to int) cost.Saving {
	if runs && p.MeanPods <= 0 {
		return cost.Saving{Price: price, NotCounted: []string{"no run of the job was seen, so how long it holds its requests is not known"}}
	}

	resizes := p.resizes(from, to)
	if p.MeanPods > 0 {
		return cost.SavingOfMean(price, p.MeanPods, resizes)
	}

	return cost.SavingOf(price, pods, resizes)
}

// resizes returns the changes of the containers from <= i < to; those of init containers belong to the first.
func (p Plan) resizes(from, to int) []cost.Resize {
	out := make([]cost.Resize, 0, to-from+1)
	for i := from; i < to; i++ {
		if !p.Containers[i].Init {
			out = append(out, resizeOf(p.Containers[i]))
		}
	}

	if from == 0 {
		out = append(out, p.Pod.resizes()...)
	}

	return out
}

// NodeGroupSaving returns the saving of the pods on the g-th node group of the i-th container, if a DaemonSet of its own has the size of the
// group. price is that of the nodes of the group.
func (p Plan) NodeGroupSaving(i, g int, price cost.UnitPrice) cost.Saving {
	c := p.Containers[i]
	group := c.NodeGroups[g]
	c.CPU = group.CPU
	c.Memory = group.Memory
	c.Target = group.Target

	return cost.SavingOf(price, int32(group.Pods), []cost.Resize{resizeOf(c)})
}

// resizes returns the change of the excess of init containers; nothing if there is none.
func (p PodRequest) resizes() []cost.Resize {
	out := cost.Resize{Container: "init containers", ZeroCounts: true}
	if s := p.cpu; s.isKnown && s.now != s.after {
		out.CPUNow = new(units.MilliCPU(s.now))
		out.CPUNew = new(units.MilliCPU(s.after))
	}

	if s := p.memory; s.isKnown && s.now != s.after {
		out.MemoryNow = new(units.Bytes(s.now))
		out.MemoryNew = new(units.Bytes(s.after))
	}

	if out.CPUNow == nil && out.MemoryNow == nil {
		return nil
	}

	return []cost.Resize{out}
}

// resizeOf returns the change of one container; resources that are not Ready stay unchanged.
func resizeOf(c rightsize.Recommendation) cost.Resize {
	out := cost.Resize{Container: c.Container, CPUNow: c.Current.CPURequest, MemoryNow: c.Current.MemoryRequest}
	if c.CPU.Status == rightsize.Ready {
		out.CPUNew = c.Target.CPURequest
	}
	if c.Memory.Status == rightsize.Ready {
		out.MemoryNew = c.Target.MemoryRequest
	}

	return out
}
