// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package vertical

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/settings"
	"crane.io/crane/pkg/units"
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
	oomBumpBytes       = 100 << 20
	oomRatio           = 1.2
	minRatio, maxRatio = 1, 10
	oomWindow          = 7 * 24 * time.Hour
)

// ParseOOMEstimator parses the settings of the OOM estimator: oom-bump-ratio 1.2, oom-history-length 168h, and gocrane's
// workload.NAME, the ratio of the workload NAME. An unknown key is an error.
func ParseOOMEstimator(config map[string]string) (OOMEstimator, error) {
	const workload = "workload."
	r := settings.Read(config)
	out := OOMEstimator{Ratio: r.Number("oom-bump-ratio", oomRatio, minRatio, maxRatio), Window: oomWindow, ratios: map[string]float64{}}

	r.Parse("oom-history-length", func(text string) error {
		d, err := units.ParseDuration(text)
		if err != nil || d <= 0 {
			return errors.New("must be a duration above zero, for example 168h")
		}

		out.Window = d
		return nil
	})

	for _, key := range r.Keys(workload) {
		out.ratios[strings.TrimPrefix(key, workload)] = r.Number(key, oomRatio, minRatio, maxRatio)
	}

	if err := r.Err(); err != nil {
		return OOMEstimator{}, err
	}

	return out, nil
}

// Estimate returns the memory required after the kills of one container with a current request, and false if no kill counts. One without a
// limit does not: the node was out of memory, which does not bound the need. After one whose limit is unknown, the request is kept at least.
func (o OOMEstimator) Estimate(workload string, kills []rightsize.OOM, request units.Bytes, now time.Time, priority int) (Estimate, bool) {
	ratio, ok := o.ratios[workload]
	if !ok {
		ratio = o.Ratio
	}

	out := Estimate{Estimator: TypeOOM, Priority: priority, LowerBoundOnly: true}
	for _, k := range kills {
		if age := now.Sub(k.At); age > o.Window || age < -maxClockSkew || k.NoLimit {
			continue
		}

		if k.LimitUnknown && float64(request) > out.Value {
			out.Value = float64(request)
			out.Reason = fmt.Sprintf("it was killed at %s, with an unknown limit: its request is not lowered", k.At.UTC().Format(time.RFC3339))
		}

		if k.Memory <= 0 {
			continue
		}

		m := float64(k.Memory)
		if need := math.Max(m*ratio, m+oomBumpBytes); need > out.Value {
			out.Value = need
			out.Reason = fmt.Sprintf("it was killed with %s at %s", Format(units.Memory, int64(k.Memory)), k.At.UTC().Format(time.RFC3339))
		}
	}

	return out, out.Value > 0
}
