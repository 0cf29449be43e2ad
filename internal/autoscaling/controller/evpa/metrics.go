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
	// targets are what is recommended, by namespace.
	targets map[string][]measured
}

// measured is what is recommended for one resource of one container.
type measured struct {
	labels []string
	value  float64
}

// recommendationDesc is gocrane's.
var recommendationDesc = prometheus.NewDesc("crane_autoscaling_effective_vpa_resource_recommendation",
	"What a container should request, in cores or bytes, as an EffectiveVerticalPodAutoscaler says.",
	[]string{"apiversion", "owner_kind", "namespace", "owner_name", "container", "resource"}, nil)

// NewMetrics returns a collector that knows of no autoscaler yet.
func NewMetrics() *Metrics { return &Metrics{targets: map[string][]measured{}} }

// observe remembers what was decided of a namespace. Of two autoscalers of one target only that one counts which is applied.
func (m *Metrics) observe(namespace string, subjects []*subject, plans []plan) {
	var all []measured
	for i, s := range subjects {
		if s.refused != nil || s.barred != nil && s.barred.reason == reasonOtherEVPA {
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
			all = append(all, measured{[]string{s.target.APIVersion, s.target.Kind, namespace, s.target.Name, one.container, string(one.Resource)}, v})
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.targets[namespace] = all; len(all) == 0 {
		delete(m.targets, namespace)
	}
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) { ch <- recommendationDesc }

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, all := range m.targets {
		for _, one := range all {
			ch <- prometheus.MustNewConstMetric(recommendationDesc, prometheus.GaugeValue, one.value, one.labels...)
		}
	}
}
