// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package craned

import (
	"crypto/tls"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// metricsServer says how /metrics is served. Who asks has to show a token for which the API server says yes to "get
// /metrics" (a TokenReview and a SubjectAccessReview, both remembered for a minute or more).
func (o *Options) metricsServer() metricsserver.Options {
	if !o.MetricsSecure {
		return metricsserver.Options{BindAddress: o.MetricsBindAddress}
	}
	return metricsserver.Options{
		BindAddress: o.MetricsBindAddress, SecureServing: true, CertDir: o.MetricsCertDir,
		FilterProvider: filters.WithAuthenticationAndAuthorization,
		TLSOpts:        []func(*tls.Config){modernTLS},
	}
}

// modernTLS refuses what no client of the last ten years needs. HTTP/2 gives a scraper nothing, and its streams are one
// more thing to bound.
func modernTLS(c *tls.Config) {
	c.MinVersion = tls.VersionTLS12
	c.NextProtos = []string{"http/1.1"}
}

// leaderGauge tells leader and standby apart. It is also there without leader election, when the one replica leads.
func leaderGauge(leads func() bool) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "crane_leader", Help: "1 where this replica of craned does the work, 0 where it stands by.",
	}, func() float64 {
		if leads() {
			return 1
		}
		return 0
	})
}
