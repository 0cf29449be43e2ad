// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package policyfile

import "github.com/prometheus/client_golang/prometheus"

var (
	validDesc   = prometheus.NewDesc("crane_nodeload_policy_valid", "1 if the policy file is in force, 0 if it is invalid and an older policy is in force.", nil, nil)
	loadedDesc  = prometheus.NewDesc("crane_nodeload_policy_loaded_timestamp_seconds", "Time when the policy in force was loaded.", nil, nil)
	reloadsDesc = prometheus.NewDesc("crane_nodeload_policy_loads_total", "Loaded contents of the policy file, by result.", []string{"result"}, nil)
)

var _ prometheus.Collector = (*File)(nil)

// Describe implements prometheus.Collector.
func (f *File) Describe(ch chan<- *prometheus.Desc) {
	ch <- validDesc
	ch <- loadedDesc
	ch <- reloadsDesc
}

// Collect implements prometheus.Collector.
func (f *File) Collect(ch chan<- prometheus.Metric) {
	s := f.file.State()
	valid := 1.0
	if s.Invalid {
		valid = 0
	}

	ch <- prometheus.MustNewConstMetric(validDesc, prometheus.GaugeValue, valid)
	ch <- prometheus.MustNewConstMetric(loadedDesc, prometheus.GaugeValue, float64(s.Loaded.UnixMilli())/1000)
	ch <- prometheus.MustNewConstMetric(reloadsDesc, prometheus.CounterValue, s.Succeeded, "loaded")
	ch <- prometheus.MustNewConstMetric(reloadsDesc, prometheus.CounterValue, s.Failed, "refused")
}
