// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package rightsize

import (
	"cmp"
	"time"

	"crane.io/crane/pkg/rightsize/calibrate"
	"crane.io/crane/pkg/units"
)

// Resources are the requests and limits of a container. A nil pointer means that there is none, as opposed to zero.
type Resources struct {
	CPURequest    *units.MilliCPU `json:"cpuRequest,omitempty"`
	CPULimit      *units.MilliCPU `json:"cpuLimit,omitempty"`
	MemoryRequest *units.Bytes    `json:"memoryRequest,omitempty"`
	MemoryLimit   *units.Bytes    `json:"memoryLimit,omitempty"`
}

// WithDefaultRequests returns the resources as the API server stores them: a limit without a request is the request too.
func (r Resources) WithDefaultRequests() Resources {
	r.CPURequest = cmp.Or(r.CPURequest, r.CPULimit)
	r.MemoryRequest = cmp.Or(r.MemoryRequest, r.MemoryLimit)
	return r
}

// OOM is one out-of-memory kill of the container.
type OOM struct {
	// At is the time of the kill.
	At time.Time
	// Memory is the limit at which the kernel killed the container, or the usage for which the kubelet evicted it: the need was
	// at least that. If LimitUnknown is set, it is the largest measured usage, which may be far below the need; 0 if unknown.
	Memory units.Bytes
	// NoLimit is set if the container had no limit. The node or the pod was then out of memory, which does not bound the need.
	NoLimit bool
	// LimitUnknown is set if the limit at the time of the kill is unknown. The request is then not lowered.
	LimitUnknown bool
}

// HPA is a horizontal autoscaler of the workload.
type HPA struct {
	// CPUUtilization and MemoryUtilization are the target utilizations of the request (0.8 is 80 %); 0 if the autoscaler
	// does not use the resource, or uses an absolute value.
	CPUUtilization, MemoryUtilization units.Ratio
}

// JVM describes a Java heap by its metrics or flags. With both a maximum and a share of the limit it is not known which one holds.
type JVM struct {
	// MaxHeap is -Xmx, or the maximum heap that the JVM reports; 0 if unknown.
	MaxHeap units.Bytes
	// MaxRAMPercentage is the maximum heap as a share of the memory limit (0.75 is 75 %); 0 if not set.
	MaxRAMPercentage units.Ratio
	// PeakHeap is the largest used heap after a collection; 0 if unknown.
	PeakHeap units.Bytes
}

// Input is the input of sizing one container.
type Input struct {
	// Container is the name of the container in messages.
	Container string
	// Profile is its usage over all pods of the workload.
	Profile *Profile
	// Current holds its current requests and limits.
	Current Resources
	// OOMs are its out-of-memory kills, in any order.
	OOMs []OOM
	// UnknownKills is the reason why the kills are unknown; empty if they are known. The memory request is then not lowered.
	UnknownKills string
	// Now is the time of the decision; later usage is ignored.
	Now time.Time
	// MaxCPU and MaxMemory are the allocatable resources of the largest node; 0 if unknown.
	MaxCPU    units.MilliCPU
	MaxMemory units.Bytes
	// HPA is the horizontal autoscaler of the workload; nil if there is none.
	HPA *HPA
	// JVM describes a Java heap in the container; nil if there is none.
	JVM *JVM
	// RunsToCompletion marks containers of Jobs and CronJobs and init containers. The peak of a run is then a sample, and
	// history is counted in runs instead of days.
	RunsToCompletion bool
	// Init marks an init container.
	Init bool
	// Reacts is set if the requests of pods are raised within the day while they use more. Only with the method Calibrated.
	Reacts bool
	// Groups are the usages by node group of a DaemonSet container; empty for others, and if the nodes of the pods are
	// unknown. Profile is the sum of all pods, including those of deleted nodes.
	Groups []NodeGroupUse
}

// Status is the state of a sizing.
type Status string

// The statuses.
const (
	// Ready means that there is a number.
	Ready Status = "Ready"
	// Learning means that the history is too short.
	Learning Status = "Learning"
	// NoData means that there is no usage.
	NoData Status = "NoData"
)

// Recommendation holds the recommended requests and limits of one container.
type Recommendation struct {
	Container string `json:"container"`
	Policy    string `json:"policy"`
	// Init marks an init container: it holds its request only until the others start.
	Init bool `json:"init,omitempty"`
	// Current holds the current requests and limits, Target the recommended ones. A request of Target is absent if the
	// resource is not Ready; a limit is absent if there should be none, or without a request.
	Current Resources `json:"current"`
	Target  Resources `json:"target"`
	// CPU and Memory hold the derivation of each resource.
	CPU    Sizing `json:"cpu"`
	Memory Sizing `json:"memory"`
	// HPA holds the targets that the autoscaler needs together with Target; nil if they do not change.
	HPA *HPA `json:"hpa,omitempty"`
	// NodeGroups are the sizes by node group; only if there are several groups.
	NodeGroups []NodeGroupSize `json:"nodeGroups,omitempty"`
}

// Sizing is the derivation of one resource.
type Sizing struct {
	Status Status `json:"status"`
	// Message is one line: "learning, 3 of 7 days", or the main reason.
	Message string `json:"message"`
	// Confidence, 0 to 1, is the observed part of the policy's window, reduced by findings that make the need uncertain (see
	// Flags).
	Confidence units.Ratio `json:"confidence"`
	// Days is the observed time within the window, in days.
	Days float64 `json:"days"`
	// Estimate is the number that usage requires, before margin and bounds, in cores or bytes; 0 unless Ready.
	Estimate float64 `json:"estimate"`
	// Steps lead from usage to the request and the limit, in order.
	Steps []Step `json:"steps,omitempty"`
	// Flags are findings about the container.
	Flags []Flag `json:"flags,omitempty"`
	// Calibration has the target, the share of the time above the request that was achieved in the replay of the past days, and the
	// results of other multipliers; only with the method Calibrated.
	Calibration *calibrate.Calibration `json:"calibration,omitempty"`
}

// Ready reports whether both resources have a number.
func (r Recommendation) Ready() bool { return r.CPU.Status == Ready && r.Memory.Status == Ready }
