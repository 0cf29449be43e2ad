// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"time"

	"crane.io/crane/pkg/series"
	"crane.io/crane/pkg/settings"
)

// Settings are those of gocrane, with its keys and defaults, as far as they still apply.
type Settings struct {
	// WorkloadMin is the number of pods from which a workload is evaluated (workload-min-replicas, 1).
	WorkloadMin int32
	// Available is the share of the desired pods that must be available, 0 to 1 (pod-available-ratio, 0.5): the usage of a
	// workload that is half down is not representative.
	Available series.Ratio
	// DefaultMin is the smallest recommended number, 1 or more (default-min-replicas, 1).
	DefaultMin int32
	// CPUPercentile and MemoryPercentile are the share of the time in which the number of pods must be sufficient, 0 to 1
	// (cpu-percentile and mem-percentile, 0.95).
	CPUPercentile, MemoryPercentile series.Ratio
	// CPUTarget and MemoryTarget are the target utilization of the requests, above 0 to 1 (cpu-target-utilization and
	// mem-target-utilization, 0.5).
	CPUTarget, MemoryTarget series.Ratio
	// Window is the length of the history, in whole hours from a day to 60 days (history-length, 7d).
	Window time.Duration
}

// minTarget is the smallest target utilization; below it the number of pods depends on the setting rather than on usage.
const minTarget = 0.01

// ReadSettings reads the settings from a reader that may have further keys.
func ReadSettings(r *settings.Reader) Settings {
	const day = 24
	// The workload itself reports availability, by its own minReadySeconds; the key is only validated.
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

// ParseSettings parses the settings of the recommender. Unknown keys are errors.
func ParseSettings(config map[string]string) (Settings, error) {
	r := settings.Read(config)
	s := ReadSettings(r)
	return s, r.Err()
}
