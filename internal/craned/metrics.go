// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package craned

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"

	"crane.io/crane/internal/component/boundedserver"
	"crane.io/crane/internal/component/seriesguard"
	"crane.io/crane/internal/component/tokenlimit"
)

const (
	// maxScrapes bounds the scrapes that are authenticated or answered at the same time: each unknown token costs a request to the API server.
	maxScrapes     = 8
	scrapeTimeout  = time.Minute     // bounds a scrape
	profileTimeout = 5 * time.Minute // bounds also the recording of a profile
)

// serveMetrics serves /metrics. A client needs a token with the right to "get /metrics", which the API server checks by a TokenReview and a
// SubjectAccessReview, both cached for a minute or more. Profiles need the right to get their path. The server of controller-runtime has no
// bound on connections, and none on reviews.
func serveMetrics(ctx context.Context, mgr probedManager, o *Options) error {
	if o.MetricsBindAddress == "" || o.MetricsBindAddress == "0" {
		return nil
	}

	mux := http.NewServeMux()
	mux.Handle("/metrics", seriesguard.Handler(ctrlmetrics.Registry, metricsLog(), promhttp.HandlerOpts{Registry: ctrlmetrics.Registry}))

	var handler http.Handler = mux
	var config *tls.Config
	timeout := scrapeTimeout
	if o.MetricsSecure {
		// Profiles are served only behind the authorization.
		if o.Diagnostics.Profiling {
			timeout = profileTimeout
			for path, page := range profileHandlers() {
				mux.Handle(path, page)
			}
		}

		filter, err := filters.WithAuthenticationAndAuthorization(mgr.GetConfig(), mgr.GetHTTPClient())
		if err != nil {
			return fmt.Errorf("building the access filter of metrics: %w", err)
		}

		handler, err = filter(ctrl.LoggerFrom(ctx).WithName("metrics"), mux)
		if err != nil {
			return fmt.Errorf("building the access filter of metrics: %w", err)
		}

		handler = tokenlimit.Handler(clock.RealClock{}, handler, tokenlimit.PlainError)
		config, err = servingTLS(mgr, "metrics-cert-dir", o.MetricsCertDir)
		if err != nil {
			return err
		}

		if o.MetricsCertDir == "" && mgr.certificates != nil {
			config.GetCertificate = managedCertificate(mgr.certificates.GetCertificate)
		}
	}

	listener, err := boundedserver.Listen(ctx, o.MetricsBindAddress, maxConnections, config)
	if err != nil {
		return fmt.Errorf("--metrics-bind-address: %w", err)
	}

	shutdown := serverShutdown
	server := boundedserver.New(limitRequests(maxScrapes, handler), timeout)
	if err := mgr.Add(&manager.Server{
		Name:            "metrics",
		Listener:        listener,
		Server:          server,
		ShutdownTimeout: &shutdown,
	}); err != nil {
		return fmt.Errorf("adding the server of metrics: %w", err)
	}

	return nil
}

// managedCertificate returns the callback of a server that also has a certificate made at the start: for clients that name no host, and until the
// managed one exists.
func managedCertificate(managed func(*tls.ClientHelloInfo) (*tls.Certificate, error)) func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		certificate, err := managed(hello)
		if err != nil {
			return nil, nil //nolint:nilerr,nilnil // The server then uses its own.
		}

		return certificate, nil
	}
}

// metricsRegistry registers craned's own metrics. Many of them have values and labels that tenants can write.
func metricsRegistry() *seriesguard.Registerer {
	return seriesguard.New(ctrlmetrics.Registry, metricsLog())
}

func metricsLog() logr.Logger { return ctrl.Log.WithName("metrics") }

// limitRequests returns a handler that serves n requests at a time. Further ones, of which the connections bound the number, wait: a client
// whose token is known is served although others try tokens.
func limitRequests(n int, next http.Handler) http.Handler {
	slots := make(chan struct{}, n)
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()

			next.ServeHTTP(w, req)
		case <-req.Context().Done(): // The client is gone.
		}
	})
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
