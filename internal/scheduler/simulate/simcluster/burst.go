// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package simcluster

import (
	"fmt"
	"time"

	"crane.io/crane/pkg/series"
)

// Burst is a cluster of which one node idles, and many equal pods that come at once.
type Burst struct {
	*World
	// On is the node of each pod that is there already; the pods after those are the burst.
	On []int
}

// Sizes of the nodes and pods of a burst.
const (
	burstCPU, burstMemory = 16_000, 64 << 30
	burstRequest          = 500
	burstUse              = 0.6
	residents             = 4
	idle, busy            = 0.1, 0.5
)

// NewBurst makes nodes of which the first uses 10 % and all others 50 %, whatever their pods request: that is uneven, from 30 to
// 60 % of the node. size pods come at the time at; each uses 60 % of its request of half a core.
func NewBurst(nodes, size int, at time.Duration) *Burst {
	b := &Burst{World: &World{noisePeriod: time.Minute}}
	for i := range nodes {
		b.Nodes = append(b.Nodes, Node{Name: fmt.Sprintf("node-%05d", i), CPU: burstCPU, Memory: burstMemory})
		load := busy
		if i == 0 {
			load = idle
		}
		requested := 0.3 + 0.3*float64(Hash(0, uint64(i), 0)>>11)/(1<<53)
		request := series.MilliCPU(requested * burstCPU / residents)
		b.Workloads = append(b.Workloads, Workload{
			CPU: request, Memory: burstMemory / 20, PerRequest: load * burstCPU / residents / float64(request), MemoryPerRequest: 0.5,
		})
		for range residents {
			b.Pods = append(b.Pods, Pod{Workload: i, CPU: request, Memory: burstMemory / 20, Lifetime: day, factor: 1})
			b.On = append(b.On, i)
		}
	}
	b.Workloads = append(b.Workloads, Workload{CPU: burstRequest, Memory: 1 << 28, PerRequest: burstUse, MemoryPerRequest: 0.5})
	for range size {
		b.Pods = append(b.Pods, Pod{Workload: nodes, CPU: burstRequest, Memory: 1 << 28, Arrival: at, Lifetime: day, factor: 1})
	}
	return b
}

// PodShare is what one pod of the burst adds to the load of a node.
func (b *Burst) PodShare() float64 { return burstRequest * burstUse / burstCPU }
