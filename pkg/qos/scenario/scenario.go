// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"time"

	"crane.io/crane/pkg/qos"
	"crane.io/crane/pkg/series"
)

// Scenario is a file.
type Scenario struct {
	// Title is its first comment.
	Title    string
	node     qos.Node
	interval time.Duration
	length   time.Duration
	system   demand
	// disks is how much work its disks do; 0 for as much as anybody wants.
	disks  qos.DiskWork
	policy qos.Policy
	pods   []*pod
	events []event
	// drive, if set, changes what pods want before each measurement.
	drive        func(r *run, elapsed time.Duration)
	expectations []expectation
}

// demand is what somebody wants.
type demand struct {
	cpu    series.MilliCPU
	memory series.Bytes
	// disks are operations by second, counted as reads; read and written bytes by second, in so few operations that these do not count.
	disks         qos.DiskWork
	read, written series.Bytes
}

// diskRates is what it is to disks of which it gets a share.
func (d demand) diskRates(served float64) qos.DiskRates {
	return qos.DiskRates{Reads: float64(d.disks) * served, ReadBytes: float64(d.read) * served, WriteBytes: float64(d.written) * served}
}

// measurement is what is measured of a pod: its memory is the working set, held that with files.
type measurement struct {
	demand
	held                                 series.Bytes
	stalledCPU, stalledMemory, throttled series.Ratio
	stalledDisks                         series.Ratio
	diskRates                            qos.DiskRates
}

// pod is a pod of the simulated node.
type pod struct {
	qos.Pod
	// stall is the share of time that it waits for cpu and disks even where it is alone, noise what comes and goes on top of it.
	stall, noise   series.Ratio
	demand         demand
	request, limit series.MilliCPU
	quota          qos.Quota
	// cache is the memory of files that it read and has not used lately, high the limit of memory in force.
	cache      series.Bytes
	high       qos.MemoryHigh
	endsAfter  time.Duration
	protected  bool // the API server refuses its eviction
	unmeasured bool
	endsAt     time.Time
}

func (p *pod) name() string { return p.Namespace + "/" + p.Name }

// event is something that happens at a time.
type event struct {
	line int
	at   time.Duration
	do   func(*run) error
}

// expectation is something that must hold at a time, or at the end.
type expectation struct {
	line  int
	text  string
	at    time.Duration
	end   bool
	check func(*run) string // what is wrong, empty if nothing
}

// startTime is when scenarios begin; any time does.
func startTime() time.Time { return time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC) }
