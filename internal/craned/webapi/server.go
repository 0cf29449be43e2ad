// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package webapi

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	"crane.io/crane/internal/component/recovery"
	"crane.io/crane/internal/component/tokenlimit"
	"crane.io/crane/internal/metrics"
)

const (
	// Timeout is the timeout of one request. gocrane's was 10 s, in which its pages timed out.
	Timeout = 60 * time.Second
	// maxConcurrent is the maximum number of concurrent requests; each holds the objects or series that it returns.
	maxConcurrent = 8
	// maxArrivals is the maximum number of concurrent requests whose tokens are checked, which may need a request to the API server.
	maxArrivals = 32
	// maxAnswer is the maximum size of a response in bytes; 20,000 recommendations are some 60 MB.
	maxAnswer = 64 << 20
	// maxURL is the maximum size of path and query in bytes. Queries of dashboards have some hundred.
	maxURL = 16 << 10
)

// PastSeries reads the history of a metric of a prediction.
type PastSeries func(context.Context, *predictionv1alpha1.TimeSeriesPrediction, *predictionv1alpha1.PredictionMetric, metrics.Window) ([]metrics.LabeledSeries, error)

// Config has the dependencies of the API.
type Config struct {
	// Objects reads Crane's objects, usually from a cache.
	Objects client.Reader
	// Queries evaluates PromQL.
	Queries metrics.Querier
	// MaxPoints is the maximum number of points per series in a range query.
	MaxPoints int
	// PastSeries reads the history of a prediction's metric.
	PastSeries PastSeries
	// Authenticator and Authorizer identify the client and decide what it may read.
	Authenticator authenticator.Request
	Authorizer    authorizer.Authorizer
	Clock         clock.PassiveClock
}

// API serves requests. It is an http.Handler and a prometheus.Collector.
type API struct {
	config   Config
	mux      *http.ServeMux
	handler  http.Handler // the mux, whose panics are answered
	slots    chan struct{}
	arrivals chan struct{}
	requests *prometheus.CounterVec
}

// New returns the API. It fails if a dependency is missing.
func New(config Config) (*API, error) {
	if config.Objects == nil || config.Queries == nil || config.PastSeries == nil || config.Authenticator == nil ||
		config.Authorizer == nil || config.Clock == nil || config.MaxPoints < 1 {
		return nil, errors.New("the web API needs a reader, queries, history, an authenticator, an authorizer, a clock and a bound")
	}

	a := &API{
		config:   config,
		mux:      http.NewServeMux(),
		slots:    make(chan struct{}, maxConcurrent),
		arrivals: make(chan struct{}, maxArrivals),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "crane_web_api_requests_total", Help: "Requests to the web API, by route and by how they ended.",
		}, []string{"route", "result"}),
	}

	for _, r := range a.routes() {
		a.mux.Handle("GET "+r.path, a.serve(r))
	}

	a.handler = recovery.Handler(tokenlimit.Handler(config.Clock, a.mux, writeError), func(w http.ResponseWriter, _ *http.Request, err error) {
		writeError(w, http.StatusInternalServerError, err.Error())
	})

	return a, nil
}

// Describe implements prometheus.Collector.
func (a *API) Describe(to chan<- *prometheus.Desc) { a.requests.Describe(to) }

// Collect implements prometheus.Collector.
func (a *API) Collect(to chan<- prometheus.Metric) { a.requests.Collect(to) }

// ServeHTTP implements http.Handler.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if len(r.URL.RequestURI()) > maxURL {
		writeError(w, http.StatusRequestURITooLong, "the URL is longer than 16384 bytes")
		return
	}

	// Responses must not be interpreted as another type or be cached.
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	a.handler.ServeHTTP(w, r)
}

// enter takes a place, or answers that there is none.
func enter(w http.ResponseWriter, places chan struct{}) bool {
	select {
	case places <- struct{}{}:
		return true
	default:
		w.Header().Set("Retry-After", "1")
		writeError(w, http.StatusTooManyRequests, "too many requests at once")
		return false
	}
}

// serve handles authorized requests with limited concurrency and time.
func (a *API) serve(route route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), Timeout)
		defer cancel()

		r = r.WithContext(ctx)
		result := "denied"
		defer func() { a.requests.WithLabelValues(route.path, result).Inc() }()

		if !enter(w, a.arrivals) {
			result = "busy"
			return
		}

		if !a.admit(w, r, route) {
			return
		}

		if !enter(w, a.slots) {
			result = "busy"
			return
		}
		defer func() { <-a.slots }()

		result = "failed" // also after a panic
		if err := route.handle(w, r); err != nil {
			writeEnvelope(w, http.StatusOK, envelope{Error: publicMessage(ctx, err)})
			return
		}

		result = "answered"
	})
}

// admit reports whether a request may use a route, and frees its place among the arrivals.
func (a *API) admit(w http.ResponseWriter, r *http.Request, route route) bool {
	defer func() { <-a.arrivals }()

	return route.permission == nil || a.authorize(w, r, route.permission(r))
}
