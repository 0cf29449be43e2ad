// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"context"
	"fmt"
	"math"
	"time"

	"crane.io/crane/internal/metrics"
	"crane.io/crane/pkg/cost"
	"crane.io/crane/pkg/series"
)

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
// the existing samples: a pod that is a minute old has the mean of that minute.
func ReadPodUsage(ctx context.Context, from metrics.UsageReader, namespaces []string, start, end time.Time) (*PodUsage, error) {
	u := &PodUsage{pods: map[podName]map[string]*containerMeans{}}
	for _, resource := range []metrics.Resource{metrics.CPU, metrics.Memory} {
		for c, err := range from.Usage(ctx, metrics.UsageRequest{Namespaces: namespaces, Resource: resource, Start: start, End: end}) {
			if err != nil {
				return nil, fmt.Errorf("reading the %s usage of pods: %w", resource, err)
			}
			means := u.container(c.Key)
			if resource == metrics.CPU {
				means.cpu.add(c.Series.Values)
			} else {
				means.memory.add(c.Series.Values)
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
			cpu, withCPU = cpu+c.cpu.value(), true
		}
		if c.memory.n > 0 {
			memory, withMemory = memory+c.memory.value(), true
		}
	}
	const most = 1 << 53
	if !withCPU || !withMemory || cpu*1000 > most || memory > most {
		return cost.Amounts{}, false
	}
	return cost.Amounts{CPU: series.MilliCPU(math.Round(cpu * 1000)), Memory: series.Bytes(math.Round(memory))}, true
}
