// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"time"

	"crane.io/crane/pkg/series"
	"crane.io/crane/pkg/settings"
)

// Settings are gocrane's, under its keys and with its defaults, where they still have a meaning.
type Settings struct {
	// WorkloadMin is how many pods a workload must want to be looked at (workload-min-replicas, 1).
	WorkloadMin int32
	// Available is the share of the wanted pods that must be available, 0 to 1 (pod-available-ratio, 0.5): the use of a
	// workload that is half down says little.
	Available series.Ratio
	// DefaultMin is the least that is recommended, from 1 up (default-min-replicas, 1).
	DefaultMin int32
	// CPUPercentile and MemoryPercentile are the share of the time in which that many pods must be enough, 0 to 1
	// (cpu-percentile and mem-percentile, 0.95).
	CPUPercentile, MemoryPercentile series.Ratio
	// CPUTarget and MemoryTarget are the share of its request that a pod is to use, above 0 to 1
	// (cpu-target-utilization and mem-target-utilization, 0.5).
	CPUTarget, MemoryTarget series.Ratio
	// Window is how far back the use is looked at, whole hours from a day to 60 days (history-length, 7d).
	Window time.Duration
}

// minTarget is the smallest target utilisation: below, numbers of pods say more about the setting than about use.
const minTarget = 0.01

// ReadSettings reads the settings; whoever has more keys reads them from the same reader.
func ReadSettings(r *settings.Reader) Settings {
	const day = 24
	// Availability is what the workload itself says; how long a pod must be ready for it is its own minReadySeconds.
	r.Number("pod-min-ready-seconds", 0, 0, 3600)
	return Settings{
		WorkloadMin:      int32(r.Number("workload-min-replicas", 1, 0, 1<<20)),
		Available:        r.Share("pod-available-ratio", 0.5),
		DefaultMin:       int32(r.Number("default-min-replicas", 1, 1, 1<<20)),
		CPUPercentile:    r.Share("cpu-percentile", 0.95),
		MemoryPercentile: r.Share("mem-percentile", 0.95),
		CPUTarget:        series.Ratio(r.Number("cpu-target-utilization", 0.5, minTarget, 1)),
		MemoryTarget:     series.Ratio(r.Number("mem-target-utilization", 0.5, minTarget, 1)),
		Window:           time.Duration(r.Hours("history-length", 7*day, day, 60*day)) * time.Hour,
	}
}

// ParseSettings reads the settings of the recommender. A key that it does not have is an error.
func ParseSettings(config map[string]string) (Settings, error) {
	r := settings.Read(config)
	s := ReadSettings(r)
	return s, r.Err()
}
