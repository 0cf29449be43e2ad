// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package rightsize

import (
	"fmt"
	"strings"
	"time"

	"crane.io/crane/pkg/series"
)

// The names of the built-in policies, one for each class of workload.
const (
	// DefaultPolicy is for a workload of which nothing is known.
	DefaultPolicy = "default"
	// LatencySensitivePolicy is for what answers users: minutes above the request are dearer than idle cores.
	LatencySensitivePolicy = "latency-sensitive"
	// BatchPolicy is for what may take longer.
	BatchPolicy = "batch"
)

const (
	day = 24 * time.Hour
	mib = series.Bytes(1 << 20)
)

// PolicyNames lists the built-in policies.
func PolicyNames() []string { return []string{DefaultPolicy, LatencySensitivePolicy, BatchPolicy} }

// PolicyByName returns a built-in policy. An unknown name is an error that lists those there are.
func PolicyByName(name string) (Policy, error) {
	p := builtin()
	switch name {
	case DefaultPolicy:
	case LatencySensitivePolicy:
		p.Name = LatencySensitivePolicy
		p.CPU.Percentile, p.CPU.Envelope.ViolationPrice = 0.985, 7
		p.Memory.Margin, p.Memory.TailMargin, p.Memory.MaxMargin = 0.10, 3, 0.35
		p.Memory.PageCache.LeaveOut = 0.25
	case BatchPolicy:
		p.Name = BatchPolicy
		// Three days of four hold nine tenths of their use; what is above it takes longer, but not into the next day.
		p.CPU.Percentile, p.CPU.Envelope = 0.90, EnvelopePolicy{ViolationPrice: 2, Cover: 0.75, SpreadMargin: 0.5, MaxMargin: 0.10, HoldMean: true}
		p.Memory.PageCache.LeaveOut = 0.75
		p.MinHistory = 3 * day
	default:
		return Policy{}, fmt.Errorf("unknown policy %q: want one of %s", name, strings.Join(PolicyNames(), ", "))
	}
	return p, nil
}

// builtin is the default policy; every default of sizing stands here, with its reason.
func builtin() Policy {
	return Policy{
		Name: DefaultPolicy,
		// One full week: before that a weekend or a Monday has not been seen.
		MinHistory: 7 * day,
		CPU: CPUPolicy{
			Method: Envelope, TargetUtilization: 1,
			// Two weeks show each weekday twice, so all days count the same: a decay would forget the Mondays.
			Window: 14 * day,
			// A minute in fifty above the request at most, less where little more avoids it.
			Percentile: 0.98,
			Envelope: EnvelopePolicy{
				ViolationPrice: 3.5,
				// 12 of 14 days, 6 of 7: one odd day in a week does not size the other six.
				Cover: 0.85,
				// The steadier the days, the less margin: 2 % for a plateau, 15 % where the days are unlike.
				SpreadMargin: 1, MaxMargin: 0.15,
				Recent: 0.90,
			},
			Margin: 0.02,
			// Smallest units that Kubernetes shows usefully; a floor only so that idle containers get a number at all.
			Floor: 10, Step: 1,
			// A CPU limit throttles even where the node is idle.
			Limit: LimitPolicy{Mode: LimitKeepRatio},
		},
		Memory: MemoryPolicy{
			// Memory cannot be squeezed: the largest block maximum of the window.
			Percentile: 1, Window: 14 * day, TargetUtilization: 1,
			// Twice the spread of the tail is passed by the next day once in a hundred (1/15*exp(-2)).
			Margin: 0.07, TailMargin: 2, MaxMargin: 0.20,
			Floor: 32 * mib, Step: mib,
			Limit: LimitPolicy{Mode: LimitKeepRatio},
			// Files that were read twice are likely read again: half of them stay in memory on a node that is full.
			PageCache: PageCachePolicy{LeaveOut: 0.5},
			OOM: OOMPolicy{
				// 1.2 and 100 MiB are what VPA and gocrane add; the cap stops a loop of kill and bump.
				Enabled: true, Ratio: 1.2, MinBump: 100 * mib, Cap: 2,
				Window: 14 * day, HalfLife: 7 * day,
			},
		},
	}
}
