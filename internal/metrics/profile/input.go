// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"context"
	"fmt"
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"

	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/pkg/cost"
	"crane.io/crane/pkg/recommend/resource"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/series"
	"crane.io/crane/pkg/units"
)

// ResourceInput returns the input of the Resource recommender for a workload.
func (u *Usage) ResourceInput(w workload.Workload, policy rightsize.Policy, now time.Time) resource.Input {
	in := resource.Input{
		Policy:     policy,
		Now:        now,
		MaxCPU:     u.constraints.MaxCPU,
		MaxMemory:  u.constraints.MaxMemory,
		Autoscaler: SizingAutoscaler(u.constraints.UtilizationAutoscaler(w.Ref)),
	}

	for _, c := range w.Containers {
		in.Containers = append(in.Containers, resource.Container{
			Name:         c.Name,
			Init:         c.Role == workload.Init,
			Sidecar:      c.Role == workload.Sidecar,
			Profile:      u.Profile(w.Ref, c.Name),
			Current:      CurrentResources(c),
			OOMs:         u.oomKills(w.Ref, c),
			UnknownKills: u.unknownKills[w.Namespace],
			Job:          u.runs(w.Ref, c.Name),
			JVM:          u.jvm(w.Ref, c),
			HPA:          u.constraints.UtilizationTargets(w.Ref, c.Name),
			Groups:       u.nodeGroupUsage(w.Ref, c.Name),
			// No limit may bound a raise, and a request cannot be added in place.
			Raisable: c.Requests.CPU > 0 && c.Limits.CPU == 0 && !c.RestartsForCPU,
		})
	}

	return in
}

// minRuns is the number of pods of a few days at most from which pods of one template count as runs.
const minRuns = 3

// runs reports whether the pods of a container are runs, as opposed to replicas.
func (u *Usage) runs(ref workload.Ref, name string) bool {
	switch {
	case ref.RunsToCompletion():
		return true
	case !ref.RunGroup().IsRunGroup():
		return false
	}

	profile := u.Profile(ref, name)
	return profile != nil && profile.ShortLives() >= minRuns
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

// SizingAutoscaler returns the autoscaler that acts on the utilization of a workload's requests in the form of package resource;
// nil without targets.
func SizingAutoscaler(a workload.Autoscaler, targets []workload.UtilizationTarget) *resource.Autoscaler {
	if len(targets) == 0 {
		return nil
	}

	out := &resource.Autoscaler{Name: a.Name, Owned: a.Owner != ""}
	for _, t := range targets {
		out.Targets = append(out.Targets, resource.Target{
			Memory: t.Resource == corev1.ResourceMemory, Container: t.Container, Percent: t.Percent,
		})
	}

	return out
}

// SetConstraints sets the nodes and autoscalers for ResourceInput.
func (u *Usage) SetConstraints(c workload.Constraints) { u.constraints = c }

// oomKills returns the OOM kills of a container with the limit that it had at the time. Where the source does not know it, the memory is the
// peak of that day, bounded by the current limit or request, or 0 without any: the current limit may have been raised because of the kill.
func (u *Usage) oomKills(ref workload.Ref, c workload.Container) []rightsize.OOM {
	key := container{identity: identityOf(ref), name: c.Name}
	var out []rightsize.OOM
	for _, kill := range u.kills[key] {
		if kill.Memory > 0 || kill.NoLimit {
			out = append(out, kill)
			continue
		}

		memory := peakMemory(u.profiles[key], series.DayOf(kill.At))
		for _, bound := range []units.Bytes{c.Limits.Memory, c.Requests.Memory} {
			if memory == 0 || bound != 0 && bound < memory {
				memory = bound
			}

			if bound != 0 {
				break
			}
		}

		out = append(out, rightsize.OOM{At: kill.At, Memory: memory, LimitUnknown: true})
	}

	return out
}

// peakMemory returns the peak of a day; 0 where unknown.
func peakMemory(p *rightsize.Profile, date series.Day) units.Bytes {
	for _, d := range p.Days() {
		if d.Day == date && d.Memory.Total() > 0 {
			return units.Bytes(d.Memory.Max())
		}
	}

	return 0
}

// CurrentResources returns the current requests and limits of a container; those that are not set are nil, and a request of 0 is 0.
func CurrentResources(c workload.Container) rightsize.Resources {
	return rightsize.Resources{
		CPURequest:    pointerIfSet(c.Requests.CPU, c.Declared.CPURequest),
		CPULimit:      pointerIfSet(c.Limits.CPU, false),
		MemoryRequest: pointerIfSet(c.Requests.Memory, c.Declared.MemoryRequest),
		MemoryLimit:   pointerIfSet(c.Limits.Memory, false),
	}
}

func pointerIfSet[T units.MilliCPU | units.Bytes](v T, zero bool) *T {
	if v == 0 && !zero {
		return nil
	}

	return &v
}

// PodUsage is the mean usage of each pod over a window.
type PodUsage struct {
	pods map[podName]map[string]*containerMeans
}

type podName struct{ namespace, name string }

// containerMeans are the means of one container by resource.
type containerMeans struct{ cpu, memory mean }

// mean is the sum and count of samples.
type mean struct {
	sum float64
	n   int
}

func (m *mean) add(values []float64) {
	for _, v := range values {
		if !math.IsNaN(v) {
			m.sum += v
			m.n++
		}
	}
}

func (m mean) value() float64 { return m.sum / float64(m.n) }

// ReadPodUsage reads CPU and memory of all pods of some namespaces over [start, end); no namespaces mean all. The mean of a container covers
// the existing samples: a pod that is a minute old has the mean of that minute. Samples that neither the node nor the limit could give do not
// count; capacity may be nil where that is unknown.
func ReadPodUsage(ctx context.Context, from metrics.UsageReader, capacity metrics.CapacityReader, namespaces []string, start, end time.Time) (*PodUsage, error) {
	capacities, err := readCapacities(ctx, capacity, metrics.Window{Start: start, End: end}, namespaces)
	if err != nil {
		return nil, err
	}

	u := &PodUsage{pods: map[podName]map[string]*containerMeans{}}
	for _, resource := range []metrics.UsageKind{metrics.CPU, metrics.Memory} {
		for c, err := range from.Usage(ctx, metrics.UsageRequest{
			Namespaces: namespaces,
			Resource:   resource,
			Start:      start,
			End:        end,
		}) {
			if err != nil {
				return nil, fmt.Errorf("reading the %s usage of pods: %w", resource, err)
			}

			means := u.container(c.Key)
			usage := plausible(capacities, c, resource)
			if resource == metrics.CPU {
				means.cpu.add(usage.Values)
			} else {
				means.memory.add(usage.Values)
			}
		}
	}

	return u, nil
}

// container returns the means of a container and adds them where they are missing.
func (u *PodUsage) container(key metrics.ContainerKey) *containerMeans {
	pod := podName{key.Workload.Namespace, key.Pod}
	if u.pods[pod] == nil {
		u.pods[pod] = map[string]*containerMeans{}
	}
	if u.pods[pod][key.Container] == nil {
		u.pods[pod][key.Container] = &containerMeans{}
	}

	return u.pods[pod][key.Container]
}

// Mean returns the mean usage of a pod: the sum over its containers. ok is false where CPU or memory of all of them is unknown.
func (u *PodUsage) Mean(namespace, pod string) (usage cost.Amounts, ok bool) {
	var cpu, memory float64
	var withCPU, withMemory bool
	for _, c := range u.pods[podName{namespace, pod}] {
		if c.cpu.n > 0 {
			cpu += c.cpu.value()
			withCPU = true
		}

		if c.memory.n > 0 {
			memory += c.memory.value()
			withMemory = true
		}
	}

	const maxAmount = 1 << 53
	if !withCPU || !withMemory || cpu*1000 > maxAmount || memory > maxAmount {
		return cost.Amounts{}, false
	}

	return cost.Amounts{CPU: units.MilliCPU(math.Round(cpu * 1000)), Memory: units.Bytes(math.Round(memory))}, true
}
