// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeletapi

import (
	"bytes"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	corev1 "k8s.io/api/core/v1"

	"crane.io/crane/internal/testbed/simnode/kubelet"
)

type emitter = func(value float64, at time.Time, labels ...string)

// each calls f for every container that has been sampled.
func each(list []kubelet.ContainerState, f func(kubelet.ContainerState)) {
	for _, c := range list {
		if c.Use.Known {
			f(c)
		}
	}
}

// resourceMetrics returns the kubelet's resource metrics, which metrics-server reads.
func resourceMetrics(source Source) []byte {
	var e exposition
	state := source.State()
	list := source.Containers()

	if state.Use.Known {
		e.add("node_cpu_usage_seconds_total", "counter", "Cumulative cpu time consumed by the node in core-seconds", func(emit emitter) {
			emit(state.CPUSeconds, state.SampledAt)
		})
		e.add("node_memory_working_set_bytes", "gauge", "Current working set of the node in bytes", func(emit emitter) {
			emit(state.Use.Memory, state.SampledAt)
		})
	}

	// Names and help texts are those of the kubelet.
	perContainer := func(name, kind, help string, value func(kubelet.ContainerState) float64) {
		e.add(name, kind, help, func(emit emitter) {
			each(list, func(c kubelet.ContainerState) {
				emit(value(c), c.SampledAt, "container", c.Container, "namespace", c.Pod.Namespace, "pod", c.Pod.Name)
			})
		})
	}

	perContainer("container_cpu_usage_seconds_total", "counter", "Cumulative cpu time consumed by the container in core-seconds",
		func(c kubelet.ContainerState) float64 { return c.CPUSeconds })
	perContainer("container_memory_working_set_bytes", "gauge", "Current working set of the container in bytes",
		func(c kubelet.ContainerState) float64 { return c.Use.Memory })
	perContainer("container_start_time_seconds", "gauge", "Start time of the container since unix epoch in seconds",
		func(c kubelet.ContainerState) float64 { return seconds(c.StartedAt) })

	perPod := func(name, kind, help string, value func(kubelet.ContainerState) float64) {
		e.add(name, kind, help, func(emit emitter) {
			for _, g := range byPod(list) {
				sum := 0.0
				for _, c := range g {
					sum += value(c)
				}
				emit(sum, g[0].SampledAt, "namespace", g[0].Pod.Namespace, "pod", g[0].Pod.Name)
			}
		})
	}

	perPod("pod_cpu_usage_seconds_total", "counter", "Cumulative cpu time consumed by the pod in core-seconds",
		func(c kubelet.ContainerState) float64 { return c.CPUSeconds })
	perPod("pod_memory_working_set_bytes", "gauge", "Current working set of the pod in bytes",
		func(c kubelet.ContainerState) float64 { return c.Use.Memory })
	e.add("resource_scrape_error", "gauge", "1 if there was an error while getting container metrics, 0 otherwise", func(emit emitter) {
		emit(0, time.Time{})
	})

	return e.out.Bytes()
}

// byPod groups the sampled containers by pod, in order.
func byPod(list []kubelet.ContainerState) [][]kubelet.ContainerState {
	var groups [][]kubelet.ContainerState
	each(list, func(c kubelet.ContainerState) {
		if n := len(groups); n > 0 && groups[n-1][0].Pod.UID == c.Pod.UID {
			groups[n-1] = append(groups[n-1], c)
			return
		}

		groups = append(groups, []kubelet.ContainerState{c})
	})

	return groups
}

func seconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }

// cadvisorNames lists the container metrics of cAdvisor that rightsizing and dashboards read.
var cadvisorNames = [...]struct {
	name, kind, help string
	value            func(kubelet.ContainerState) (float64, bool)
}{
	{
		"container_cpu_usage_seconds_total", "counter", "Cumulative cpu time consumed in seconds.",
		func(c kubelet.ContainerState) (float64, bool) { return c.CPUSeconds, true },
	},
	{
		"container_cpu_cfs_periods_total", "counter", "Number of elapsed enforcement period intervals.",
		func(c kubelet.ContainerState) (float64, bool) {
			return float64(int64(c.Periods)), limited(c, corev1.ResourceCPU)
		},
	},
	{
		"container_cpu_cfs_throttled_periods_total", "counter", "Number of throttled period intervals.",
		func(c kubelet.ContainerState) (float64, bool) {
			return float64(int64(c.ThrottledPeriods)), limited(c, corev1.ResourceCPU)
		},
	},
	{
		"container_cpu_cfs_throttled_seconds_total", "counter", "Total time duration the container has been throttled.",
		func(c kubelet.ContainerState) (float64, bool) {
			return c.ThrottledSeconds, limited(c, corev1.ResourceCPU)
		},
	},
	{
		"container_memory_working_set_bytes", "gauge", "Current working set in bytes.",
		func(c kubelet.ContainerState) (float64, bool) { return c.Use.Memory, true },
	},
	{
		"container_memory_usage_bytes", "gauge", "Current memory usage in bytes, including all memory regardless of when it was accessed.",
		func(c kubelet.ContainerState) (float64, bool) { return c.Use.Memory, true },
	},
	{
		"container_memory_rss", "gauge", "Size of RSS in bytes.",
		func(c kubelet.ContainerState) (float64, bool) { return c.Use.Memory - c.Use.Cache, true },
	},
	{
		"container_memory_cache", "gauge", "Number of bytes of page cache memory.",
		func(c kubelet.ContainerState) (float64, bool) { return c.Use.Cache, true },
	},
	{
		"container_memory_total_active_file_bytes", "gauge", "Current total active file in bytes.",
		func(c kubelet.ContainerState) (float64, bool) { return c.Use.Cache, true },
	},
	{
		"container_oom_events_total", "counter", "Count of out of memory events observed for the container",
		func(c kubelet.ContainerState) (float64, bool) { return float64(c.OOMKills), true },
	},
	{
		"container_start_time_seconds", "gauge", "Start time of the container since unix epoch in seconds.",
		func(c kubelet.ContainerState) (float64, bool) { return seconds(c.StartedAt), true },
	},
	{
		"container_spec_cpu_period", "gauge", "CPU period of the container.",
		func(c kubelet.ContainerState) (float64, bool) { return 100000, limited(c, corev1.ResourceCPU) },
	},
	{
		"container_spec_cpu_quota", "gauge", "CPU quota of the container.",
		func(c kubelet.ContainerState) (float64, bool) {
			return float64(c.Resources.Limits.Cpu().MilliValue() * 100), limited(c, corev1.ResourceCPU)
		},
	},
	{
		"container_spec_cpu_shares", "gauge", "CPU share of the container.",
		func(c kubelet.ContainerState) (float64, bool) {
			return max(2, float64(c.Resources.Requests.Cpu().MilliValue()*1024/1000)), true
		},
	},
	{
		"container_spec_memory_limit_bytes", "gauge", "Memory limit for the container.",
		func(c kubelet.ContainerState) (float64, bool) {
			return float64(c.Resources.Limits.Memory().Value()), true
		},
	},
}

func limited(c kubelet.ContainerState, name corev1.ResourceName) bool {
	_, ok := c.Resources.Limits[name]
	return ok
}

// cadvisorMetrics returns container and machine metrics with cAdvisor's names and labels.
func cadvisorMetrics(source Source) []byte {
	var e exposition
	state := source.State()
	list := source.Containers()

	for _, m := range cadvisorNames {
		e.add(m.name, m.kind, m.help, func(emit emitter) {
			each(list, func(c kubelet.ContainerState) {
				value, ok := m.value(c)
				if !ok {
					return
				}

				_, id, _ := strings.Cut(c.ID, "://")
				emit(value, c.SampledAt, "container", c.Container, "id", cgroup(c.Pod, id), "image", c.Image, "name", id,
					"namespace", c.Pod.Namespace, "pod", c.Pod.Name)
			})
		})
	}

	e.add("machine_cpu_cores", "gauge", "Number of logical CPU cores.", func(emit emitter) {
		emit(state.Spec.CPU.AsApproximateFloat64(), time.Time{})
	})
	e.add("machine_memory_bytes", "gauge", "Amount of memory installed on the machine.", func(emit emitter) {
		emit(state.Spec.Memory.AsApproximateFloat64(), time.Time{})
	})

	return e.out.Bytes()
}

// cgroup returns the cgroup path of a container with the kubelet's systemd driver.
func cgroup(pod *corev1.Pod, id string) string {
	uid := strings.ReplaceAll(string(pod.UID), "-", "_")
	slice := "kubepods"
	switch pod.Status.QOSClass {
	case corev1.PodQOSBurstable:
		slice += "-burstable"
	case corev1.PodQOSBestEffort:
		slice += "-besteffort"
	}

	parent := "/kubepods.slice"
	if slice != "kubepods" {
		parent += "/" + slice + ".slice"
	}

	return parent + "/" + slice + "-pod" + uid + ".slice/cri-containerd-" + id + ".scope"
}

// kubeletMetrics returns some of the kubelet's own metrics.
func kubeletMetrics(source Source) []byte {
	var e exposition
	state := source.State()
	e.add("kubelet_node_name", "gauge", "The node's name. The count is always 1.", func(emit emitter) {
		emit(1, time.Time{}, "node", state.Spec.Name)
	})

	e.add("kubelet_running_pods", "gauge", "Number of pods that have a running pod sandbox", func(emit emitter) {
		emit(float64(len(source.Pods())), time.Time{})
	})
	e.add("kubelet_running_containers", "gauge", "Number of containers currently running", func(emit emitter) {
		emit(float64(len(source.Containers())), time.Time{}, "container_state", "running")
	})

	return e.out.Bytes()
}

// exposition collects metric families in the text format.
type exposition struct{ out bytes.Buffer }

// add writes a family with the samples that samples emits; without samples it writes nothing. kind is counter or gauge,
// labels are alternating names and values.
func (e *exposition) add(name, kind, help string, samples func(emit func(value float64, at time.Time, labels ...string))) {
	family := &dto.MetricFamily{Name: &name, Help: &help, Type: dto.MetricType_GAUGE.Enum()}
	if kind == "counter" {
		family.Type = dto.MetricType_COUNTER.Enum()
	}

	samples(func(value float64, at time.Time, labels ...string) {
		m := &dto.Metric{Label: make([]*dto.LabelPair, 0, len(labels)/2)}
		for i := 0; i+1 < len(labels); i += 2 {
			m.Label = append(m.Label, &dto.LabelPair{Name: &labels[i], Value: &labels[i+1]})
		}

		if !at.IsZero() {
			m.TimestampMs = new(at.UnixMilli())
		}

		if kind == "counter" {
			m.Counter = &dto.Counter{Value: &value}
		} else {
			m.Gauge = &dto.Gauge{Value: &value}
		}

		family.Metric = append(family.Metric, m)
	})

	if len(family.Metric) > 0 {
		_, _ = expfmt.MetricFamilyToText(&e.out, family) // a family with samples in a buffer cannot fail
	}
}
