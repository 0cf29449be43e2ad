// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package contract

// Health is the answer of PathHealth: the lines of crane status.
type Health struct {
	Origin
	Checks []Check `json:"checks"`
	// Server is the state of the dashboard itself: its caches, Prometheus, and requests.
	Server []Check `json:"server"`
}

// Check is one line.
type Check struct {
	Name string `json:"name"`
	// Status is ok, warn or off (not installed).
	Status string `json:"status"`
	Detail string `json:"detail"`
	Next   string `json:"next,omitempty"`
}

// Autoscaling is the answer of PathAutoscaling.
type Autoscaling struct {
	Origin
	Horizontal []HorizontalAutoscaler `json:"horizontal"`
	Vertical   []VerticalAutoscaler   `json:"vertical"`
	Hidden     bool                   `json:"hidden,omitempty"`
}

// HorizontalAutoscaler is one EffectiveHorizontalPodAutoscaler.
type HorizontalAutoscaler struct {
	Cluster   string `json:"cluster"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Target    Target `json:"target"`
	// Strategy is Auto or Preview.
	Strategy        string `json:"strategy"`
	MinReplicas     int64  `json:"minReplicas"`
	MaxReplicas     int64  `json:"maxReplicas"`
	CurrentReplicas *int64 `json:"currentReplicas,omitempty"`
	DesiredReplicas *int64 `json:"desiredReplicas,omitempty"`
	// Without is the number of replicas of the metrics alone, without forecasts and schedules; absent if unknown.
	WithoutForecast *int64 `json:"withoutForecast,omitempty"`
	LastScale       int64  `json:"lastScale,omitempty"`
	// Autoscaler is the origin of the number, Winner the largest proposal, Why one sentence.
	Autoscaler string          `json:"autoscaler,omitempty"`
	Winner     string          `json:"winner,omitempty"`
	Why        string          `json:"why,omitempty"`
	Proposals  []Proposal      `json:"proposals"`
	Crons      []Cron          `json:"crons,omitempty"`
	Conditions []Condition     `json:"conditions"`
	Prediction *PredictionInfo `json:"prediction,omitempty"`
}

// PredictionInfo describes the forecast of an autoscaler.
type PredictionInfo struct {
	Algorithm     string `json:"algorithm"`
	WindowSeconds int64  `json:"windowSeconds"`
}

// Proposal is the number of replicas for one metric, forecast or schedule.
type Proposal struct {
	Name string `json:"name"`
	// Kind is metric, forecast or cron.
	Kind     string `json:"kind"`
	Replicas *int64 `json:"replicas,omitempty"`
	Current  string `json:"current,omitempty"`
	Target   string `json:"target,omitempty"`
	Message  string `json:"message,omitempty"`
}

// Cron is one schedule.
type Cron struct {
	Name     string `json:"name"`
	Active   bool   `json:"active"`
	Start    string `json:"start"`
	End      string `json:"end"`
	TimeZone string `json:"timeZone,omitempty"`
	Replicas int64  `json:"replicas"`
	// NextStart and NextEnd are times.
	NextStart int64  `json:"nextStart,omitempty"`
	NextEnd   int64  `json:"nextEnd,omitempty"`
	Message   string `json:"message,omitempty"`
}

// Condition is a condition of an object.
type Condition struct {
	Type    string `json:"type"`
	Status  string `json:"status"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	At      int64  `json:"at,omitempty"`
}

// VerticalAutoscaler is one EffectiveVerticalPodAutoscaler.
type VerticalAutoscaler struct {
	Cluster    string             `json:"cluster"`
	Namespace  string             `json:"namespace"`
	Name       string             `json:"name"`
	Target     Target             `json:"target"`
	UpdateMode string             `json:"updateMode"`
	Decisions  []VerticalDecision `json:"decisions"`
	Conditions []Condition        `json:"conditions"`
}

// VerticalDecision is the decision on one resource of one container; amounts are Kubernetes quantities.
type VerticalDecision struct {
	Container string `json:"container"`
	Resource  string `json:"resource"`
	// Action is Raise, Lower, Hold or None.
	Action    string `json:"action"`
	Estimator string `json:"estimator,omitempty"`
	Current   string `json:"current,omitempty"`
	Target    string `json:"target,omitempty"`
	Message   string `json:"message,omitempty"`
}

// Forecast is the answer of PathForecast: history and forecast of each metric of an autoscaler.
type Forecast struct {
	Origin
	Metrics []ForecastMetric `json:"metrics"`
	// Replicas are the replicas of the target (replicas), those that the metrics alone request (replicasAlone), and those that the forecast
	// requests (replicasForecast), within the bounds of the autoscaler.
	Replicas []Series `json:"replicas,omitempty"`
	// Marks are the next start and end of each schedule.
	Marks []Mark `json:"marks,omitempty"`
}

// ForecastMetric is one metric of a TimeSeriesPrediction. Series have the kinds usage, forecast (what craned published), forecastLow and
// forecastHigh (the 50 % and 95 % quantiles, computed by the dashboard from the same history).
type ForecastMetric struct {
	Name      string   `json:"name"`
	Algorithm string   `json:"algorithm"`
	Ready     bool     `json:"ready"`
	Reason    string   `json:"reason,omitempty"`
	Skill     *float64 `json:"skill,omitempty"`
	// Used is true if the forecast scales the target now; Unused is the reason why it does not.
	Used   bool     `json:"used"`
	Unused string   `json:"unused,omitempty"`
	Series []Series `json:"series"`
}

// NodeList is the answer of PathNodes.
type NodeList struct {
	Origin
	Currency string `json:"currency"`
	Nodes    []Node `json:"nodes"`
	// Targets are the water marks of the load policy, by metric name (cpu_usage_avg_5m), as shares.
	WaterMarks map[string]float64 `json:"waterMarks,omitempty"`
}

// Node is one node. Loads are shares of the allocatable capacity.
type Node struct {
	Name          string   `json:"name"`
	Pool          string   `json:"pool,omitempty"`
	Ready         bool     `json:"ready"`
	Unschedulable bool     `json:"unschedulable,omitempty"`
	CPUMilli      int64    `json:"cpuMilli"`
	MemoryBytes   int64    `json:"memoryBytes"`
	CPURequested  int64    `json:"cpuRequestedMilli"`
	MemRequested  int64    `json:"memoryRequestedBytes"`
	Pods          int      `json:"pods"`
	PricePerMonth *float64 `json:"pricePerMonth,omitempty"`
	// Loads are the load annotations, by metric name: cpu_usage_avg_5m, mem_usage_max_avg_1h, ...; stale ones are left out.
	Loads map[string]float64 `json:"loads,omitempty"`
	// LoadAt is the time of the oldest load; HotValue is node_hot_value.
	LoadAt   int64    `json:"loadAt,omitempty"`
	HotValue *float64 `json:"hotValue,omitempty"`
	// Above are the water marks that are exceeded. Taints and Conditions are those of Crane.
	Above      []string    `json:"above,omitempty"`
	Taints     []string    `json:"taints,omitempty"`
	Conditions []Condition `json:"conditions,omitempty"`
	Zones      []Zone      `json:"zones,omitempty"`
	// Events are the last actions of the agent, newest first.
	Events []Mark `json:"events,omitempty"`
}

// Zone is one NUMA zone.
type Zone struct {
	Name              string `json:"name"`
	CPUMilli          int64  `json:"cpuMilli"`
	CPUAllocatedMilli *int64 `json:"cpuAllocatedMilli,omitempty"`
	MemoryBytes       int64  `json:"memoryBytes,omitempty"`
	// Pods are those with CPUs of their own in the zone.
	Pods []string `json:"pods,omitempty"`
}

// Cost is the answer of PathCost. For each measure, rows plus idle are the price of the nodes, if the user may read all of them.
type Cost struct {
	Origin
	Currency string    `json:"currency"`
	By       string    `json:"by"`
	Rows     []CostRow `json:"rows"`
	// Cluster, Idle and Used are absent without the right to list nodes and pods of the cluster.
	ClusterPerMonth *float64   `json:"clusterPerMonth,omitempty"`
	Idle            *CostShare `json:"idle,omitempty"`
	// LabelKeys are the most frequent keys of labels of workloads, of costs by label.
	LabelKeys []string `json:"labelKeys,omitempty"`
	// WithUsage is false without a Prometheus: usage is unknown.
	WithUsage bool `json:"withUsage"`
}

// CostRow is the cost of one group.
type CostRow struct {
	// Name is the namespace, workload (namespace/Kind/name), node, pool or label value.
	Name string `json:"name"`
	Pods int    `json:"pods"`
	CostShare
}

// CostShare is a cost by three measures: requests, usage (null if unknown) and the larger of both for each resource.
type CostShare struct {
	RequestPerMonth float64  `json:"requestPerMonth"`
	UsagePerMonth   *float64 `json:"usagePerMonth,omitempty"`
	MaxPerMonth     float64  `json:"maxPerMonth"`
}

// RuleList is the answer of PathRules.
type RuleList struct {
	Origin
	Rules []Rule `json:"rules"`
	// Recommenders are the names for a new rule.
	Recommenders []string `json:"recommenders"`
}

// Rule is one RecommendationRule.
type Rule struct {
	Name         string      `json:"name"`
	Recommenders []string    `json:"recommenders"`
	Interval     string      `json:"interval,omitempty"`
	Namespaces   []string    `json:"namespaces,omitempty"` // absent for all
	Kinds        []string    `json:"kinds"`
	Targets      *int64      `json:"targets,omitempty"`
	RunNumber    int64       `json:"runNumber"`
	LastRun      int64       `json:"lastRun,omitempty"`
	Conditions   []Condition `json:"conditions"`
	YAML         string      `json:"yaml"`
}

// RuleRequest is the body of a POST to PathRules.
type RuleRequest struct {
	// YAML is a RecommendationRule.
	YAML string `json:"yaml"`
	// DryRun validates the rule on the API server and answers with what it would select; nothing is stored.
	DryRun bool `json:"dryRun"`
}

// RuleResult is the answer of a POST to PathRules.
type RuleResult struct {
	Created bool   `json:"created"`
	Name    string `json:"name"`
	// Selected is the number of objects that the rule selects, Targets the first 200 of them that the user may read.
	Selected int      `json:"selected"`
	Targets  []Target `json:"targets,omitempty"`
	// Rows are what a dry run would recommend: the Recommendations that exist for the targets, and what the dashboard computes from the
	// history for the first others; absent without a history.
	Rows []Row `json:"rows,omitempty"`
	// Recommenders are those of the rule.
	Recommenders []string `json:"recommenders,omitempty"`
	// Warnings are those of the API server.
	Warnings []string `json:"warnings,omitempty"`
}
