// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package evpa

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"crane.io/crane/pkg/series"
)

// Metrics exports the recommendations of existing autoscalers. The series of a deleted autoscaler disappear.
type Metrics struct {
	mu sync.Mutex
	// recommendations are stored by namespace.
	recommendations map[string][]recommendedAmount
}

// recommendedAmount is the recommendation for one resource of one container.
type recommendedAmount struct {
	labels []string
	value  float64
}

// recommendationDesc has the name and labels of gocrane.
var recommendationDesc = prometheus.NewDesc("crane_autoscaling_effective_vpa_resource_recommendation",
	"Recommended request of a container by an EffectiveVerticalPodAutoscaler, in cores or bytes.",
	[]string{"apiversion", "owner_kind", "namespace", "owner_name", "container", "resource"}, nil)

// NewMetrics returns an empty collector.
func NewMetrics() *Metrics { return &Metrics{recommendations: map[string][]recommendedAmount{}} }

// record replaces the recommendations of a namespace. Of several autoscalers of a target only the applied one counts.
func (m *Metrics) record(namespace string, states []autoscalerState, plans []plan) {
	var all []recommendedAmount
	for i, s := range states {
		if s.targetProblem != nil || s.applyProblem != nil && s.applyProblem.reason == reasonOtherEVPA {
			continue
		}
		for _, one := range plans[i].sizings {
			if one.Target <= 0 {
				continue
			}
			v := float64(one.Target)
			if one.Resource == series.CPU {
				v /= 1000
			}
			all = append(all, recommendedAmount{[]string{s.target.APIVersion, s.target.Kind, namespace, s.target.Name, one.container, string(one.Resource)}, v})
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.recommendations[namespace] = all; len(all) == 0 {
		delete(m.recommendations, namespace)
	}
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) { ch <- recommendationDesc }

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, all := range m.recommendations {
		for _, one := range all {
			ch <- prometheus.MustNewConstMetric(recommendationDesc, prometheus.GaugeValue, one.value, one.labels...)
		}
	}
}
