// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package hpa

import (
	"crane.io/crane/pkg/recommend/replicas"
	"crane.io/crane/pkg/series"
	"crane.io/crane/pkg/settings"
)

// Settings are those of gocrane, with its keys and defaults, and those of the Replicas recommender, whose number of pods is
// the minimum of the autoscaler.
type Settings struct {
	Replicas replicas.Settings
	// Predictable requests a forecast in the autoscaler and requires usage that repeats daily (predictable, false).
	Predictable bool
	// KeepMetrics keeps the metrics other than CPU of an existing autoscaler (reference-hpa, true).
	KeepMetrics bool
	// MinCPU is the number of cores that the workload must have used at some time (min-cpu-usage-threshold, 1).
	MinCPU float64
	// Fluctuation is the required ratio of the busiest to the quietest hour of the day (fluctuation-threshold, 1.5; below 1 accepts any).
	Fluctuation float64
	// MinTarget and MaxTarget bound the target utilization in percent (min-cpu-target-utilization, 30, and
	// max-cpu-target-utilization, 75).
	MinTarget, MaxTarget int32
	// MaxFactor is the factor of its usual usage to which the workload must be able to grow (max-replicas-factor, 3).
	MaxFactor float64
}

// ParseSettings parses the settings of the recommender. Unknown keys are errors.
func ParseSettings(config map[string]string) (Settings, error) {
	r := settings.Read(config)
	s := Settings{
		Replicas:    replicas.ReadSettings(r),
		Predictable: r.Flag("predictable", false),
		KeepMetrics: r.Flag("reference-hpa", true),
		MinCPU:      r.Number("min-cpu-usage-threshold", 1, 0, 1e6),
		Fluctuation: r.Number("fluctuation-threshold", 1.5, 0, 1e6),
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

// targetMargin is added to the usage of a pod for the target utilization: gocrane's value.
const targetMargin = series.Ratio(0.15)
