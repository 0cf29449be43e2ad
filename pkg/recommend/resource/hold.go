// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"fmt"
	"math"

	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/series"
)

// holdAutoscaled keeps the current requests and limits if an autoscaler scales on their utilization and would need another
// target: a request that changes alone moves the usage at which the autoscaler acts. The steps name the target with which
// the user can change both.
func holdAutoscaled(r *rightsize.Recommendation, hpa *rightsize.HPA) {
	if hpa == nil {
		return
	}
	t, now := &r.Target, &r.Current
	if holdRequest(&r.CPU, hpa.CPUUtilization, now.CPURequest, t.CPURequest, rightsize.FormatCPU) {
		t.CPURequest, t.CPULimit = now.CPURequest, now.CPULimit
	}
	if holdRequest(&r.Memory, hpa.MemoryUtilization, now.MemoryRequest, t.MemoryRequest, rightsize.FormatMemory) {
		t.MemoryRequest, t.MemoryLimit = now.MemoryRequest, now.MemoryLimit
	}
	r.HPA = nil // The targets of unchanged requests stay.
}

// holdRequest reports whether a request must stay, and records the reason.
func holdRequest[T series.MilliCPU | series.Bytes](s *rightsize.Sizing, target series.Ratio, now, wanted *T, format func(T) string) bool {
	if s.Status != rightsize.Ready || target <= 0 || now == nil || wanted == nil || *now <= 0 || *wanted <= 0 {
		return false
	}
	share := math.Round(100 * float64(target))
	with := math.Round(100 * float64(target) * float64(*now) / float64(*wanted))
	if with == share {
		return false // Targets are whole percent: this one stays the same.
	}
	s.Message = fmt.Sprintf("an autoscaler acts at %.0f %% of the request, so both move together or not at all: "+
		"%s would need a target of %.0f %%", share, format(*wanted), with)
	if last := len(s.Steps) - 1; last >= 0 {
		unit, to := s.Steps[last].Unit, float64(*now)
		from := float64(*wanted)
		if unit == rightsize.Cores {
			from, to = from/1000, to/1000
		}
		s.Steps = append(s.Steps, rightsize.Step{Code: rightsize.StepHPA, Unit: unit, From: from, To: to, Detail: s.Message})
	}
	s.Flags = append(s.Flags, rightsize.Flag{Code: rightsize.FlagAutoscaled, Detail: s.Message})
	return true
}
