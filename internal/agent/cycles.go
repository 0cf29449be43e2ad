// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"crane.io/crane/internal/agent/host/cgroup"
	"crane.io/crane/internal/agent/inventory"
	"crane.io/crane/internal/agent/observe"
	"crane.io/crane/internal/agent/perf"
)

// cyclesUnsupported returns a function that reports why cycles of pods cannot be counted; nil if they are not to be counted.
func (o *Options) cyclesUnsupported(layout *cgroup.Layout) func() string {
	if !o.Cycles || layout == nil {
		return nil
	}

	return func() string { return perf.UnsupportedReason(o.hostRoot(), *layout) }
}

// countCycles starts counting the cycles and instructions of latency-sensitive pods if a flag enables it.
func (e environment) countCycles(l *loop) []Manager {
	if !e.Cycles {
		return nil
	}

	sampler := perf.New(perf.Config{
		Pods:  func() []perf.Target { return sensitivePods(e.latest.Load(), e.newInventory(l.view.State()), e.layout) },
		Root:  e.hostRoot(),
		Clock: e.clock,
		Log:   e.log,
		Beat:  e.heartbeats.Register((*perf.Sampler)(nil).Name()),
	})

	l.observer.SetCyclesSource(func(uid string) (observe.Cycles, bool) {
		s, ok := sampler.Latest(uid)
		return observe.Cycles{At: s.At, PerInstruction: s.CyclesPerInstruction}, ok
	})

	return []Manager{sampler}
}

// sensitivePods returns the latency-sensitive pods of a snapshot; nil for no snapshot.
func sensitivePods(snapshot *observe.Snapshot, pods inventory.Pods, layout cgroup.Layout) []perf.Target {
	if snapshot == nil {
		return nil
	}

	var out []perf.Target
	for i := range snapshot.Pods {
		pod, ok := pods.Find(snapshot.Pods[i].UID)
		if !ok || pod.SensitiveReason == "" {
			continue
		}

		if dir, err := layout.PerfDir(snapshot.Pods[i].Path); err == nil {
			out = append(out, perf.Target{UID: pod.UID, Dir: dir})
		}
	}

	return out
}
