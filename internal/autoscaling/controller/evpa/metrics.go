// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package evpa

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"crane.io/crane/pkg/vertical"
)

// Metrics are about autoscalers that exist: a series goes away with its object.
type Metrics struct {
	mu sync.Mutex
	// recommendations are what is recommended, by namespace.
	recommendations map[string][]recommendedAmount
}

// recommendedAmount is what is recommended for one resource of one container.
type recommendedAmount struct {
	labels []string
	value  float64
}

// recommendationDesc is gocrane's.
var recommendationDesc = prometheus.NewDesc("crane_autoscaling_effective_vpa_resource_recommendation",
	"What a container should request, in cores or bytes, as an EffectiveVerticalPodAutoscaler says.",
	[]string{"apiversion", "owner_kind", "namespace", "owner_name", "container", "resource"}, nil)

// NewMetrics returns a collector that knows of no autoscaler yet.
func NewMetrics() *Metrics { return &Metrics{recommendations: map[string][]recommendedAmount{}} }

// record remembers what was decided of a namespace. Of two autoscalers of one target only that one counts which is applied.
func (m *Metrics) record(namespace string, subjects []*autoscalerState, plans []plan) {
	var all []recommendedAmount
	for i, s := range subjects {
		if s.targetProblem != nil || s.applyProblem != nil && s.applyProblem.reason == reasonOtherEVPA {
			continue
		}
		for _, one := range plans[i].sizings {
			if one.Target <= 0 {
				continue
			}
			v := float64(one.Target)
			if one.Resource == vertical.CPU {
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
