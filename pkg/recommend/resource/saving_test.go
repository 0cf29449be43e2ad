// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"math"
	"strings"
	"testing"

	"crane.io/crane/pkg/cost"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/units"
)

func TestPlanSavingOf(t *testing.T) {
	m := func(v units.MilliCPU) *units.MilliCPU { return &v }
	b := func(v units.Bytes) *units.Bytes { return &v }
	ready := rightsize.Sizing{Status: rightsize.Ready}
	learning := rightsize.Sizing{Status: rightsize.Learning}

	p := Plan{Containers: []rightsize.Recommendation{
		{
			Container: "app", CPU: ready, Memory: learning,
			Current: rightsize.Resources{CPURequest: m(1000), MemoryRequest: b(1 << 30)},
			Target:  rightsize.Resources{CPURequest: m(250), MemoryRequest: b(0)},
		},
		{
			Container: "side", CPU: ready, Memory: ready,
			Current: rightsize.Resources{MemoryRequest: b(1 << 30)},
			Target:  rightsize.Resources{CPURequest: m(100), MemoryRequest: b(2 << 30)},
		},
	}}

	price := cost.UnitPrice{CPU: 1, Memory: 0.5}
	all := p.SavingOf(price, 4, false)
	if all.CPU != 3000 || all.Memory != -4<<30 || all.Counted != 2 || math.Abs(all.Hourly.Total().PerHour()-(3-2)) > 1e-9 {
		t.Errorf("SavingOf = %+v, want 3000 millicores, -4 GiB and 1 an hour of two requests", all)
	}

	if left := strings.Join(all.NotCounted, "; "); left != "memory of app: no number yet; cpu of side: no request today" {
		t.Errorf("NotCounted = %q, want memory of app and cpu of side", left)
	}
	if runs := p.SavingOf(price, 4, true); runs.Counted != 0 || runs.CPU != 0 || !strings.Contains(runs.NotCounted[0], "no run of the job was seen") {
		t.Errorf("SavingOf a job without a run = %+v, want nothing counted", runs)
	}

	p.MeanPods = 0.25
	for _, job := range []bool{true, false} { // Runs of other kinds are known by the plan alone.
		if runs := p.SavingOf(price, 4, job); runs.CPU != 750/4 || runs.Memory != -1<<30/4 || runs.Counted != 2 {
			t.Errorf("SavingOf pods that run a quarter of the time, of a job: %t = %+v, want a quarter of the saving", job, runs)
		}
	}

	p.MeanPods = 0

	// The parts are the whole.
	var cpu units.MilliCPU

	var memory units.Bytes
	var hourly cost.Nanos
	for i := range p.Containers {
		s := p.ContainerSaving(i, price, 4, false)
		cpu += s.CPU
		memory += s.Memory
		hourly += s.Hourly.Total()
	}

	if cpu != all.CPU || memory != all.Memory || hourly != all.Hourly.Total() {
		t.Errorf("the savings of the containers add up to %v, %v, %v, want %+v", cpu, memory, hourly, all)
	}
}
