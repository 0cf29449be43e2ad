// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package elasticresource

import (
	"testing"
	"time"

	"crane.io/crane/internal/agent/observe"
	"crane.io/crane/pkg/units"
)

// TestExclusive checks that the largest idle part of exclusive CPUs since the last decision is not offered.
func TestExclusive(t *testing.T) {
	var u usage
	at := time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC)
	known := func(v units.MilliCPU) observe.Known[units.MilliCPU] {
		return observe.Known[units.MilliCPU]{Value: v, OK: true}
	}
	for _, idle := range []observe.Known[units.MilliCPU]{known(500), known(1500), {}, known(1000)} {
		at = at.Add(time.Second)
		u.add(&observe.Snapshot{At: at, Node: observe.Node{UsedCPU: known(2000), ExclusiveIdle: idle}}, nil)
	}

	if cpu, _ := u.drain(); cpu.Exclusive != 1500 || cpu.Total != 2000 {
		t.Errorf("%+v, want 1500m idle", cpu)
	}

	at = at.Add(time.Second)
	u.add(&observe.Snapshot{At: at, Node: observe.Node{UsedCPU: known(2000)}}, nil)

	if cpu, _ := u.drain(); cpu.Exclusive != 0 {
		t.Errorf("%+v, want nothing of the span before", cpu)
	}
}

// TestExclusive_Unknown checks that CPUs that are exclusive do not count as free while their idle part is unknown, as while the kubelet's
// checkpoint cannot be read.
func TestExclusive_Unknown(t *testing.T) {
	var u usage
	at := time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC)
	add := func(idle observe.Known[units.MilliCPU]) {
		at = at.Add(time.Second)
		u.add(&observe.Snapshot{At: at, Node: observe.Node{
			UsedCPU: observe.Known[units.MilliCPU]{Value: 2000, OK: true}, ExclusiveIdle: idle, ExclusiveUnknown: !idle.OK,
		}}, nil)
	}

	add(observe.Known[units.MilliCPU]{})

	if cpu, _ := u.drain(); !cpu.At.IsZero() {
		t.Errorf("drain with an unknown idle part of exclusive CPUs = %+v, want no measurement", cpu)
	}

	add(observe.Known[units.MilliCPU]{Value: 1500, OK: true})
	add(observe.Known[units.MilliCPU]{})
	u.drain()
	add(observe.Known[units.MilliCPU]{})
	add(observe.Known[units.MilliCPU]{})

	if cpu, _ := u.drain(); cpu.Exclusive != 1500 || !cpu.At.Equal(at) {
		t.Errorf("drain after a known idle part = %+v, want the last 1500m at %s", cpu, at)
	}

	add(observe.Known[units.MilliCPU]{})
	add(observe.Known[units.MilliCPU]{Value: 500, OK: true})

	if cpu, _ := u.drain(); cpu.Exclusive != 500 {
		t.Errorf("drain with a known idle part = %+v, want the new 500m", cpu)
	}
}
