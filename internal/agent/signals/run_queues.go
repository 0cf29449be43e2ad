// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package signals

import (
	"slices"
	"strconv"
	"time"

	ensurancev1alpha1 "crane.io/crane/api/ensurance/v1alpha1"
	topologyv1alpha1 "crane.io/crane/api/topology/v1alpha1"
	"crane.io/crane/internal/agent/observe"
	"crane.io/crane/pkg/qos"
	"crane.io/crane/pkg/series"
)

// labelZone is the label of NUMA metrics, such as node0, as in a NodeResourceTopology.
const labelZone = "numaNode"

// runQueueRatio is container_sched_run_queue_time in base units.
const runQueueRatio = "container_run_queue_wait_ratio"

// RunQueueSampling returns the containers whose run queues the rules need: all if a rule names their metrics, those without pressure if a
// rule uses interference.
func RunQueueSampling(rules []qos.Rule) observe.Sampling {
	names := func(metrics ...string) bool {
		return slices.ContainsFunc(rules, func(r qos.Rule) bool { return slices.Contains(metrics, r.Metric) })
	}
	switch {
	case names(ensurancev1alpha1.MetricContainerSchedRunQueueTime, runQueueRatio):
		return observe.Always
	case names(qos.InterferenceCPU):
		return observe.WithoutPressure
	}
	return observe.Never
}

func (s *SignalBuilder) addRunQueue(q observe.RunQueue, labels map[string]string) {
	s.addAt(q.At, ensurancev1alpha1.MetricContainerSchedRunQueueTime, q.Waiting*float64(time.Second/time.Microsecond), labels)
	s.addAt(q.At, runQueueRatio, q.Waiting, labels)
}

// addPodTotals adds the totals of a pod's containers.
func (s *SignalBuilder) addPodTotals(pod *qos.Pod, seen *observe.Pod) {
	if q := seen.RunQueue(); q.OK {
		s.addRunQueue(q.Value, pod.Labels)
	}
	if len(pod.Containers) == 0 {
		return
	}
	var request series.MilliCPU
	for i := range pod.Containers {
		request += pod.Containers[i].Request
	}
	s.add(ensurancev1alpha1.MetricContainerCPULimit, cpuShares(request), pod.Labels)
}

// cpuShares returns the CPU shares the kubelet requests (MilliCPUToShares of k8s.io/kubernetes/pkg/kubelet/cm). They are not read from
// cgroup v2, whose runtimes convert them to weights in two indistinguishable ways.
func cpuShares(request series.MilliCPU) float64 {
	const one, least, most = 1024, 2, 262144
	return min(max(float64(int64(request)*one/1000), least), most)
}

// zoneLabels returns the cached labels of a NUMA node.
func (s *SignalBuilder) zoneLabels(id int) map[string]string {
	if l, ok := s.zoneLabelCache[id]; ok {
		return l
	}
	if s.zoneLabelCache == nil {
		s.zoneLabelCache = map[int]map[string]string{}
	}
	s.zoneLabelCache[id] = map[string]string{labelZone: topologyv1alpha1.ZoneNamePrefix + strconv.Itoa(id)}
	return s.zoneLabelCache[id]
}
