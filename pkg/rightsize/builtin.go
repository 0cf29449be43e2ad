// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package rightsize

import (
	"fmt"
	"strings"
	"time"

	"crane.io/crane/pkg/rightsize/calibrate"
	"crane.io/crane/pkg/units"
)

// The names of the built-in policies.
const (
	// DefaultPolicy is for workloads of an unknown class.
	DefaultPolicy = "default"
	// LatencySensitivePolicy is for workloads that serve users: minutes above the request cost more than idle cores.
	LatencySensitivePolicy = "latency-sensitive"
	// BatchPolicy is for workloads that may take longer.
	BatchPolicy = "batch"
	// CalibratedPolicy is for workloads with a target for the time above the request.
	CalibratedPolicy = "calibrated"
)

const (
	day = 24 * time.Hour
	mib = units.Bytes(1 << 20)
)

// PolicyNames returns the names of the built-in policies.
func PolicyNames() []string {
	return []string{DefaultPolicy, LatencySensitivePolicy, BatchPolicy, CalibratedPolicy}
}

// PolicyByName returns a built-in policy. The error for an unknown name lists the known ones.
func PolicyByName(name string) (Policy, error) {
	p := builtin()
	switch name {
	case DefaultPolicy:

	case LatencySensitivePolicy:
		p.Name = LatencySensitivePolicy
		p.CPU.Percentile = 0.985
		p.CPU.Envelope.ViolationPrice = 7
		p.Memory.Margin = 0.10
		p.Memory.TailMargin = 3
		p.Memory.MaxMargin = 0.35
		p.Memory.PageCache.LeaveOut = 0.25

	case BatchPolicy:
		p.Name = BatchPolicy
		// Three of four days cover nine tenths of their usage; the rest takes longer, but not into the next day.
		p.CPU.Percentile = 0.90
		p.CPU.Envelope = EnvelopePolicy{
			ViolationPrice: 2,
			Cover:          0.75,
			SpreadMargin:   0.5,
			MaxMargin:      0.10,
			HoldMean:       true,
		}

		p.Memory.PageCache.LeaveOut = 0.75
		p.MinHistory = 3 * day

	case CalibratedPolicy:
		p.Name = CalibratedPolicy
		p.CPU.Method = Calibrated
		p.CPU.Target = calibrate.DefaultTarget

	default:
		return Policy{}, fmt.Errorf("unknown policy %q: want one of %s", name, strings.Join(PolicyNames(), ", "))
	}

	return p, nil
}

// builtin returns the default policy. All defaults of sizing are defined here and below, with their reasons.
func builtin() Policy {
	return Policy{
		Name: DefaultPolicy,
		// One full week: less does not include a weekend or a Monday.
		MinHistory: 7 * day,
		CPU:        builtinCPU(),
		Memory:     builtinMemory(),
	}
}

func builtinCPU() CPUPolicy {
	return CPUPolicy{
		Method:            Envelope,
		TargetUtilization: 1,
		// Two weeks contain each weekday twice, so all days have the same weight: a decay would reduce that of Mondays.
		Window: 14 * day,
		// At most one minute in fifty is above the request, and less if little more request avoids it.
		Percentile: 0.98,
		Envelope: EnvelopePolicy{
			ViolationPrice: 3.5,
			// 12 of 14 days, 6 of 7: one unusual day in a week does not size the other six.
			Cover: 0.85,
			// The margin grows with the spread of the days: 2 % for a plateau, 15 % if the days differ.
			SpreadMargin: 1,
			MaxMargin:    0.15,
			Recent:       0.90,
		},
		Margin: 0.02,
		// The smallest useful units of Kubernetes, so that idle containers have a request.
		Floor: 10,
		Step:  1,
		// A CPU limit throttles even on an idle node.
		Limit: LimitPolicy{Mode: LimitKeepRatio},
	}
}

func builtinMemory() MemoryPolicy {
	return MemoryPolicy{
		// Memory is not compressible: the largest daily maximum of the window counts.
		Percentile:        1,
		Window:            14 * day,
		TargetUtilization: 1,
		// The next day exceeds twice the spread of the tail once in a hundred days (1/15*exp(-2)).
		Margin:     0.07,
		TailMargin: 2,
		MaxMargin:  0.20,
		Floor:      32 * mib,
		Step:       mib,
		Limit:      LimitPolicy{Mode: LimitKeepRatio},
		// Files that were read twice are likely read again: half of them stay in memory on a full node.
		PageCache: PageCachePolicy{LeaveOut: 0.5},
		OOM: OOMPolicy{
			// 1.2 and 100 MiB are the values of VPA and gocrane; the cap ends a loop of kill and bump.
			Enabled:  true,
			Ratio:    1.2,
			MinBump:  100 * mib,
			Cap:      2,
			Window:   14 * day,
			HalfLife: 7 * day,
		},
	}
}
