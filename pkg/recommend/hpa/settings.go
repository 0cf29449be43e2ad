// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package hpa

import (
	"crane.io/crane/pkg/recommend/replicas"
	"crane.io/crane/pkg/series"
	"crane.io/crane/pkg/settings"
)

// Settings are gocrane's, under its keys and with its defaults, and those of the Replicas recommender: the number of pods
// that it finds is the least that the autoscaler keeps.
type Settings struct {
	Replicas replicas.Settings
	// Predictable asks for a forecast in the autoscaler, and for use that repeats from day to day (predictable, false).
	Predictable bool
	// KeepMetrics takes over the metrics beside CPU of an autoscaler that is there (reference-hpa, true).
	KeepMetrics bool
	// MinCPU is how many cores the workload must have used at some time to be worth an autoscaler
	// (min-cpu-usage-threshold, 1).
	MinCPU float64
	// Fluctuation is how many times the use of the quietest hour of the day that of the busiest must be
	// (fluctuation-threshold, 1.5).
	Fluctuation float64
	// MinTarget and MaxTarget bound the target utilisation, in percent (min-cpu-target-utilization, 30, and
	// max-cpu-target-utilization, 75).
	MinTarget, MaxTarget int32
	// MaxFactor is how many times its usual use the workload must be able to grow to (max-replicas-factor, 3).
	MaxFactor float64
}

// ParseSettings reads the settings of the recommender. A key that it does not have is an error.
func ParseSettings(config map[string]string) (Settings, error) {
	r := settings.Read(config)
	s := Settings{
		Replicas:    replicas.ReadSettings(r),
		Predictable: r.Flag("predictable", false),
		KeepMetrics: r.Flag("reference-hpa", true),
		MinCPU:      r.Number("min-cpu-usage-threshold", 1, 0, 1e6),
		Fluctuation: r.Number("fluctuation-threshold", 1.5, 1, 1e6),
		MinTarget:   int32(r.Number("min-cpu-target-utilization", 30, 1, 100)),
		MaxTarget:   int32(r.Number("max-cpu-target-utilization", 75, 1, 100)),
		MaxFactor:   r.Number("max-replicas-factor", 3, 1, 1000),
	}
	err := r.Err()
	if err == nil && s.MinTarget > s.MaxTarget {
		err = &settings.FieldError{
			Path: "min-cpu-target-utilization", Value: config["min-cpu-target-utilization"], Allowed: "must be at most max-cpu-target-utilization",
		}
	}
	return s, err
}

// targetMargin is what is added to the use of a pod's containers where a target is derived from it, gocrane's.
const targetMargin = series.Ratio(0.15)
