// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import "github.com/prometheus/client_golang/prometheus"

var (
	expiryDesc = prometheus.NewDesc("crane_certificate_expiry_timestamp_seconds",
		"When a certificate ends: that which is served, and the authority that signs.", []string{"secret", "certificate"}, nil)
	renewalsDesc = prometheus.NewDesc("crane_certificate_renewals_total",
		"Changes that this replica made to its certificates, by kind.", []string{"secret", "change"}, nil)
)

// Describe implements prometheus.Collector.
func (k *Rotator) Describe(ch chan<- *prometheus.Desc) { ch <- expiryDesc; ch <- renewalsDesc }

// Collect implements prometheus.Collector.
func (k *Rotator) Collect(ch chan<- prometheus.Metric) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if m := k.current; m != nil {
		for kind, end := range map[string]float64{
			"serving": float64(m.serving.Leaf.NotAfter.Unix()), "authority": float64(m.signer.Certificate().NotAfter.Unix()),
		} {
			ch <- prometheus.MustNewConstMetric(expiryDesc, prometheus.GaugeValue, end, k.config.Secret, kind)
		}
	}
	for s, kind := range map[step]string{stepAuthority: "authority", stepServing: "serving", stepTrim: "trim", stepRecreate: "anew"} {
		ch <- prometheus.MustNewConstMetric(renewalsDesc, prometheus.CounterValue, float64(k.renewals[s]), k.config.Secret, kind)
	}
}
