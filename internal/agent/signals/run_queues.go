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
	"crane.io/crane/pkg/units"
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

	var request units.MilliCPU
	for i := range pod.Containers {
		request += pod.Containers[i].Request
	}
	s.add(ensurancev1alpha1.MetricContainerCPULimit, cpuShares(request), pod.Labels)
}

// cpuShares returns the CPU shares the kubelet requests (MilliCPUToShares of k8s.io/kubernetes/pkg/kubelet/cm). They are not read from
// cgroup v2, whose runtimes convert them to weights in two indistinguishable ways.
func cpuShares(request units.MilliCPU) float64 {
	const sharesPerCore = 1024
	const minShares = 2
	const maxShares = 262144

	return min(max(float64(int64(request)*sharesPerCore/1000), minShares), maxShares)
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

const (
	// transfersForRules is the interval for rules on disk use, that of learning baselines.
	transfersForRules = 5 * time.Second
	// transfersForMetrics is the interval for exported metrics, that of scrapes.
	transfersForMetrics = 15 * time.Second
)

// TransferInterval returns the interval at which the disk use of pods is read for the rules and, if exported, for metrics; 0 for never.
func TransferInterval(rules []qos.Rule, exported bool) time.Duration {
	if slices.ContainsFunc(rules, func(r qos.Rule) bool {
		_, ok := qos.Lookup(r.Metric)
		return ok && r.NeedsPodDiskUsage()
	}) {
		return transfersForRules
	}

	if exported {
		return transfersForMetrics
	}

	return 0
}

// addTransfers adds the last sample of a pod's disk use.
func (s *SignalBuilder) addTransfers(pod *qos.Pod, seen *observe.Pod) {
	if !seen.DiskIO.OK {
		return
	}

	t := &seen.DiskIO.Value
	pod.DiskRates = qos.DiskRates{
		Reads:      t.Reads,
		Writes:     t.Writes,
		ReadBytes:  t.ReadBytes,
		WriteBytes: t.WriteBytes,
	}

	pod.UsedDisks = qos.Measurement[qos.DiskWork]{Value: pod.DiskRates.Work(), At: t.At}
	s.addAt(t.At, "pod_disk_read_bytes_per_second", t.ReadBytes, pod.Labels)
	s.addAt(t.At, "pod_disk_write_bytes_per_second", t.WriteBytes, pod.Labels)
	s.addAt(t.At, "pod_disk_reads_per_second", t.Reads, pod.Labels)
	s.addAt(t.At, "pod_disk_writes_per_second", t.Writes, pod.Labels)
}
