// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package clusterseries converts the state of simulated nodes and of the API server to the series that cAdvisor,
// kube-state-metrics and node-exporter expose, with the same names and labels: live as samples, and as a history of the
// past that the pods of the playground never had.
//
// It is independent of how series are stored (internal/testbed/promserver). Its output differs from that of the
// exporters as follows:
//
//   - node_cpu_seconds_total has at most 32 CPUs per node; on a larger node the shares of time are right, the number of
//     CPUs is not.
//   - The simulation has one memory figure: rss, inactive cache and usage are fixed shares of the part that is not
//     active page cache.
//   - Network bytes are CPU seconds times a factor of the workload.
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

// Objects are the objects that kube-state-metrics watches. They are not modified.
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

// Snapshot is the input of the exporters at one time.
type Snapshot struct {
	At         time.Time
	Objects    Objects
	Containers []kubelet.ContainerState
	Nodes      []kubelet.NodeState
}

// Exporter converts snapshots to samples. Live counters continue where those of the history ended. Its methods may be
// called from several goroutines.
type Exporter struct {
	load *load.Source

	mu sync.Mutex
	// backfilled contains the pods that have a history, by UID.
	backfilled map[types.UID]*backfilledPod
	runs       map[runKey]*run
	pods       map[types.UID]*podTotals
	nodes      map[string]*nodeTotals
}

// New returns an exporter. The source maps pods to workloads and computes their past use.
func New(source *load.Source) *Exporter {
	return &Exporter{
		load:       source,
		backfilled: map[types.UID]*backfilledPod{},
		runs:       map[runKey]*run{},
		pods:       map[types.UID]*podTotals{},
		nodes:      map[string]*nodeTotals{},
	}
}

// backfilledPod is the state of a running pod at the end of its history.
type backfilledPod struct {
	born time.Time
	// end is the time at which the history ends and totals were taken.
	end        time.Time
	totals     podTotals
	containers map[string]*pastContainer
}

// pastContainer is the state of a container at the end of its history.
type pastContainer struct {
	restarts int32
	last     time.Time // the last restart; zero without restarts
	started  time.Time // the start of the current run
	counters counters
}

// counters are the counters of a container's cgroup, which start at zero with each run.
type counters struct{ cpu, periods, throttled, throttledSeconds float64 }

// podTotals are the counters of a pod, which restarts of its containers do not reset.
type podTotals struct{ cpu, received, sent float64 }

// nodeTotals are the counters of a node.
type nodeTotals struct {
	// since is the time at which the counters started, until the end of the history; busy are the core seconds of the
	// node's pods up to then.
	since, until time.Time
	busy         float64
	// offset is added to the live counter after attached is set.
	offset   float64
	attached bool
}

// runKey identifies the container whose current run is tracked.
type runKey struct {
	pod       types.UID
	container string
}

// run tracks the live counters of a container.
type run struct {
	startedAt time.Time
	offset    counters
	started   time.Time // as exported
	cpu       float64   // the last exported CPU counter
}
