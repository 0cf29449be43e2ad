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
	// transfersForRules is how often it is read what pods do to disks where a rule wants to know: as often as it is learnt what is usual.
	transfersForRules = 5 * time.Second
	// transfersForMetrics is how often where it is only shown: as often as metrics are scraped.
	transfersForMetrics = 15 * time.Second
)

// TransferInterval is how often it has to be read what pods do to disks, for some rules and for those who are shown it; 0 for never.
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

// addTransfers are what a pod does to disks, as of the sample.
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
