// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package evpa

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"crane.io/crane/internal/component/seriesguard"
	"crane.io/crane/internal/metrics/profile"
	"crane.io/crane/pkg/units"
)

// Metrics exports the recommendations of existing autoscalers. The series of a deleted autoscaler disappear.
type Metrics struct {
	mu sync.Mutex
	// recommendations are stored by namespace.
	recommendations map[string][]recommendedAmount
}

// recommendedAmount is the recommendation for one resource of one container.
type recommendedAmount struct {
	labels   []string
	resource units.Resource
	// target is the recommended request, current that of the pod template, in cores or bytes.
	target, current float64
}

// targetLabels are gocrane's labels of each metric.
func targetLabels() []string {
	return []string{"apiversion", "owner_kind", "namespace", "owner_name", "container", "resource"}
}

// The metrics have the names and labels of gocrane.
var (
	recommendationDesc = prometheus.NewDesc("crane_autoscaling_effective_vpa_resource_recommendation",
		"Recommended request of a container by an EffectiveVerticalPodAutoscaler, in cores or bytes.", targetLabels(), nil)
	cpuUpDesc = prometheus.NewDesc("crane_autoscaling_effective_vpa_cpu_scale_up",
		"Cores by which the recommended request of a container exceeds that of the pod template; absent where it does not.", targetLabels(), nil)
	cpuDownDesc = prometheus.NewDesc("crane_autoscaling_effective_vpa_cpu_scale_down",
		"Cores by which the recommended request of a container is below that of the pod template; absent where it is not.", targetLabels(), nil)
	memoryUpDesc = prometheus.NewDesc("crane_autoscaling_effective_vpa_memory_scale_up",
		"Bytes by which the recommended request of a container exceeds that of the pod template; absent where it does not.", targetLabels(), nil)
	memoryDownDesc = prometheus.NewDesc("crane_autoscaling_effective_vpa_memory_scale_down",
		"Bytes by which the recommended request of a container is below that of the pod template; absent where it is not.", targetLabels(), nil)
)

// NewMetrics returns an empty collector.
func NewMetrics() *Metrics { return &Metrics{recommendations: map[string][]recommendedAmount{}} }

// record replaces the recommendations of a namespace. Of several autoscalers of a target only the applied one counts.
func (m *Metrics) record(namespace string, states []autoscalerState, plans []plan) {
	var all []recommendedAmount
	for i, s := range states {
		if s.targetProblem != nil || s.applyProblem != nil && s.applyProblem.reason == reasonOtherEVPA {
			continue
		}

		for _, sizing := range plans[i].sizings {
			if sizing.Target <= 0 {
				continue
			}

			c, _ := s.target.Container(sizing.container)
			amount := recommendedAmount{
				labels:   []string{s.target.APIVersion, s.target.Kind, namespace, s.target.Name, sizing.container, string(sizing.Resource)},
				resource: sizing.Resource,
				target:   float64(sizing.Target),
				current:  float64(requestAmount(profile.CurrentResources(c), sizing.Resource)),
			}

			// The unit of the metric is cores.
			if sizing.Resource == units.CPU {
				amount.target /= 1000
				amount.current /= 1000
			}

			all = append(all, amount)
		}
	}

	m.mu.Lock()
	defer m.mu.Unlock()

	m.recommendations[namespace] = all

	if len(all) == 0 {
		delete(m.recommendations, namespace)
	}
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{recommendationDesc, cpuUpDesc, cpuDownDesc, memoryUpDesc, memoryDownDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	m.mu.Lock()
	defer m.mu.Unlock()

	for _, all := range m.recommendations {
		for _, rec := range all {
			seriesguard.Send(ch, recommendationDesc, prometheus.GaugeValue, rec.target, rec.labels...)
			increase := cpuUpDesc
			decrease := cpuDownDesc
			if rec.resource == units.Memory {
				increase = memoryUpDesc
				decrease = memoryDownDesc
			}

			switch {
			case rec.target > rec.current:
				seriesguard.Send(ch, increase, prometheus.GaugeValue, rec.target-rec.current, rec.labels...)
			case rec.target < rec.current:
				seriesguard.Send(ch, decrease, prometheus.GaugeValue, rec.current-rec.target, rec.labels...)
			}
		}
	}
}
