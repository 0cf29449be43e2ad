// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"time"

	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/pkg/recommend/resource"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/series"
)

// ResourceInput returns the input of the Resource recommender for a workload.
func (u *Usage) ResourceInput(w workload.Workload, policy rightsize.Policy, now time.Time) resource.Input {
	in := resource.Input{Policy: policy, Now: now, MaxCPU: u.constraints.MaxCPU, MaxMemory: u.constraints.MaxMemory}
	for _, c := range w.Containers {
		in.Containers = append(in.Containers, resource.Container{
			Name:    c.Name,
			Init:    c.Role == workload.Init,
			Sidecar: c.Role == workload.Sidecar,
			Profile: u.Profile(w.Ref, c.Name),
			Current: CurrentResources(c),
			OOMs:    u.oomKills(w.Ref, c),
			Job:     w.Kind == "Job" || w.Kind == "CronJob",
			JVM:     u.jvm(w.Ref, c),
			HPA:     u.constraints.UtilizationTargets(w.Ref, c.Name),
			Groups:  u.nodeGroupUsage(w.Ref, c.Name),
		})
	}
	return in
}

// nodeGroupUsage returns the usage of a DaemonSet's container by current node group.
func (u *Usage) nodeGroupUsage(ref workload.Ref, name string) []rightsize.NodeGroupUse {
	if ref.Kind != daemonSet {
		return nil
	}
	var out []rightsize.NodeGroupUse
	for _, g := range u.constraints.Nodes.Groups {
		key := container{identity: identityOf(ref), name: name, group: g.Name}
		if p := u.grouped[key]; p != nil {
			out = append(out, rightsize.NodeGroupUse{NodeGroupShape: g, Profile: p})
		}
	}
	return out
}

// SetConstraints sets the nodes and autoscalers for ResourceInput.
func (u *Usage) SetConstraints(c workload.Constraints) { u.constraints = c }

// oomKills returns the OOM kills of a container with the memory that it had at the time. Where the source does not know it, the estimate is
// the peak of that day, bounded by the current limit or request. The current limit alone may have been raised because of the kill.
func (u *Usage) oomKills(ref workload.Ref, c workload.Container) []rightsize.OOM {
	key := container{identity: identityOf(ref), name: c.Name}
	var out []rightsize.OOM
	for _, kill := range u.kills[key] {
		if kill.Memory > 0 {
			out = append(out, kill)
			continue
		}
		memory := peakMemory(u.profiles[key], series.DayOf(kill.At))
		for _, bound := range []series.Bytes{c.Limits.Memory, c.Requests.Memory} {
			if memory == 0 || bound != 0 && bound < memory {
				memory = bound
			}
			if bound != 0 {
				break
			}
		}
		if memory > 0 {
			out = append(out, rightsize.OOM{At: kill.At, Memory: memory})
		}
	}
	return out
}

// peakMemory returns the peak of a day; 0 where unknown.
func peakMemory(p *rightsize.Profile, date series.Day) series.Bytes {
	for _, d := range p.Days() {
		if d.Day == date && d.Memory.Total() > 0 {
			return series.Bytes(d.Memory.Max())
		}
	}
	return 0
}

// CurrentResources returns the current requests and limits of a container; those that are not set are nil.
func CurrentResources(c workload.Container) rightsize.Resources {
	return rightsize.Resources{
		CPURequest: pointerIfSet(c.Requests.CPU), CPULimit: pointerIfSet(c.Limits.CPU),
		MemoryRequest: pointerIfSet(c.Requests.Memory), MemoryLimit: pointerIfSet(c.Limits.Memory),
	}
}

func pointerIfSet[T series.MilliCPU | series.Bytes](v T) *T {
	if v == 0 {
		return nil
	}
	return &v
}
