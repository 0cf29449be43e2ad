// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package messy

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Amounts are CPU in millicores and memory in MiB; 0 is not set.
type Amounts struct {
	CPU    int64 `json:"cpu,omitempty"`
	Memory int64 `json:"memory,omitempty"`
}

// LimitRange is an item of a LimitRange. Ratio is maxLimitRequestRatio of CPU.
type LimitRange struct {
	// Type is Container or Pod.
	Type           string  `json:"type"`
	Min            Amounts `json:"min,omitzero"`
	Max            Amounts `json:"max,omitzero"`
	Default        Amounts `json:"default,omitzero"`
	DefaultRequest Amounts `json:"defaultRequest,omitzero"`
	Ratio          int64   `json:"ratio,omitempty"`
}

// Quota is a ResourceQuota.
type Quota struct {
	Requests Amounts `json:"requests,omitzero"`
	Limits   Amounts `json:"limits,omitzero"`
	Pods     int64   `json:"pods,omitempty"`
	// Scope is NotBestEffort, NotTerminating or PriorityClass, whose class is Priority; empty for all pods.
	Scope string `json:"scope,omitempty"`
}

// Foreign webhooks that change the resources of pods.
const (
	// ForeignRequests sets missing CPU requests.
	ForeignRequests = "requests"
	// ForeignLimits sets missing CPU limits to twice the request.
	ForeignLimits = "limits"
)

// Namespace are the rules of a namespace.
type Namespace struct {
	LimitRanges []LimitRange `json:"limitRanges,omitempty"`
	Quotas      []Quota      `json:"quotas,omitempty"`
	// PodSecurity is the enforced level; empty for none.
	PodSecurity string `json:"podSecurity,omitempty"`
	// Foreign is what a webhook of others does to new pods; ForeignLast calls it after Crane's.
	Foreign     string `json:"foreign,omitempty"`
	ForeignLast bool   `json:"foreignLast,omitempty"`
	// MinCPU is the request, in millicores, below which an admission policy refuses pods; 0 for none.
	MinCPU int64 `json:"minCPU,omitempty"`
}

// Container is a container with its requests and limits.
type Container struct {
	Name     string  `json:"name"`
	Requests Amounts `json:"requests,omitzero"`
	Limits   Amounts `json:"limits,omitzero"`
	// Restarts reports that a resize of its memory restarts the container.
	Restarts bool `json:"restarts,omitempty"`
	// HugePages is its request of 2 MiB pages, in MiB.
	HugePages int64 `json:"hugePages,omitempty"`
	// Wanted are the recommended requests.
	Wanted Amounts `json:"wanted,omitzero"`
}

// Workload is a workload with a Recommendation.
type Workload struct {
	Kind       string      `json:"kind"`
	Name       string      `json:"name"`
	Replicas   int32       `json:"replicas"`
	Containers []Container `json:"containers"`
	// Init ends before the containers start, Sidecar runs beside them; nil for none.
	Init    *Container `json:"init,omitempty"`
	Sidecar *Container `json:"sidecar,omitempty"`
	// PodLevel are the requests of the pod as a whole.
	PodLevel Amounts `json:"podLevel,omitzero"`
	// OnDelete, Partition, Recreate and Paused are about the roll-out.
	OnDelete  bool  `json:"onDelete,omitempty"`
	Partition int32 `json:"partition,omitempty"`
	Recreate  bool  `json:"recreate,omitempty"`
	Paused    bool  `json:"paused,omitempty"`
	// MinAvailable is that of a PodDisruptionBudget; negative for no budget.
	MinAvailable int32 `json:"minAvailable"`
	// Autoscaled adds a HorizontalPodAutoscaler on CPU utilization, VPA the mode of a VerticalPodAutoscaler.
	Autoscaled bool   `json:"autoscaled,omitempty"`
	VPA        string `json:"vpa,omitempty"`
	// Priority sets the PriorityClass, HostNetwork the network of the node.
	Priority    bool `json:"priority,omitempty"`
	HostNetwork bool `json:"hostNetwork,omitempty"`
	// AdoptTemplate writes the adopted size into the template.
	AdoptTemplate bool `json:"adoptTemplate,omitempty"`
	// Reach is that of the Recommendation; empty for its default.
	Reach string `json:"reach,omitempty"`
}

// EventKind is something that happens in a namespace.
type EventKind string

// The events. Those about a workload name it by its index.
const (
	Nothing EventKind = "Nothing"
	// DeletePod deletes a pod, Drain evicts all, Crash ends a container of one.
	DeletePod EventKind = "DeletePod"
	Drain     EventKind = "Drain"
	Crash     EventKind = "Crash"
	// RollOut changes an annotation of the template, Edit the resources of its containers, Scale the replicas.
	RollOut EventKind = "RollOut"
	Edit    EventKind = "Edit"
	Scale   EventKind = "Scale"
	// Recommend changes the recommended requests.
	Recommend EventKind = "Recommend"
	// Off and On switch adoption; OptOut sets the label that excludes the workload, OptIn removes it.
	Off    EventKind = "Off"
	On     EventKind = "On"
	OptOut EventKind = "OptOut"
	OptIn  EventKind = "OptIn"
	// LimitRangeAppears replaces the LimitRanges, LimitRangeGone deletes them.
	LimitRangeAppears EventKind = "LimitRangeAppears"
	LimitRangeGone    EventKind = "LimitRangeGone"
	// QuotaAppears replaces the ResourceQuotas, QuotaGone deletes them.
	QuotaAppears EventKind = "QuotaAppears"
	QuotaGone    EventKind = "QuotaGone"
	// PolicyAppears sets the smallest CPU request, PolicyGone removes it.
	PolicyAppears EventKind = "PolicyAppears"
	PolicyGone    EventKind = "PolicyGone"
)

// Event is one event. The fields besides Kind depend on it.
type Event struct {
	Kind       EventKind   `json:"kind"`
	Workload   int         `json:"workload,omitempty"`
	Replicas   int32       `json:"replicas,omitempty"`
	Containers []Container `json:"containers,omitempty"`
	LimitRange *LimitRange `json:"limitRange,omitempty"`
	Quota      *Quota      `json:"quota,omitempty"`
	MinCPU     int64       `json:"minCPU,omitempty"`
}

// Case is a namespace with workloads, and what happens in it, one event a round.
type Case struct {
	// Seed is the one that Draw was called with.
	Seed      uint64     `json:"seed"`
	Namespace Namespace  `json:"namespace"`
	Workloads []Workload `json:"workloads"`
	Events    []Event    `json:"events"`
}

// String returns the case as JSON, with one workload or event a line.
func (c Case) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d\nnamespace %s\n", c.Seed, text(c.Namespace))
	for i, w := range c.Workloads {
		fmt.Fprintf(&b, "workload %d %s\n", i, text(w))
	}

	for i, e := range c.Events {
		if e.Kind != Nothing {
			fmt.Fprintf(&b, "round %d %s\n", i+1, text(e))
		}
	}

	return b.String()
}

func text(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}

	return string(raw)
}
