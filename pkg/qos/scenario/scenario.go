// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"time"

	"crane.io/crane/pkg/qos"
	"crane.io/crane/pkg/units"
)

// Scenario is a parsed file.
type Scenario struct {
	// Title is its first comment.
	Title    string
	node     qos.Node
	interval time.Duration
	length   time.Duration
	system   demand
	// disks is the capacity of the disks; 0 for unlimited.
	disks  qos.DiskWork
	policy qos.Policy
	pods   []*pod
	events []event
	// drive, if set, changes the demands before each measurement.
	drive        func(r *run, elapsed time.Duration)
	expectations []expectation
}

// demand is the resource demand of a pod or the system.
type demand struct {
	cpu    units.MilliCPU
	memory units.Bytes
	// disks are operations per second, counted as reads; read and written are bytes per second in negligibly few operations.
	disks         qos.DiskWork
	read, written units.Bytes
}

// diskRates returns the rates at which the given share of the demand is served.
func (d demand) diskRates(served float64) qos.DiskRates {
	return qos.DiskRates{Reads: float64(d.disks) * served, ReadBytes: float64(d.read) * served, WriteBytes: float64(d.written) * served}
}

// measurement is the measurement of a pod: memory excludes page cache, held includes it.
type measurement struct {
	demand
	usage                                units.Bytes
	stalledCPU, stalledMemory, throttled units.Ratio
	stalledDisks                         units.Ratio
	diskRates                            qos.DiskRates
}

// pod is a pod of the simulated node.
type pod struct {
	qos.Pod
	// stall is the share of time the pod waits for CPU and disks without contention, noise a random addition.
	stall, noise   units.Ratio
	demand         demand
	request, limit units.MilliCPU
	quota          qos.Quota
	// cache is the pod's unused page cache, high the memory limit in force.
	cache      units.Bytes
	high       qos.MemoryHigh
	endsAfter  time.Duration
	protected  bool // the API server refuses its eviction
	unmeasured bool
	endsAt     time.Time
}

func (p *pod) name() string { return p.Namespace + "/" + p.Name }

// event is a change at a time.
type event struct {
	line int
	at   time.Duration
	do   func(*run) error
}

// expectation is a condition at a time or at the end.
type expectation struct {
	line  int
	text  string
	at    time.Duration
	end   bool
	check func(*run) string // returns the problem, empty if it holds
}

// startTime is the arbitrary start of all scenarios.
func startTime() time.Time { return time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC) }
