// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package idlenode

import (
	"crane.io/crane/pkg/series"
	"crane.io/crane/pkg/settings"
)

// Settings say when a node counts as idle.
type Settings struct {
	// CPUUse, MemoryUse, CPURequest and MemoryRequest are the shares of the node's capacity up to which it is idle; 0 does
	// not look. All that are not 0 have to hold.
	CPUUse, MemoryUse, CPURequest, MemoryRequest series.Ratio
	// CPUPercentile and MemoryPercentile say which of the values of the window is held against them.
	CPUPercentile, MemoryPercentile series.Ratio
	// Hours is the length of the window, EmptyHours the time for which a node has had no pods but those that run on every
	// node.
	Hours, EmptyHours int
}

// ParseSettings reads gocrane's keys, with its defaults of the percentiles, and two of Crane's own:
//
//	cpu-usage-utilization, memory-usage-utilization, cpu-request-utilization, memory-request-utilization   0 (do not look)
//	cpu-percentile 0.99, memory-percentile 0.99
//	history-length 168h, empty-for 24h
//
// Where none of the four shares is set, the use of CPU and of memory are held against 0.1 and 0.25: gocrane then found
// nothing but nodes without workloads, and called every other one a failure.
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
