// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package elasticresource

import (
	"github.com/prometheus/client_golang/prometheus"

	model "crane.io/crane/pkg/elastic"
	"crane.io/crane/pkg/units"
)

// The first four have gocrane's names and labels; subcomponent and step are empty, as in gocrane.
var (
	recommendedDesc = prometheus.NewDesc("crane_craneAgent_node_resource_recommended", "Advertised amount of a resource, in whole cores or bytes.",
		[]string{"subcomponent", "step", "resourceName"}, nil)
	recommendedFromDesc = prometheus.NewDesc("crane_craneAgent_node_resource_recommended_from", "Source of the need: 1 for the forecast, 0 for the measured use.",
		[]string{"subcomponent", "step", "resourceName"}, nil)
	cpuNotReclaimedDesc    = prometheus.NewDesc("crane_craneAgent_node_cpu_cannot_be_reclaimed_seconds", "CPU that is needed and not offered, in millicores (despite its name).", nil, nil)
	memoryNotReclaimedDesc = prometheus.NewDesc("crane_craneAgent_node_mem_cannot_be_reclaimed_seconds", "Memory that is needed and not offered, in bytes (despite its name).", nil, nil)
	coresDesc              = prometheus.NewDesc("crane_agent_elastic_cpu_cores", "Terms of the offer of gocrane.io/cpu, in cores.", []string{"term"}, nil)
	bytesDesc              = prometheus.NewDesc("crane_agent_elastic_memory_bytes", "Terms of the offer of gocrane.io/memory, in bytes.", []string{"term"}, nil)
	distributedDesc        = prometheus.NewDesc("crane_agent_elastic_distributed_ratio", "Share of the offer that pods hold; above 1 is a deficit. Absent while the offer is unknown.", []string{"resource"}, nil)
	problemDesc            = prometheus.NewDesc("crane_agent_elastic_problem", "1 while an input is unknown, so that the offer does not grow, else 0.", []string{"resource"}, nil)
	writesDesc             = prometheus.NewDesc("crane_agent_elastic_node_writes_total", "Writes to the Node by result.", []string{"result"}, nil)
)

var _ prometheus.Collector = (*Manager)(nil)

// Describe implements prometheus.Collector.
func (m *Manager) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{recommendedDesc, recommendedFromDesc, cpuNotReclaimedDesc, memoryNotReclaimedDesc, coresDesc, bytesDesc, distributedDesc, problemDesc, writesDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m *Manager) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	m.mu.Lock()
	latest := m.latest
	wrote := m.wrote
	failed := m.failed
	m.mu.Unlock()
	ch <- prometheus.MustNewConstMetric(writesDesc, prometheus.CounterValue, wrote, "written")
	ch <- prometheus.MustNewConstMetric(writesDesc, prometheus.CounterValue, failed, "failed")

	if latest == nil {
		return
	}

	const milli = 1000
	gauge(cpuNotReclaimedDesc, float64(latest.cpu.Need))
	gauge(memoryNotReclaimedDesc, float64(latest.memory.Need))
	collectResult(gauge, &latest.cpu, "cpu", coresDesc, milli)
	collectResult(gauge, &latest.memory, "memory", bytesDesc, 1)
}

func collectResult[T units.MilliCPU | units.Bytes](gauge func(*prometheus.Desc, float64, ...string), r *result[T], name string, terms *prometheus.Desc, divisor float64) {
	gauge(recommendedDesc, float64(r.Advertise)/divisor, "", "", name)
	gauge(recommendedFromDesc, boolValue(r.NeedSource == model.SourceForecast), "", "", name)
	gauge(problemDesc, boolValue(r.Problem != ""), name)

	// Terms that are unknown have no series.
	for _, term := range []struct {
		name    string
		value   T
		isKnown bool
	}{
		{"advertised", r.Advertise, true},
		{"allocated", r.Allocated, true},
		{"allocatable", r.Allocatable, r.Allocatable > 0},
		{"reserve", r.Reserve, r.Allocatable > 0},
		{"forecast", r.Forecast, r.NeedSource == model.SourceForecast || r.Forecast > 0},
		{"use", r.Use, r.NeedSource == model.SourceUse || r.Use > 0},
		{"need", r.Need, r.NeedSource != model.SourceNone},
		{"margin", r.Margin, r.NeedSource != model.SourceNone},
		{"offer", r.Offer, r.Known},
		{"stable", r.Stable, !r.Since.IsZero()},
		{"deficit", r.Deficit, r.Known},
	} {
		if term.isKnown {
			gauge(terms, float64(term.value)/divisor, term.name)
		}
	}

	if r.Known {
		gauge(distributedDesc, float64(r.AllocatedShare), name)
	}
}

func boolValue(b bool) float64 {
	if b {
		return 1
	}

	return 0
}
