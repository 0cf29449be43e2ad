// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package rightsize

import (
	"time"

	"crane.io/crane/pkg/series"
)

// Resources are the requests and limits of a container. A nil pointer means absent, which is not the same as zero.
type Resources struct {
	CPURequest    *series.MilliCPU `json:"cpuRequest,omitempty"`
	CPULimit      *series.MilliCPU `json:"cpuLimit,omitempty"`
	MemoryRequest *series.Bytes    `json:"memoryRequest,omitempty"`
	MemoryLimit   *series.Bytes    `json:"memoryLimit,omitempty"`
}

// OOM is one out-of-memory kill of the container.
type OOM struct {
	// At is when it happened.
	At time.Time
	// Memory is what the container had when it was killed: its limit where it had one, else its request or last use.
	Memory series.Bytes
}

// HPA is a horizontal autoscaler on the same workload.
type HPA struct {
	// CPUUtilization and MemoryUtilization are the target utilisations of the request (0.8 is 80 %); 0 where the
	// autoscaler does not look at that resource, or looks at an absolute value.
	CPUUtilization, MemoryUtilization series.Ratio
}

// JVM is what is known of a Java heap, from metrics or flags.
type JVM struct {
	// MaxHeap is -Xmx or what the JVM reports as its largest heap; 0 where it is not known.
	MaxHeap series.Bytes
	// MaxRAMPercentage is the share of the memory limit that the heap may take (0.75 is 75 %); 0 where it is not set.
	MaxRAMPercentage series.Ratio
	// PeakHeap is the largest heap in use after collection, 0 where it is not known.
	PeakHeap series.Bytes
}

// Input is all that sizing one container needs.
type Input struct {
	// Container names the container in messages.
	Container string
	// Profile is what it used, over all pods of its workload.
	Profile *Profile
	// Current is what it asks for today.
	Current Resources
	// OOMs are its out-of-memory kills, in any order.
	OOMs []OOM
	// Now is the time of the decision; use of Now or later is not looked at.
	Now time.Time
	// MaxCPU and MaxMemory are what the largest node has for pods; 0 where it is not known.
	MaxCPU    series.MilliCPU
	MaxMemory series.Bytes
	// HPA is the workload's horizontal autoscaler, nil where there is none.
	HPA *HPA
	// JVM is what is known of a Java heap in the container, nil where there is none.
	JVM *JVM
	// RunsToCompletion marks a container whose pods run to their end: of a Job or CronJob, or an init container. Then the peak of a
	// run is a sample, and history is counted in runs, not in days.
	RunsToCompletion bool
	// Init marks an init container.
	Init bool
	// Groups are the uses by node group of a container of a DaemonSet; empty for all others, and where the nodes of the
	// pods are not known. Profile is the sum of all pods, those of nodes that are gone included.
	Groups []NodeGroupUse
}

// Status says whether there is a number.
type Status string

// The statuses.
const (
	// Ready means that there is a recommendation.
	Ready Status = "Ready"
	// Learning means that the history is too short for one.
	Learning Status = "Learning"
	// NoData means that there is no use at all.
	NoData Status = "NoData"
)

// Recommendation is what one container should ask for, and why.
type Recommendation struct {
	Container string `json:"container"`
	Policy    string `json:"policy"`
	// Init marks an init container: it holds its request only until the others start.
	Init bool `json:"init,omitempty"`
	// Current is what the container asks for today, Target what it should ask for. In Target a request is absent where
	// the resource's status is not Ready; a limit is absent where there should be none, or where the request is absent.
	Current Resources `json:"current"`
	Target  Resources `json:"target"`
	// CPU and Memory say how each was found.
	CPU    Sizing `json:"cpu"`
	Memory Sizing `json:"memory"`
	// HPA is what the autoscaler's targets must become together with Target; nil where nothing changes.
	HPA *HPA `json:"hpa,omitempty"`
	// NodeGroups are the sizes that the nodes of each group need; only where there are several groups.
	NodeGroups []NodeGroupSize `json:"nodeGroups,omitempty"`
}

// Sizing says how one resource was found.
type Sizing struct {
	Status Status `json:"status"`
	// Message is one line for people: "learning, 3 of 7 days", or the first reason.
	Message string `json:"message"`
	// Confidence, 0 to 1: the observed part of the window that the policy looks at, lowered by what makes the need
	// uncertain (see Flags).
	Confidence series.Ratio `json:"confidence"`
	// Days is the observed time in days, within the window.
	Days float64 `json:"days"`
	// Estimate is what the use itself asks for, before margin and clamps: cores or bytes; 0 unless Ready.
	Estimate float64 `json:"estimate"`
	// Steps lead from the use to the request and the limit, in order.
	Steps []Step `json:"steps,omitempty"`
	// Flags are findings about the container.
	Flags []Flag `json:"flags,omitempty"`
}

// Ready tells whether both resources have a number.
func (r Recommendation) Ready() bool { return r.CPU.Status == Ready && r.Memory.Status == Ready }
