// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package signals

import (
	"slices"
	"time"

	"crane.io/crane/internal/agent/observe"
	"crane.io/crane/pkg/qos"
)

const (
	// transfersForRules is the interval for rules on disk use, that of learning baselines.
	transfersForRules = 5 * time.Second
	// transfersForMetrics is the interval for exported metrics, that of scrapes.
	transfersForMetrics = 15 * time.Second
)

// TransferInterval returns the interval at which the disk use of pods is read for the rules and, if exported, for metrics; 0 for never.
func TransferInterval(rules []qos.Rule, shown bool) time.Duration {
	if slices.ContainsFunc(rules, func(r qos.Rule) bool {
		_, ok := qos.Lookup(r.Metric)
		return ok && r.NeedsPodDiskUsage()
	}) {
		return transfersForRules
	}
	if shown {
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
	pod.DiskRates = qos.DiskRates{Reads: t.Reads, Writes: t.Writes, ReadBytes: t.ReadBytes, WriteBytes: t.WriteBytes}
	pod.UsedDisks = qos.Measurement[qos.DiskWork]{Value: pod.DiskRates.Work(), At: t.At}
	s.addAt(t.At, "pod_disk_read_bytes_per_second", t.ReadBytes, pod.Labels)
	s.addAt(t.At, "pod_disk_write_bytes_per_second", t.WriteBytes, pod.Labels)
	s.addAt(t.At, "pod_disk_reads_per_second", t.Reads, pod.Labels)
	s.addAt(t.At, "pod_disk_writes_per_second", t.Writes, pod.Labels)
}
