// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"math"
	"time"

	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/pkg/histogram"
)

// CPUQuantile returns a quantile (0 to 1) of the CPU usage of a container of one pod over the days of a window, in cores; NaN without usage.
func (u *Usage) CPUQuantile(ref workload.Ref, name string, now time.Time, window time.Duration, q float64) float64 {
	var all histogram.Counts
	for _, d := range u.Profile(ref, name).Window(now, window) {
		all.Merge(&d.CPU)
	}
	if all.Total() == 0 {
		return math.NaN()
	}
	return all.Quantile(q)
}
