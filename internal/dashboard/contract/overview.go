// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package contract

// Overview is the answer of PathOverview. Sums are those of the namespaces that the user may read; amounts of the whole cluster are
// absent without the right to list nodes.
type Overview struct {
	Origin
	Currency string `json:"currency"`
	// Partial is true if there are namespaces that the user may not read.
	Partial bool  `json:"partial,omitempty"`
	Money   Money `json:"money"`
	// Coverage counts workloads by the state of their Resource recommendation.
	Coverage Coverage `json:"coverage"`
	// Namespaces are the sums by namespace, highest saving first.
	Namespaces []NamespaceSum `json:"namespaces"`
	// Top are the largest savings, at most 10.
	Top []Row `json:"top"`
	// Attention is what to look at today, most urgent first, at most 50.
	Attention []Attention `json:"attention"`
	// Adoption is what was adopted and what it saved.
	Adoption AdoptionSum `json:"adoption"`
	// Trend has a point for each day, oldest first: from the record of the server or of the cluster; empty before the first day.
	Trend []TrendPoint `json:"trend"`
	// OOMSource says where OOM kills are kept.
	OOMSource string `json:"oomSource,omitempty"`
	// TrendSource says where the trend is kept.
	TrendSource string `json:"trendSource,omitempty"`
	// OOMKills are the kills of the last seven days, newest first, at most 50; absent if their record cannot be read.
	OOMKills []OOMKill `json:"oomKills,omitempty"`
	// CostSource and CostWindowSeconds are the source and the window of the amounts of the cluster; absent without them.
	CostSource        string `json:"costSource,omitempty"`
	CostWindowSeconds int64  `json:"costWindowSeconds,omitempty"`
	// Missing are the reasons why parts are absent, by MissingCost, MissingTrend or MissingOOMKills.
	Missing map[string]Error `json:"missing,omitempty"`
}

// The keys of Overview.Missing.
const (
	MissingCost     = "cost"
	MissingTrend    = "trend"
	MissingOOMKills = "oomKills"
)

// Money is the cost of a month at the present prices.
type Money struct {
	// Cluster is the price of all nodes; Requested, Used and Idle are its parts (used: the last hour). Absent without the right to list
	// nodes, Used and Idle also without a Prometheus.
	ClusterPerMonth   *float64 `json:"clusterPerMonth,omitempty"`
	RequestedPerMonth *float64 `json:"requestedPerMonth,omitempty"`
	UsedPerMonth      *float64 `json:"usedPerMonth,omitempty"`
	IdlePerMonth      *float64 `json:"idlePerMonth,omitempty"`
	// Recoverable is the sum of all positive savings that are not adopted; Needed the sum of all negative ones, as a positive number.
	RecoverablePerMonth float64 `json:"recoverablePerMonth"`
	NeededPerMonth      float64 `json:"neededPerMonth"`
	// SavedCPUMilli and SavedMemoryBytes are the reductions behind Recoverable.
	SavedCPUMilli    int64 `json:"savedCPUMilli"`
	SavedMemoryBytes int64 `json:"savedMemoryBytes"`
}

// Coverage counts workloads.
type Coverage struct {
	Workloads int `json:"workloads"`
	// WithNumber have a number, Learning and NoData have too little history, Refused have a reason; Failed an older number.
	WithNumber int `json:"withNumber"`
	Learning   int `json:"learning"`
	NoData     int `json:"noData"`
	Refused    int `json:"refused"`
	Failed     int `json:"failed"`
	// Adopted are those with adoptionType Auto.
	Adopted int `json:"adopted"`
}

// NamespaceSum is the sum of one namespace.
type NamespaceSum struct {
	Cluster        string  `json:"cluster"`
	Namespace      string  `json:"namespace"`
	Workloads      int     `json:"workloads"`
	SavingPerMonth float64 `json:"savingPerMonth"`
}

// Attention is one thing to look at.
type Attention struct {
	// Severity is error, warning or info.
	Severity string `json:"severity"`
	// Reason is CamelCase: RolledBack, OOMKilled, UnderRequested, Stopped, Failed, Paused, ComponentDown, RuleFailed, ...
	Reason  string `json:"reason"`
	Message string `json:"message"`
	Next    string `json:"next,omitempty"`
	// Target is the workload, absent for other findings; Page is the page of the finding.
	Target *Target `json:"target,omitempty"`
	Page   string  `json:"page,omitempty"`
	At     int64   `json:"at,omitempty"`
}

// Target names a workload.
type Target struct {
	Cluster   string `json:"cluster"`
	Namespace string `json:"namespace"`
	Kind      string `json:"kind"`
	Name      string `json:"name"`
}

// AdoptionSum sums up the adopted recommendations.
type AdoptionSum struct {
	Workloads int `json:"workloads"`
	// InProgress are those whose pods do not have the recommended size yet; RolledBack are held.
	InProgress int `json:"inProgress"`
	RolledBack int `json:"rolledBack"`
	// PromisedPerMonth is the difference between the requests before the adoption and the recommended ones, RealisedPerMonth that to the
	// present requests of the pods, both at the present prices. Absent if none is known.
	PromisedPerMonth *float64 `json:"promisedPerMonth,omitempty"`
	RealisedPerMonth *float64 `json:"realisedPerMonth,omitempty"`
	// Promised and Realized are the amounts of all recorded days since Since.
	Promised *float64 `json:"promised,omitempty"`
	Realized *float64 `json:"realised,omitempty"`
	Since    int64    `json:"since,omitempty"`
}

// TrendPoint is one day.
type TrendPoint struct {
	At                  int64    `json:"at"`
	ClusterPerMonth     *float64 `json:"clusterPerMonth,omitempty"`
	UsedPerMonth        *float64 `json:"usedPerMonth,omitempty"`
	RecoverablePerMonth *float64 `json:"recoverablePerMonth,omitempty"`
	PromisedPerMonth    *float64 `json:"promisedPerMonth,omitempty"`
	RealisedPerMonth    *float64 `json:"realisedPerMonth,omitempty"`
}

// OOMKill is one record of a container that was killed for its memory.
type OOMKill struct {
	Target    Target `json:"target"`
	Container string `json:"container"`
	Pod       string `json:"pod,omitempty"`
	At        int64  `json:"at"`
	// MemoryBytes is the memory at the time of the kill, absent if unknown.
	MemoryBytes *int64 `json:"memoryBytes,omitempty"`
}
