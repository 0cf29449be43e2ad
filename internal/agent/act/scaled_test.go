// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package act

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"crane.io/crane/internal/agent/host"
	"crane.io/crane/internal/agent/host/cgroup"
	"crane.io/crane/pkg/qos"
	"crane.io/crane/pkg/units"
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

// TestUndoBesideUnreadableLimit checks that a limit that cannot be read keeps no other file of its unit from being restored.
func TestUndoBesideUnreadableLimit(t *testing.T) {
	for _, v1 := range []bool{false, true} {
		n := newFixture(t, v1)
		th := n.throttler(t, n.tree)
		weightFile := cgroup.FileWeight
		if v1 {
			weightFile = cgroup.FileSharesV1
		}

		pod := filepath.Dir(n.group)
		want := n.get(t, pod, weightFile)
		step := plan(qos.Unlimited, 100, qos.Unlimited)
		step.Weight = 0.1
		if err := th.Throttle(step, n.group); err != nil || n.get(t, pod, weightFile) == want {
			t.Fatalf("Throttle = %v with weight %s, want nil and less than %s", err, n.get(t, pod, weightFile), want)
		}

		quota, _ := n.layout.LimitFiles(n.group)
		if err := os.WriteFile(quota, []byte("damaged\n"), 0o600); err != nil {
			t.Fatal(err)
		}

		err := th.journal.UndoAll()
		if got := n.get(t, pod, weightFile); err == nil || got != want || len(th.journal.Entries()) != 1 {
			t.Errorf("v1 %t: UndoAll with a damaged limit = %v with weight %s and entries %+v, want an error, %s and the unit", v1, err, got, th.journal.Entries(), want)
		}
	}
}

// TestResetScaledParent checks that on v1 the scaled limit of a pod is reset although its container has as much: the kernel refuses the quota
// before the period there.
func TestResetScaledParent(t *testing.T) {
	n := newFixture(t, true)
	pod := filepath.Dir(n.group)
	j := n.open(t, n.tree)
	limit := cgroup.Bandwidth{Quota: 100 * time.Millisecond, Period: 100 * time.Millisecond}
	if err := j.Change(Unit{Key: "elastic/pod", Subject: "the pod", Changes: QuotaChanges(cgroup.V1, pod, limit)}); err != nil {
		t.Fatal(err)
	}

	n.set(t, "100000", "0")
	if err := n.tree.ScaleLimit(pod); err != nil {
		t.Fatal(err)
	}

	err := ResetScaled(j, "elastic/pod")
	got, _, readErr := n.layout.ReadLimit(&host.Reader{}, pod)
	if err != nil || readErr != nil || got != limit {
		t.Errorf("ResetScaled = %v with limit %v, %v; want nil and %v", err, got, readErr, limit)
	}
}

// TestKernelScalesLayers checks that the limit of a unit below a throttle is changed and undone after the kernel has scaled the throttle.
func TestKernelScalesLayers(t *testing.T) {
	for _, v1 := range []bool{false, true} {
		for _, undoesLower := range []bool{false, true} {
			n := newFixture(t, v1)
			j := n.open(t, n.tree)
			elastic := func(cores int) Unit {
				limit := cgroup.NewBandwidth(units.MilliCPU(1000*cores), 100*time.Millisecond)
				return Unit{Key: "elastic/c", Changes: QuotaChanges(n.layout.Version, n.group, limit)}
			}

			if err := j.Change(elastic(3)); err != nil {
				t.Fatal(err)
			}

			th := NewThrottler(n.layout, j)
			if err := th.Throttle(plan(3000, 300, 3000), n.group); err != nil {
				t.Fatal(err)
			}

			n.scale(t, 1, 2)

			lower := j.Change(elastic(2))
			if undoesLower {
				n.scale(t, 1, 2)
				lower = errors.Join(lower, j.Undo("elastic/c"))
			}

			if err := errors.Join(lower, j.UndoAll()); err != nil || n.limit(t) != "none burst 0s" || len(j.Entries()) > 0 {
				t.Errorf("v1 %t, lower undone first %t: UndoAll = %v with %s and entries %+v, want nil, no limit and none", v1, undoesLower, err, n.limit(t), j.Entries())
			}
		}
	}
}
