// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package contract

// WorkloadDetail is the answer of PathWorkload.
type WorkloadDetail struct {
	Origin
	Currency string            `json:"currency"`
	Target   Target            `json:"target"`
	Replicas *int64            `json:"replicas,omitempty"`
	Labels   map[string]string `json:"labels,omitempty"`
	// Rows are the recommendations of the workload, one for each recommender.
	Rows []Row `json:"rows"`
	// Sources are all origins of the size of the workload, as in crane explain workload.
	Sources []SizeSource `json:"sources,omitempty"`
	// Containers have the derivation of each number from the history; empty if HistoryError is set.
	Containers []ContainerDetail `json:"containers"`
	// Policy is the name of the sizing policy, PolicyReason why it applies.
	Policy       string `json:"policy,omitempty"`
	PolicyReason string `json:"policyReason,omitempty"`
	// HistoryError is the reason why steps, replay and what-if are missing; the other fields are still set.
	HistoryError *Error `json:"historyError,omitempty"`
	// SizesBefore are the requests before the adoption, by container; absent before it.
	SizesBefore []ContainerSize `json:"sizesBefore,omitempty"`
	// PatchYAML is the strategic merge patch of the workload in YAML; empty without a number.
	PatchYAML string `json:"patchYAML,omitempty"`
	// AutoscalerYAML is the change that an autoscaler needs together with the patch.
	AutoscalerYAML string `json:"autoscalerYAML,omitempty"`
	// Commands are kubectl and crane commands to copy, by name: patch, adopt, explain.
	Commands map[string]string `json:"commands,omitempty"`
	// Rights of the user on this workload.
	CanAdopt bool `json:"canAdopt"`
	// Adoption is the progress of the adoption, absent before the first step.
	Adoption *AdoptionProgress `json:"adoption,omitempty"`
}

// SizeSource is one origin of the size of a workload.
type SizeSource struct {
	Source   string `json:"source"`
	CPU      string `json:"cpu,omitempty"`
	Memory   string `json:"memory,omitempty"`
	Replicas string `json:"replicas,omitempty"`
	// Acts is true if this source sets the size now; Why is the reason.
	Acts bool   `json:"acts"`
	Why  string `json:"why"`
}

// ContainerSize is the requests and limits of one container.
type ContainerSize struct {
	Container        string `json:"container"`
	CPURequestMilli  *int64 `json:"cpuRequestMilli,omitempty"`
	CPULimitMilli    *int64 `json:"cpuLimitMilli,omitempty"`
	MemoryRequest    *int64 `json:"memoryRequestBytes,omitempty"`
	MemoryLimitBytes *int64 `json:"memoryLimitBytes,omitempty"`
}

// AdoptionProgress is the progress of an adoption.
type AdoptionProgress struct {
	Phase   string   `json:"phase"`
	Message string   `json:"message,omitempty"`
	Steps   int64    `json:"steps"`
	Remarks []string `json:"remarks,omitempty"`
}

// ContainerDetail is the derivation of the numbers of one container.
type ContainerDetail struct {
	Name string `json:"name"`
	// Role is app, init or sidecar.
	Role   string          `json:"role"`
	CPU    *ResourceDetail `json:"cpu,omitempty"`
	Memory *ResourceDetail `json:"memory,omitempty"`
}

// ResourceDetail is the derivation of one number. Amounts are in cores or bytes, as Unit says.
type ResourceDetail struct {
	// Unit is cores or bytes.
	Unit string `json:"unit"`
	// Status is Ready, Learning or NoData; Message explains it.
	Status  string `json:"status"`
	Message string `json:"message"`
	// Requests and limits; absent if not set.
	RequestNow         *float64 `json:"requestNow,omitempty"`
	LimitNow           *float64 `json:"limitNow,omitempty"`
	RequestRecommended *float64 `json:"requestRecommended,omitempty"`
	LimitRecommended   *float64 `json:"limitRecommended,omitempty"`
	// SavingPerMonth is the share of this resource and container in the saving of all pods.
	SavingPerMonth *float64 `json:"savingPerMonth,omitempty"`
	// Usage over the window.
	Usage UsageSummary `json:"usage"`
	// Confidence is from 0 to 1; Days is the observed time in days.
	Confidence float64 `json:"confidence"`
	Days       float64 `json:"days"`
	// Steps lead from the usage to the request and limit, in order.
	Steps []Step `json:"steps"`
	// Flags are findings about the container, Calibration the target and what was achieved in the replay, if the policy is calibrated.
	Flags       []Flag       `json:"flags,omitempty"`
	Calibration *Calibration `json:"calibration,omitempty"`
	// Replay compares the policy, the present setting and the formulas of other tools over past days; absent with less than 8 days.
	Replay *Replay `json:"replay,omitempty"`
}

// UsageSummary summarizes the samples of all pods over the window, in the unit of the resource.
type UsageSummary struct {
	Samples int64   `json:"samples"`
	Mean    float64 `json:"mean"`
	P50     float64 `json:"p50"`
	P95     float64 `json:"p95"`
	P99     float64 `json:"p99"`
	Max     float64 `json:"max"`
}

// Step is one step from the usage to a request or limit.
type Step struct {
	Code string `json:"code"`
	// From and To are in the unit of the resource; From is 0 without a previous value.
	From   float64 `json:"from"`
	To     float64 `json:"to"`
	Detail string  `json:"detail"`
	// Text is the step as a sentence.
	Text string `json:"text"`
}

// Flag is a finding about a container.
type Flag struct {
	Code   string `json:"code"`
	Detail string `json:"detail"`
}

// Calibration is the target for the time above the request, and what the replay of the past days achieved.
type Calibration struct {
	Target   float64 `json:"target"`
	Achieved float64 `json:"achieved"`
	Days     int64   `json:"days"`
	Message  string  `json:"message,omitempty"`
}

// Replay is the result of several ways of sizing over the same past days, each day decided from the days before.
type Replay struct {
	// From and To are dates, such as 2026-03-01.
	From     string    `json:"from"`
	To       string    `json:"to"`
	Days     int       `json:"days"`
	Outcomes []Outcome `json:"outcomes"`
	// Curve is the result of other percentiles, without margin.
	Curve []CurvePoint `json:"curve,omitempty"`
}

// Outcome is the result of one way of sizing.
type Outcome struct {
	// Name is the policy, "today" for the present setting, or the name of another tool's formula (VPA, KRR, gocrane, ...).
	Name string `json:"name"`
	// Request is the mean request; Slack is 1 - usage/request.
	Request float64 `json:"request"`
	Slack   float64 `json:"slack"`
	// MinutesAbovePerDay is the time with a usage above the request.
	MinutesAbovePerDay float64 `json:"minutesAbovePerDay"`
	// Overrun is the usage above the request as a share of the usage.
	Overrun float64 `json:"overrun"`
	// ThrottledMinutesPerDay is the time with a usage above the limit (CPU), OOMDays the days with one (memory).
	ThrottledMinutesPerDay *float64 `json:"throttledMinutesPerDay,omitempty"`
	OOMDays                *int     `json:"oomDays,omitempty"`
	// ChangesPerDay is the mean number of changes by more than 10 %.
	ChangesPerDay float64 `json:"changesPerDay"`
	// CostPerMonth is the price of the mean request for all pods; absent without prices.
	CostPerMonth *float64 `json:"costPerMonth,omitempty"`
}

// CurvePoint is the result of one percentile.
type CurvePoint struct {
	Percentile         float64 `json:"percentile"`
	Request            float64 `json:"request"`
	Slack              float64 `json:"slack"`
	MinutesAbovePerDay float64 `json:"minutesAbovePerDay"`
}

// WhatIf is the answer of PathWhatIf: the replay of one container with other settings.
type WhatIf struct {
	Origin
	Currency  string `json:"currency"`
	Container string `json:"container"`
	// Settings are those that were replayed; Policy has the values of the policy, to reset the controls.
	Settings WhatIfSettings  `json:"settings"`
	Policy   WhatIfSettings  `json:"policy"`
	CPU      *WhatIfResource `json:"cpu,omitempty"`
	Memory   *WhatIfResource `json:"memory,omitempty"`
}

// WhatIfSettings are the settings that a what-if can change. A setting that the method of the policy does not use is absent.
type WhatIfSettings struct {
	// Percentile of the CPU usage and of the memory peaks; MemoryMargin and CPUMargin are additions as shares.
	CPUPercentile    *float64 `json:"cpuPercentile,omitempty"`
	MemoryPercentile *float64 `json:"memoryPercentile,omitempty"`
	CPUMargin        *float64 `json:"cpuMargin,omitempty"`
	MemoryMargin     *float64 `json:"memoryMargin,omitempty"`
	// Target is the share of time that the CPU usage may exceed the request; with it the policy is calibrated.
	Target *float64 `json:"target,omitempty"`
}

// WhatIfResource is the result for one resource.
type WhatIfResource struct {
	// Detail has the request that the settings give now, with its steps, and the replay with all outcomes.
	ResourceDetail
	// SavingPerMonthDelta is the saving of these settings minus that of the policy.
	SavingPerMonthDelta *float64 `json:"savingPerMonthDelta,omitempty"`
}

// WorkloadSeries is the answer of PathSeries. Series of the same container and resource have one unit.
type WorkloadSeries struct {
	Origin
	From        int64 `json:"from"`
	To          int64 `json:"to"`
	StepSeconds int64 `json:"stepSeconds"`
	// Thinned is true if neighboring points were merged; each kept their smallest and largest value.
	Thinned bool     `json:"thinned"`
	Series  []Series `json:"series"`
	Marks   []Mark   `json:"marks"`
	// MarksError is the reason why marks are missing.
	MarksError *Error `json:"marksError,omitempty"`
}

// Series is one line. T and V have the same length; V has null for a gap.
type Series struct {
	// Kind is usage (largest pod; of a forecast all pods), usageMean (mean of the pods), request, limit, recommended, forecast, forecastLow,
	// forecastHigh, replicas, replicasAlone, replicasForecast, throttled.
	Kind      string `json:"kind"`
	Container string `json:"container,omitempty"`
	// Resource is cpu, memory or replicas; Unit is cores, bytes, replicas or share.
	Resource string     `json:"resource"`
	Unit     string     `json:"unit"`
	T        []int64    `json:"t"`
	V        []*float64 `json:"v"`
	// PromQL is the query to copy; empty for series that are not from Prometheus.
	PromQL string `json:"promql,omitempty"`
}

// Mark is an event on the time axis.
type Mark struct {
	At int64 `json:"at"`
	// Kind is rollout, resize, rollback, oom, adoption, cron or an action of the agent: throttled, restored, evicted, node.
	Kind string `json:"kind"`
	Text string `json:"text"`
}
