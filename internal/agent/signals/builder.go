// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package signals

import (
	"math"
	"time"

	ensurancev1alpha1 "crane.io/crane/api/ensurance/v1alpha1"
	"crane.io/crane/internal/agent/host"
	"crane.io/crane/internal/agent/host/cgroup"
	"crane.io/crane/internal/agent/inventory"
	"crane.io/crane/internal/agent/observe"
	"crane.io/crane/pkg/qos"
	"crane.io/crane/pkg/units"
)

// SignalBuilder builds observations and reuses its memory. It is not safe for concurrent use; the zero value is ready.
type SignalBuilder struct {
	observation     qos.Observation
	labels          map[string]map[string]string // of series, by object
	usedLabels      map[string]bool
	containerBuffer []qos.Container // of all pods of an observation
	zoneLabelCache  map[int]map[string]string
}

// Build returns the observation of a snapshot, valid until the next call. avoided reports that new pods are kept away.
func (s *SignalBuilder) Build(snapshot *observe.Snapshot, pods inventory.Pods, avoided bool) *qos.Observation {
	if s.observation.Samples == nil {
		s.observation.Samples = map[string][]qos.Sample{}
		s.labels = map[string]map[string]string{}
		s.usedLabels = map[string]bool{}
	}

	for name, list := range s.observation.Samples {
		s.observation.Samples[name] = list[:0]
	}

	clear(s.usedLabels)
	s.observation.At = snapshot.At
	s.addNode(snapshot)
	s.observation.Node.Avoided = avoided
	s.addDevices(snapshot)
	s.addPods(snapshot, pods)

	for key := range s.labels {
		if !s.usedLabels[key] {
			delete(s.labels, key)
		}
	}

	return &s.observation
}

func (s *SignalBuilder) add(name string, value float64, labels map[string]string) {
	s.addAt(s.observation.At, name, value, labels)
}

func (s *SignalBuilder) addAt(at time.Time, name string, value float64, labels map[string]string) {
	s.observation.Samples[name] = append(s.observation.Samples[name], qos.Sample{Value: value, At: at, Labels: labels})
}

func (s *SignalBuilder) addNode(snapshot *observe.Snapshot) {
	n := &snapshot.Node
	out := &s.observation.Node
	*out = qos.Node{DiskUsageUnavailable: n.DiskIOUnsupported, DiskUsagePartial: n.DiskIOPartial}

	// A value that was not measured has no sample, so that rules on it are unknown and do not fire.
	if n.CPUs.OK {
		out.CPUs = units.MilliCPU(1000 * n.CPUs.Value)
		s.add(ensurancev1alpha1.MetricCPUCoreNumbers, float64(n.CPUs.Value), nil)
	}

	if n.UsedCPU.OK && n.CPUs.OK {
		used := float64(n.UsedCPU.Value)
		share := used / float64(out.CPUs)
		out.UsedCPU = qos.Measurement[units.MilliCPU]{Value: n.UsedCPU.Value, At: s.observation.At}
		s.add(ensurancev1alpha1.MetricCPUTotalUsage, used, nil)
		s.add(ensurancev1alpha1.MetricCPUTotalUtilization, 100*share, nil)
		s.add("node_cpu_usage_cores", used/1000, nil)
		s.add("node_cpu_usage_ratio", share, nil)
	}

	if n.Memory.OK {
		total := n.Memory.Value.Total
		used := total - n.Memory.Value.Available
		out.Memory = total
		out.UsedMemory = qos.Measurement[units.Bytes]{Value: used, At: s.observation.At}
		s.add(ensurancev1alpha1.MetricMemoryTotal, float64(total), nil)
		s.add(ensurancev1alpha1.MetricMemoryTotalUsage, float64(used), nil)
		s.add(ensurancev1alpha1.MetricMemoryTotalUtilization, 100*float64(used)/float64(total), nil)
		s.add("node_memory_usage_bytes", float64(used), nil)
		s.add("node_memory_usage_ratio", float64(used)/float64(total), nil)
	}

	if n.Load.OK {
		s.add(ensurancev1alpha1.MetricCPULoad1Min, n.Load.Value[0], nil)
		s.add(ensurancev1alpha1.MetricCPULoad5Min, n.Load.Value[1], nil)
		s.add(ensurancev1alpha1.MetricCPULoad15Min, n.Load.Value[2], nil)
	}

	n.Pressure.Each(func(resource string, p host.Pressure) { s.addPressure(nodePressures[resource], p, nil) })
	if n.ExclusiveIdle.OK {
		s.add(ensurancev1alpha1.MetricExclusiveCPUIdle, float64(n.ExclusiveIdle.Value), nil)
	}

	for i := range n.Zones {
		if z := &n.Zones[i]; z.Memory.OK && z.Memory.Value.Total > 0 {
			used := float64(z.Memory.Value.Used())
			labels := s.zoneLabels(z.ID)
			s.add("node_numa_memory_usage_bytes", used, labels)
			s.add("node_numa_memory_usage_ratio", used/float64(z.Memory.Value.Total), labels)
		}
	}
}

// pressureNames are the metrics of a pressure file.
type pressureNames struct{ some10, some60, full10, full60 string }

var nodePressures = map[string]pressureNames{
	"cpu": newPressureNames("node", "cpu"), "memory": newPressureNames("node", "memory"), "io": newPressureNames("node", "io"),
}

var podPressures = map[string]pressureNames{
	"cpu": newPressureNames("pod", "cpu"), "memory": newPressureNames("pod", "memory"), "io": newPressureNames("pod", "io"),
}

func newPressureNames(prefix, resource string) pressureNames {
	stem := prefix + "_pressure_" + resource
	return pressureNames{stem + "_some_avg10_ratio", stem + "_some_avg60_ratio", stem + "_full_avg10_ratio", stem + "_full_avg60_ratio"}
}

func (s *SignalBuilder) addPressure(names pressureNames, p host.Pressure, labels map[string]string) {
	const percent = 100
	s.add(names.some10, p.Some.Avg10/percent, labels)
	s.add(names.some60, p.Some.Avg60/percent, labels)
	s.add(names.full10, p.Full.Avg10/percent, labels)
	s.add(names.full60, p.Full.Avg60/percent, labels)
}

func (s *SignalBuilder) addDevices(snapshot *observe.Snapshot) {
	const kibi = 1024
	const kilobit = 1000.0 / 8

	for i := range snapshot.Disks {
		d := &snapshot.Disks[i]
		if !d.Rate.OK {
			continue
		}

		r := d.Rate.Value
		labels := s.deviceLabels("disk "+d.Name, ensurancev1alpha1.LabelMetricDiskName, d.Name)
		s.add(ensurancev1alpha1.MetricDiskReadKiBps, r.ReadBytes/kibi, labels)
		s.add(ensurancev1alpha1.MetricDiskWriteKiBps, r.WriteBytes/kibi, labels)
		s.add(ensurancev1alpha1.MetricDiskReadIOPS, r.Reads, labels)

		s.add(ensurancev1alpha1.MetricDiskReadUtilization, 100*float64(r.Busy), labels)
		s.add("node_disk_read_bytes_per_second", r.ReadBytes, labels)
		s.add("node_disk_write_bytes_per_second", r.WriteBytes, labels)
		s.add("node_disk_reads_per_second", r.Reads, labels)
		s.add("node_disk_writes_per_second", r.Writes, labels)
		s.add("node_disk_busy_ratio", float64(r.Busy), labels)
	}

	for i := range snapshot.Interfaces {
		f := &snapshot.Interfaces[i]
		if !f.Rate.OK {
			continue
		}

		r := f.Rate.Value
		labels := s.deviceLabels("interface "+f.Name, ensurancev1alpha1.LabelMetricNetInterface, f.Name)
		s.add(ensurancev1alpha1.MetricNetworkReceiveKiBps, r.ReceivedBytes/kilobit, labels)
		s.add(ensurancev1alpha1.MetricNetworkSentKiBps, r.SentBytes/kilobit, labels)
		s.add(ensurancev1alpha1.MetricNetworkReceivePackets, r.ReceivedPackets, labels)
		s.add(ensurancev1alpha1.MetricNetworkSentPackets, r.SentPackets, labels)
		s.add(ensurancev1alpha1.MetricNetworkDropIn, r.DroppedIn, labels)
		s.add(ensurancev1alpha1.MetricNetworkDropOut, r.DroppedOut, labels)
		s.add("node_network_receive_bytes_per_second", r.ReceivedBytes, labels)
		s.add("node_network_transmit_bytes_per_second", r.SentBytes, labels)
	}
}

// deviceLabels returns the cached labels of a device.
func (s *SignalBuilder) deviceLabels(key, name, value string) map[string]string {
	s.usedLabels[key] = true
	if s.labels[key] == nil {
		s.labels[key] = map[string]string{name: value}
	}

	return s.labels[key]
}

func (s *SignalBuilder) addPods(snapshot *observe.Snapshot, pods inventory.Pods) {
	s.observation.Pods = s.observation.Pods[:0]
	s.containerBuffer = s.containerBuffer[:0]

	var elasticCPU, elasticMemory float64
	anyElastic := false
	for i := range snapshot.Pods {
		measured := &snapshot.Pods[i]
		pod, isKnown := pods.Find(measured.UID)
		// Pods of cgroups that the cluster does not know count with their use, and nothing is done to them.
		if !isKnown {
			pod.Class = qos.Class(measured.Class)
		}

		if measured.UsedCPU.OK {
			pod.UsedCPU = qos.Measurement[units.MilliCPU]{Value: measured.UsedCPU.Value, At: s.observation.At}
		}
		if measured.Memory.OK {
			pod.UsedMemory = qos.Measurement[units.Bytes]{Value: measured.Memory.Value.Unreclaimable(), At: s.observation.At}
		}

		if pod.Elastic {
			anyElastic = true
			elasticCPU += float64(pod.UsedCPU.Value) / 1000
			elasticMemory += float64(measured.Memory.Value.WorkingSet)
		}

		labels := s.podLabels(&pod, "", "")
		pod.Labels = labels
		pod.ExclusiveCPUs = measured.HasExclusiveCPUs
		s.addTransfers(&pod, measured)

		if c := measured.Cycles; c.OK {
			s.addAt(c.Value.At, "pod_cycles_per_instruction", c.Value.PerInstruction, labels)
		}

		s.setStalls(&pod, measured)
		s.addUse(&measured.Use, labels)
		measured.Pressure.Each(func(resource string, p host.Pressure) { s.addPressure(podPressures[resource], p, labels) })
		pod.Containers = s.buildContainers(measured, &pod, pods)
		s.addPodTotals(&pod, measured)
		s.observation.Pods = append(s.observation.Pods, pod)
	}

	allocated := pods.Distributed()
	if allocated.CPU != nil {
		s.add(ensurancev1alpha1.MetricExtCPUTotalDistribute, 100*float64(*allocated.CPU), nil)
		s.add("node_elastic_cpu_distributed_ratio", float64(*allocated.CPU), nil)
	}

	if allocated.Memory != nil {
		s.add("node_elastic_memory_distributed_ratio", float64(*allocated.Memory), nil)
	}

	if anyElastic {
		s.add(ensurancev1alpha1.MetricExtResContainerCPUTotalUsage, elasticCPU, nil)
		s.add(ensurancev1alpha1.MetricExtResContainerMemTotalUsage, elasticMemory, nil)
	}
}

// setStalls sets how long the pod waits and the part caused by its own limits.
func (s *SignalBuilder) setStalls(pod *qos.Pod, seen *observe.Pod) {
	measured := func(k observe.Known[units.Ratio]) (m qos.Measurement[units.Ratio]) {
		if k.OK {
			m = qos.Measurement[units.Ratio]{Value: k.Value, At: s.observation.At}
		}

		return m
	}

	pod.StalledCPU = measured(seen.StallShares.CPU)
	pod.StalledMemory = measured(seen.StallShares.Memory)
	pod.StalledDisks = measured(seen.StallShares.IO)
	if q := seen.RunQueue(); q.OK && !seen.Pressure.CPU.OK {
		// Without pressure the waiting time of threads is used: one thread that always waits is a pod that does.
		pod.StalledCPU = qos.Measurement[units.Ratio]{Value: units.Ratio(min(q.Value.Waiting, 1)), At: q.Value.At}
	}

	throttled := seen.Throttled
	for i := range seen.Containers {
		if c := seen.Containers[i].Throttled; c.OK && (!throttled.OK || c.Value > throttled.Value) {
			throttled = c
		}
	}

	pod.Throttled = measured(throttled)
}

// buildContainers returns the containers known to the cluster, without the sandbox.
func (s *SignalBuilder) buildContainers(measured *observe.Pod, pod *qos.Pod, pods inventory.Pods) []qos.Container {
	start := len(s.containerBuffer)
	for i := range measured.Containers {
		c := &measured.Containers[i]
		container, ok := pods.Container(measured.UID, c.ID)
		if !ok {
			continue
		}

		if c.Limit.OK {
			container.Quota = QuotaOf(c.Limit.Value)
			container.MinQuota = leastQuota(c.Limit.Value.Period)
		}
		if c.UsedCPU.OK {
			container.UsedCPU = qos.Measurement[units.MilliCPU]{Value: c.UsedCPU.Value, At: s.observation.At}
		}

		if c.Memory.OK {
			container.MemoryUsage = qos.Measurement[units.Bytes]{Value: c.Memory.Value.Used, At: s.observation.At}
			container.WorkingSet = qos.Measurement[units.Bytes]{Value: c.Memory.Value.WorkingSet, At: s.observation.At}
		}

		if c.High.OK {
			container.MemoryHigh = qos.MemoryHigh(c.High.Value)
		}

		s.containerBuffer = append(s.containerBuffer, container)
		labels := s.podLabels(pod, c.ID, container.Name)
		s.addUse(&c.Use, labels)
		s.add(ensurancev1alpha1.MetricContainerCPULimit, cpuShares(container.Request), labels)

		if c.RunQueue.OK {
			s.addRunQueue(c.RunQueue.Value, labels)
		}
	}

	// The capacity is cut, so that a later append of another pod's containers never overwrites these.
	return s.containerBuffer[start:len(s.containerBuffer):len(s.containerBuffer)]
}

// QuotaOf converts a limit to millicores, at least one.
func QuotaOf(b cgroup.Bandwidth) qos.Quota {
	if b.Unlimited() {
		return qos.Unlimited
	}

	return max(qos.Quota(1000*b.Cores()+0.5), 1)
}

// leastQuota returns the least quota that the kernel accepts in a period: 1 ms, a tenth of a core in a period of 10 ms.
func leastQuota(period time.Duration) units.MilliCPU {
	if period <= 0 {
		return 0
	}

	return units.MilliCPU(math.Ceil(1000 * float64(cgroup.MinQuota) / float64(period)))
}

func (s *SignalBuilder) addUse(u *observe.Use, labels map[string]string) {
	if u.UsedCPU.OK {
		s.add(ensurancev1alpha1.MetricContainerCPUTotalUsage, float64(u.UsedCPU.Value)/1000, labels)
	}
	if u.Memory.OK {
		s.add(ensurancev1alpha1.MetricContainerMemTotalUsage, float64(u.Memory.Value.WorkingSet), labels)
	}
	if u.Throttled.OK {
		s.add("container_cpu_throttled_ratio", float64(u.Throttled.Value), labels)
	}

	if u.Limit.OK {
		b := u.Limit.Value
		quota := -1.0
		if !b.Unlimited() {
			quota = float64(b.Quota) / float64(time.Microsecond)
		}

		s.add(ensurancev1alpha1.MetricContainerCPUQuota, quota, labels)
		s.add(ensurancev1alpha1.MetricContainerCPUPeriod, float64(b.Period)/float64(time.Microsecond), labels)
	}
}

func (s *SignalBuilder) podLabels(p *qos.Pod, id, container string) map[string]string {
	key := p.UID + id
	s.usedLabels[key] = true
	if l := s.labels[key]; l != nil && l[ensurancev1alpha1.LabelMetricPodName] == p.Name && (l[ensurancev1alpha1.LabelMetricHasExtRes] == "true") == p.Elastic {
		return l
	}

	elastic := "false"
	if p.Elastic {
		elastic = "true"
	}

	s.labels[key] = map[string]string{
		ensurancev1alpha1.LabelMetricPodName: p.Name, ensurancev1alpha1.LabelMetricPodNamespace: p.Namespace, ensurancev1alpha1.LabelMetricPodUID: p.UID,
		ensurancev1alpha1.LabelMetricContainerName: container, ensurancev1alpha1.LabelMetricContainerID: id,
		ensurancev1alpha1.LabelMetricHasExtRes: elastic,
	}

	return s.labels[key]
}
