// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package act

import (
	"fmt"
	"testing"
	"time"

	"crane.io/crane/internal/agent/host"
)

// scale does what the kernel's period timer does to a throttled group, a number of times.
func (n fixture) scale(t *testing.T, times int, factor float64) {
	t.Helper()

	for range times {
		now, burst, err := n.layout.ReadLimit(&host.Reader{}, n.group)
		if err != nil {
			t.Fatal(err)
		}

		quota := time.Duration(float64(now.Quota) * factor).Truncate(time.Microsecond)
		period := time.Duration(float64(now.Period) * factor).Truncate(time.Microsecond)
		names := cpuLimitFiles(n.layout.Version)
		if names.v2 {
			n.put(t, n.group, names.quota, fmt.Sprintf("%s %s", micros(quota), micros(period)))
		} else {
			n.put(t, n.group, "cpu.cfs_period_us", micros(period))
			n.put(t, n.group, names.quota, micros(quota))
		}

		if burst > 0 {
			n.put(t, n.group, names.burst, micros(time.Duration(float64(burst)*factor).Truncate(time.Microsecond)))
		}
	}
}

// TestKernelScalesPeriod checks that a throttle is continued, ended and undone after the kernel has scaled the group's quota and period,
// which is no change by another process.
func TestKernelScalesPeriod(t *testing.T) {
	for _, v1 := range []bool{false, true} {
		for _, factor := range []float64{147.0 / 128, 2} {
			for times := range 4 {
				name := fmt.Sprintf("v1 %t, scaled %d times by %.3g", v1, times, factor)
				n := newFixture(t, v1)
				n.set(t, "400000", "20000")
				th := n.throttler(t, n.tree)
				if err := th.Throttle(plan(4000, 100, 4000), n.group); err != nil {
					t.Fatal(err)
				}

				n.scale(t, times, factor)
				if err := th.Throttle(plan(100, 200, 4000), n.group); err != nil || n.limit(t) != "20ms of 100ms burst 20ms" {
					t.Errorf("%s: Throttle to 200m = %v with %s, want nil and 20ms of 100ms burst 20ms", name, err, n.limit(t))
				}

				n.scale(t, times, factor)
				if err := th.Throttle(plan(200, 4000, 4000), n.group); err != nil || n.limit(t) != "400ms of 100ms burst 20ms" || len(th.journal.Entries()) > 0 {
					t.Errorf("%s: Throttle to the original = %v with %s and entries %+v, want nil, the original and none", name, err, n.limit(t), th.journal.Entries())
				}

				// The next agent undoes what a killed one left.
				if err := th.Throttle(plan(4000, 100, 4000), n.group); err != nil {
					t.Fatal(err)
				}

				n.scale(t, times, factor)
				next := n.open(t, n.tree)
				if err := next.UndoAll(); err != nil || n.limit(t) != "400ms of 100ms burst 20ms" || len(next.Entries()) > 0 {
					t.Errorf("%s: UndoAll = %v with %s and entries %+v, want nil, the original and none", name, err, n.limit(t), next.Entries())
				}
			}
		}
	}
}

// TestForeignPeriodIsNotScaled checks that a limit that another process wrote with another period stays.
func TestForeignPeriodIsNotScaled(t *testing.T) {
	for _, limit := range []string{"50000 50000", "60000 200000", "max 200000"} {
		n := newFixture(t, false)
		n.set(t, "400000", "0")
		th := n.throttler(t, n.tree)
		if err := th.Throttle(plan(4000, 100, 4000), n.group); err != nil {
			t.Fatal(err)
		}

		n.set(t, limit, "0")
		if err := th.journal.UndoAll(); err != nil || n.get(t, n.group, "cpu.max") != limit {
			t.Errorf("UndoAll after another process wrote %q = %v with %s, want nil and its value", limit, err, n.get(t, n.group, "cpu.max"))
		}
	}
}
