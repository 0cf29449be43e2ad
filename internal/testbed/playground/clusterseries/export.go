// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package clusterseries turns what the simulated nodes and the API server hold into the series that cAdvisor, kube-state-metrics
// and node-exporter would expose, under their names and with their labels: live as samples, and backwards as a history.
//
// What belongs in: names, labels and arithmetic of those series, and the past that the pods of the playground never had.
// It must not know how series are stored (internal/testbed/promserver) beyond their types, where objects come from, or who reads
// the series. What the exporters would say of a container and what this package says differ in this only:
//
//   - node_cpu_seconds_total has at most 32 CPUs on a node; on a larger one shares of time are right, their count is not.
//   - memory is one figure in the simulation: rss, inactive cache and usage are fixed shares of what of it is not page cache.
//   - bytes of the network are CPU seconds times a factor of the workload.
package clusterseries

import (
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"crane.io/crane/internal/testbed/playground/load"
	"crane.io/crane/internal/testbed/simnode/kubelet"
)

// Objects is what kube-state-metrics would watch. Nothing in it is changed.
type Objects struct {
	Pods         []*corev1.Pod
	Nodes        []*corev1.Node
	Deployments  []*appsv1.Deployment
	ReplicaSets  []*appsv1.ReplicaSet
	StatefulSets []*appsv1.StatefulSet
	DaemonSets   []*appsv1.DaemonSet
	Jobs         []*batchv1.Job
	CronJobs     []*batchv1.CronJob
	Autoscalers  []*autoscalingv2.HorizontalPodAutoscaler
}

// Snapshot is all that is exported at one time.
type Snapshot struct {
	At         time.Time
	Objects    Objects
	Containers []kubelet.ContainerState
	Nodes      []kubelet.NodeState
}

// Exporter turns snapshots into samples. It remembers where the counters of the history ended, so that the live ones go
// on from there. Its methods may be called from several goroutines.
type Exporter struct {
	load *load.Source

	mu sync.Mutex
	// adopted are the pods that have a past, by UID.
	adopted map[types.UID]*adopted
	runs    map[runKey]*run
	pods    map[types.UID]*podTotals
	nodes   map[string]*nodeTotals
}

// New makes an exporter. The source names the workloads of pods and gives their past.
func New(source *load.Source) *Exporter {
	return &Exporter{
		load: source, adopted: map[types.UID]*adopted{}, runs: map[runKey]*run{},
		pods: map[types.UID]*podTotals{}, nodes: map[string]*nodeTotals{},
	}
}

// adopted is what the history says of a pod that lives on.
type adopted struct {
	born time.Time
	// end is when the history ends; the totals are those of then.
	end        time.Time
	totals     podTotals
	containers map[string]*pastContainer
}

// pastContainer is the state of one container where its history ends.
type pastContainer struct {
	restarts int32
	last     time.Time // the last restart; zero where there was none
	started  time.Time // the start of the run that goes on
	counters counters
}

// counters are those of a container's cgroup, which begin at zero with each run.
type counters struct{ cpu, periods, throttled, throttledSeconds float64 }

// podTotals are counters of a whole pod; the end of one of its containers does not reset them.
type podTotals struct{ cpu, received, sent float64 }

// nodeTotals are the counters of a node.
type nodeTotals struct {
	// since is when they began, until when the history ends; busy are the core seconds of its pods until then.
	since, until time.Time
	busy         float64
	// offset is added to the live counter once attached.
	offset   float64
	attached bool
}

// runKey names one run of a container.
type runKey struct {
	pod       types.UID
	container string
}

// run follows the live counters of a container.
type run struct {
	startedAt time.Time
	offset    counters
	started   time.Time // as exported
	cpu       float64   // the last exported CPU counter
}
