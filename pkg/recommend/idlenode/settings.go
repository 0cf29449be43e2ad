// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package idlenode

import (
	"crane.io/crane/pkg/series"
	"crane.io/crane/pkg/settings"
)

// Settings define when a node counts as idle.
type Settings struct {
	// CPUUse, MemoryUse, CPURequest and MemoryRequest are the shares of the capacity up to which a node is idle; 0 disables
	// a share. All others must hold.
	CPUUse, MemoryUse, CPURequest, MemoryRequest series.Ratio
	// CPUPercentile and MemoryPercentile select the hour of the window that is compared with them.
	CPUPercentile, MemoryPercentile series.Ratio
	// Hours is the length of the window, EmptyHours the time for which a node must have had only pods that run on every
	// node.
	Hours, EmptyHours int
}

// ParseSettings parses gocrane's keys, with its defaults of the percentiles, and two of Crane's own:
//
// \tcpu-usage-utilization, memory-usage-utilization, cpu-request-utilization, memory-request-utilization   0 (disabled)
// \tcpu-percentile 0.99, memory-percentile 0.99
// \thistory-length 168h, empty-for 24h
//
// If none of the four shares is set, the limits are 0.1 for CPU usage and 0.25 for memory usage: gocrane then found only
// nodes without workloads.
func ParseSettings(config map[string]string) (Settings, error) {
	r := settings.Read(config)
	cpu, memory := series.Ratio(0.1), series.Ratio(0.25)
	for _, key := range []string{"cpu-usage-utilization", "memory-usage-utilization", "cpu-request-utilization", "memory-request-utilization"} {
		if r.Has(key) {
			cpu, memory = 0, 0
		}
	}
	s := Settings{
		CPUUse: r.Share("cpu-usage-utilization", cpu), MemoryUse: r.Share("memory-usage-utilization", memory),
		CPURequest: r.Share("cpu-request-utilization", 0), MemoryRequest: r.Share("memory-request-utilization", 0),
		CPUPercentile: r.Share("cpu-percentile", 0.99), MemoryPercentile: r.Share("memory-percentile", 0.99),
		Hours: r.Hours("history-length", 168, 1, 90*24), EmptyHours: r.Hours("empty-for", 24, 1, 90*24),
	}
	return s, r.Err()
}
