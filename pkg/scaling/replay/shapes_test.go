// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"math"
	"testing"
	"time"

	"crane.io/crane/pkg/forecast/auto"
	"crane.io/crane/pkg/scaling"
	"crane.io/crane/test/families"
)

// TestCompare_OddShapes bounds what the forecast does to loads unlike those that its rules were chosen on: it costs at most a quarter more replica
// hours, no minute under capacity more, a load without savings costs nothing, and no replicas are asked for that twice the highest load
// until then would not need.
func TestCompare_OddShapes(t *testing.T) {
	for name, load := range families.Odd() {
		t.Run(name, func(t *testing.T) {
			plan := DefaultPlan()
			plan.Warmup = 24 * time.Hour
			all, skipped := usableWorkloads(plan, []Named{{name, load}})
			if len(skipped) > 0 {
				t.Fatalf("usableWorkloads skips %v, want none", skipped)
			}

			const pods = 10
			cfg := plan.config(all[0].p95, pods, 3*time.Minute)
			base, err := Run(cfg, load, Reactive{cfg.Target, cfg.Tolerance})
			if err != nil {
				t.Fatal(err)
			}

			ahead, err := NewPredictive(cfg, auto.NewModel(load.Step), newFleet(t), name)
			if err != nil {
				t.Fatal(err)
			}

			own, err := Run(cfg, load, &boundCheckingScaler{Predictive: ahead, t: t, capacity: cfg.Capacity})
			if err != nil {
				t.Fatal(err)
			}

			hours := own.ReplicaHours / base.ReplicaHours
			t.Logf("%s under capacity instead of %s for %.3f of the replica hours", own.UnderCapacity, base.UnderCapacity, hours)

			switch {
			case own.UnderCapacity > base.UnderCapacity:
				t.Errorf("%s under capacity, want at most the %s of the HPA alone", own.UnderCapacity, base.UnderCapacity)
			case own.UnderCapacity == base.UnderCapacity && hours > 1.02:
				t.Errorf("%.3f times the replica hours without a benefit, want at most 1.02", hours)
			case !(hours < 1.25):
				t.Errorf("%.3f times the replica hours, want less than 1.25", hours)
			}
		})
	}
}

// boundCheckingScaler fails the test where a forecast asks for more replicas than twice the highest load until then needs at half of the
// capacity, which is the lowest fill of a level.
type boundCheckingScaler struct {
	*Predictive
	t        *testing.T
	capacity float64
	highest  float64
}

func (c *boundCheckingScaler) Observe(at time.Time, load float64) {
	if load > c.highest && !math.IsInf(load, 0) {
		c.highest = load
	}
	c.Predictive.Observe(at, load)
}

func (c *boundCheckingScaler) Propose(v ScalerInput) ([]scaling.Proposal, int32) {
	proposals, floor := c.Predictive.Propose(v)
	for _, p := range proposals[1:] {
		if most := 1 + 2*c.highest/(0.5*c.capacity); p.Err == nil && (p.Replicas < 0 || float64(p.Replicas) > most && p.Replicas > v.Current) {
			c.t.Errorf("%s: %d replicas asked for, at most %.0f expected", v.Now, p.Replicas, most)
		}
	}

	return proposals, floor
}
