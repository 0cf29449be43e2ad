// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package simscenario defines scenario files of scheduling simulations: fields with units, ranges and defaults, and
// their validation. Package simcluster generates the cluster. It does not depend on the scheduler.
package simscenario

import (
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Scenario is one scenario file.
type Scenario struct {
	// Name by which `--scenario` finds it.
	Name string `json:"name"`
	// Description is one sentence for reports.
	Description string `json:"description"`

	Nodes     Nodes     `json:"nodes"`
	Load      Load      `json:"load"`
	Workloads Workloads `json:"workloads"`
	Time      Time      `json:"time"`
	Metrics   Metrics   `json:"metrics"`
	Scheduler Scheduler `json:"scheduler"`
	// Trace takes nodes and pods from the CSV files of a cluster; absent where they are drawn.
	Trace *Trace `json:"trace,omitempty"`
}

// Nodes is the number of nodes and their shapes.
type Nodes struct {
	// Count from 2 to 20,000. `--nodes` replaces it.
	Count int `json:"count"`
	// Shapes of nodes; each node has one of them, in proportion to their weights.
	Shapes []NodeShape `json:"shapes,omitempty"`
}

// NodeShape is the size of a node.
type NodeShape struct {
	CPU    resource.Quantity `json:"cpu"`
	Memory resource.Quantity `json:"memory"`
	Weight float64           `json:"weight"`
}

// Load is the average load of the cluster. Both are shares of all nodes' CPU.
type Load struct {
	// Requested is the sum of the requests of running pods, above 0, up to 0.95.
	Requested float64 `json:"requested"`
	// Used is the mean true use, above 0, up to 0.9. Use per request is scaled to it.
	Used float64 `json:"used"`
}

// Workloads describes the workloads. The pods of one differ by a spread alone.
type Workloads struct {
	// Count of different workloads, from 1 to 10,000.
	Count int `json:"count"`
	// Requests of a pod; each workload has one of them, in proportion to their weights.
	Requests []PodShape `json:"requests,omitempty"`
	// UsePerRequest is the distribution over workloads of true CPU use per request, lognormal.
	UsePerRequest Uneven `json:"usePerRequest"`
	// PodSpread is the standard deviation of the logarithm of a pod's use around its workload's, from 0 to 2.
	PodSpread float64 `json:"podSpread"`
	// MemoryPerRequest is the mean true use of memory per request, above 0, up to 1.
	MemoryPerRequest float64 `json:"memoryPerRequest"`
	// Noise is how a pod's use moves around its mean.
	Noise Noise `json:"noise"`
	// Diurnal is the part that follows the time of day.
	Diurnal Diurnal `json:"diurnal"`
	// Lifetime of pods, lognormal.
	Lifetime Lifetime `json:"lifetime"`
	// Batch is the mean number of pods of one workload that are created at once, geometric, from 1 to 1,000.
	Batch float64 `json:"batch"`
	// Startup is how long a pod takes from its placement to its first use.
	Startup metav1.Duration `json:"startup"`
}

// PodShape is what a pod requests.
type PodShape struct {
	CPU    resource.Quantity `json:"cpu"`
	Memory resource.Quantity `json:"memory"`
	Weight float64           `json:"weight"`
}

// Uneven is a lognormal distribution whose mean the load fixes.
type Uneven struct {
	// Sigma is the standard deviation of the logarithm, from 0 to 2.
	Sigma float64 `json:"sigma"`
	// Max is the largest value relative to the mean, more than 1.
	Max float64 `json:"max"`
}

// Noise moves a pod's use around its mean: smooth, with one independent value in each period.
type Noise struct {
	// Share of the mean by which it deviates (standard deviation), from 0 to 1.
	Share float64 `json:"share"`
	// Period between two independent values, at least 30 s.
	Period metav1.Duration `json:"period"`
}

// Diurnal is the daily cycle of some workloads.
type Diurnal struct {
	// Share of the workloads that follow it, from 0 to 1.
	Share float64 `json:"share"`
	// Amplitude relative to the mean, from 0 to 1.
	Amplitude float64 `json:"amplitude"`
	// Peak is the time of day at which use peaks.
	Peak metav1.Duration `json:"peak"`
	// Jitter is the standard deviation of the peak over workloads.
	Jitter metav1.Duration `json:"jitter"`
}

// Lifetime of pods.
type Lifetime struct {
	// Mean, at least one minute.
	Mean metav1.Duration `json:"mean"`
	// Sigma is the standard deviation of the logarithm, from 0 to 2.
	Sigma float64 `json:"sigma"`
}

// Time is the simulated and the measured time.
type Time struct {
	// Start is the time of day at which the simulation begins.
	Start metav1.Duration `json:"start"`
	// WarmUp is the time that is simulated and not measured.
	WarmUp metav1.Duration `json:"warmUp"`
	// Measure is the time that is measured, up to 72 h.
	Measure metav1.Duration `json:"measure"`
}

// Metrics describes how load is measured and how it reaches the scheduler.
type Metrics struct {
	// Scrape is the time between two samples of a node, from 5 s to 5 min.
	Scrape metav1.Duration `json:"scrape"`
	// Delay is the time from the reading of a metric until the scheduler sees it; it is included in the timestamp.
	Delay metav1.Duration `json:"delay"`
	// HiddenDelay is how late samples arrive, with the time of their measurement, as with a slow remote write.
	HiddenDelay metav1.Duration `json:"hiddenDelay"`
	// Loss is the share of samples that are lost, from 0 to 1.
	Loss float64 `json:"loss,omitempty"`
	// Broken is the share of nodes that never report, from 0 to 1.
	Broken float64 `json:"broken,omitempty"`
	// Dead is the share of nodes whose exporter stops at DeadFrom after the start, from 0 to 1.
	Dead     float64         `json:"dead,omitempty"`
	DeadFrom metav1.Duration `json:"deadFrom"`
	// Outages are times, from the start, in which nothing is measured.
	Outages []Outage `json:"outages,omitempty"`
	// ClockSkew is how far the clock of the writer is ahead of the scheduler's; negative when it is behind.
	ClockSkew metav1.Duration `json:"clockSkew"`
}

// Outage is a time without metrics.
type Outage struct {
	From metav1.Duration `json:"from"`
	For  metav1.Duration `json:"for"`
}

// Scheduler is what is set of the scheduler, for all policies alike.
type Scheduler struct {
	// PercentageOfNodesToScore as in KubeSchedulerConfiguration; 0 adapts to the number of nodes.
	PercentageOfNodesToScore int32 `json:"percentageOfNodesToScore,omitempty"`
}

// Trace reads nodes and pods from the CSV files of a cluster: creation, requests and deletion of each pod. Usage per
// request is drawn as in other scenarios, because the files do not have it.
type Trace struct {
	// Nodes is the name of a file in the folder of traces with columns sn, cpu_milli and memory_mib.
	Nodes string `json:"nodes"`
	// Pods is the name of a file with columns name, cpu_milli, memory_mib, creation_time and deletion_time (seconds).
	Pods string `json:"pods"`
	// From is the time of the trace with which the simulation begins. Pods that run then are there at once.
	From metav1.Duration `json:"from"`
	// Compress is by how much faster pods arrive than in the trace, at least 1. They live as long as they did.
	Compress float64 `json:"compress"`
}

// Length is what is simulated in all.
func (s *Scenario) Length() time.Duration { return s.Time.WarmUp.Duration + s.Time.Measure.Duration }
