// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package craned

import (
	"crypto/tls"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// metricsServer returns the options of the server of /metrics. A client needs a token with the right to "get /metrics", which the
// API server checks by a TokenReview and a SubjectAccessReview, both cached for a minute or more. Profiles need the right to get their path.
func (o *Options) metricsServer() metricsserver.Options {
	if !o.MetricsSecure {
		return metricsserver.Options{BindAddress: o.MetricsBindAddress}
	}
	out := metricsserver.Options{
		BindAddress: o.MetricsBindAddress, SecureServing: true, CertDir: o.MetricsCertDir,
		FilterProvider: filters.WithAuthenticationAndAuthorization,
		TLSOpts:        []func(*tls.Config){modernTLS},
	}
	if o.Diagnostics.Profiling {
		out.ExtraHandlers = profileHandlers()
	}
	return out
}

// modernTLS requires TLS 1.2 and disables HTTP/2, whose streams have no advantage for a scraper.
func modernTLS(c *tls.Config) {
	c.MinVersion = tls.VersionTLS12
	c.NextProtos = []string{"http/1.1"}
}

// leaderGauge reports whether this replica leads. It exists without leader election too, where the only replica leads.
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
