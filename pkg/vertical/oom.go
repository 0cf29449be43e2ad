// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package vertical

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/series"
	"crane.io/crane/pkg/settings"
)

// OOMEstimator estimates from OOM kills: one at m bytes asks for max(m*Ratio, m+100MiB) within the window. The numbers are those of
// gocrane and of VerticalPodAutoscaler. Its answers are minimums.
type OOMEstimator struct {
	// Ratio is in [1, 10]; ratios has those of single workloads, by name.
	Ratio  float64
	ratios map[string]float64
	// Window is how long a kill counts.
	Window time.Duration
}

const (
	oomBumpBytes = 100 << 20
	oomRatio     = 1.2
	oomWindow    = 7 * 24 * time.Hour
)

// ParseOOMEstimator parses the settings of the OOM estimator: oom-bump-ratio 1.2, oom-history-length 168h, and gocrane's
// workload.NAME, the ratio of the workload NAME. An unknown key is an error.
func ParseOOMEstimator(config map[string]string) (OOMEstimator, error) {
	out := OOMEstimator{Ratio: oomRatio, Window: oomWindow, ratios: map[string]float64{}}
	const workload = "workload."
	for _, key := range slices.Sorted(maps.Keys(config)) {
		value := config[key]
		switch {
		case key == "oom-history-length":
			d, err := series.ParseDuration(value)
			if err != nil || d <= 0 {
				return OOMEstimator{}, &settings.FieldError{Path: key, Value: value, Allowed: "must be a duration above zero, for example 168h"}
			}
			out.Window = d
		case key == "oom-bump-ratio", strings.HasPrefix(key, workload):
			ratio, err := strconv.ParseFloat(value, 64)
			if err != nil || !(ratio >= 1 && ratio <= 10) {
				return OOMEstimator{}, &settings.FieldError{Path: key, Value: value, Allowed: "must be a number from 1 to 10"}
			}
			if key == "oom-bump-ratio" {
				out.Ratio = ratio
			} else {
				out.ratios[strings.TrimPrefix(key, workload)] = ratio
			}
		default:
			return OOMEstimator{}, &settings.FieldError{Path: key, Value: value, Allowed: "unknown key; there are oom-bump-ratio, oom-history-length and workload.NAME"}
		}
	}
	return out, nil
}

// Estimate returns the memory that the kills of one container ask for, and false where none counts.
func (o OOMEstimator) Estimate(workload string, kills []rightsize.OOM, now time.Time, priority int) (Estimate, bool) {
	ratio, own := o.ratios[workload]
	if !own {
		ratio = o.Ratio
	}
	out := Estimate{Estimator: TypeOOM, Priority: priority, LowerBoundOnly: true}
	for _, k := range kills {
		if age := now.Sub(k.At); age > o.Window || age < -maxClockSkew || k.Memory <= 0 {
			continue
		}
		m := float64(k.Memory)
		if need := math.Max(m*ratio, m+oomBumpBytes); need > out.Value {
			out.Value = need
			out.Reason = fmt.Sprintf("it was killed with %s at %s", Memory.Format(int64(k.Memory)), k.At.UTC().Format(time.RFC3339))
		}
	}
	return out, out.Value > 0
}
