// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package contract

// State is the state of a recommendation.
type State string

// The states. Others than Ready and Clear have their reason in Row.Reason and Row.Message.
const (
	StateReady      State = "ready"      // there is a number to apply
	StateClear      State = "clear"      // evaluated; nothing to change
	StateLearning   State = "learning"   // too little history yet
	StateNoData     State = "nodata"     // no history
	StateRefused    State = "refused"    // evaluated, and refused with a reason; or not applicable
	StateFailed     State = "failed"     // the last evaluation failed; the number is older
	StateAdopting   State = "adopting"   // adoptionType Auto: steps are in progress or waiting
	StateAdopted    State = "adopted"    // adoptionType Auto: pods have the recommended size
	StatePaused     State = "paused"     // adoption of the workload is disabled, or all writes are paused
	StateRolledBack State = "rolledback" // adoption was rolled back and is held
	StateStopped    State = "stopped"    // adoption stopped: another client changes the target
)

// Worklist is the answer of PathWorklist.
type Worklist struct {
	Origin
	Currency string `json:"currency"`
	// Rows are sorted by saving, highest first.
	Rows []Row `json:"rows"`
	// LabelKeys are the keys in Row.Labels, most frequent first; TeamLabel is the key that names a team, empty without one.
	LabelKeys []string `json:"labelKeys,omitempty"`
	TeamLabel string   `json:"teamLabel,omitempty"`
	// Hidden is true if there are namespaces that the user may not read.
	Hidden bool `json:"hidden,omitempty"`
	// Problems are clusters that did not answer.
	Problems []ClusterProblem `json:"problems,omitempty"`
}

// ClusterProblem is the error of one cluster in an answer about several.
type ClusterProblem struct {
	Cluster string `json:"cluster"`
	Error   Error  `json:"error"`
}

// Row is one recommendation.
type Row struct {
	Cluster   string `json:"cluster"`
	Namespace string `json:"namespace,omitempty"`
	// Name is the name of the Recommendation; empty if the number was computed by this server (Crane is not installed).
	Name string `json:"name,omitempty"`
	// Type is the recommender: Resource, Replicas, HPA, IdleNode, Volume, Service, Unused, Packing, Throttle, GPU.
	Type string `json:"type"`
	Rule string `json:"rule,omitempty"`
	// Kind and Workload name the target; APIVersion is its group and version.
	Kind       string            `json:"kind"`
	Workload   string            `json:"workload"`
	APIVersion string            `json:"apiVersion,omitempty"`
	Labels     map[string]string `json:"labels,omitempty"`

	State State `json:"state"`
	// Reason is the CamelCase reason of the state, Message its sentence.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Change is the change in short, such as "cpu 1 → 778m, memory 1136Mi → 512Mi".
	Change string `json:"change,omitempty"`
	// Action is Patch, Create, Delete or None.
	Action string `json:"action,omitempty"`

	// Now and Recommended are the sums of the containers of one pod.
	Now         *Size `json:"now,omitempty"`
	Recommended *Size `json:"recommended,omitempty"`

	// SavingPerMonth is negative if the target should request more; absent without prices or without a number.
	SavingPerMonth *float64 `json:"savingPerMonth,omitempty"`
	// SavedCPUMilli and SavedMemoryBytes are the reductions of all pods of the target.
	SavedCPUMilli    *int64 `json:"savedCPUMilli,omitempty"`
	SavedMemoryBytes *int64 `json:"savedMemoryBytes,omitempty"`

	// Risk is from 0 to 100, RiskReasons are the findings that it adds up, highest first. docs/how-to/open-the-dashboard.md has the table.
	Risk        int      `json:"risk"`
	RiskReasons []string `json:"riskReasons,omitempty"`

	// AdoptionType is Status, StatusAndAnnotation or Auto; Phase is that of the adoption.
	AdoptionType string `json:"adoptionType,omitempty"`
	Phase        string `json:"phase,omitempty"`
	// Created and Updated are the times of the Recommendation and of its last change.
	Created int64 `json:"created,omitempty"`
	Updated int64 `json:"updated,omitempty"`
}

// Size is the size of a workload; absent values are not set or not part of the recommendation.
type Size struct {
	CPUMilli    *int64 `json:"cpuMilli,omitempty"`
	MemoryBytes *int64 `json:"memoryBytes,omitempty"`
	Replicas    *int64 `json:"replicas,omitempty"`
}
