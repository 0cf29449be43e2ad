// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package promserver

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/common/model"
	"github.com/prometheus/common/route"
	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/notifier"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/util/notifications"
	v1 "github.com/prometheus/prometheus/web/api/v1"
)

const (
	apiPrefix = "/api/v1"
	// version is the Prometheus release of the linked module v0.315.0.
	version = "3.15.0"
	// Remote read limits are Prometheus' defaults.
	remoteReadSamples     = 50_000_000
	remoteReadConcurrency = 10
	remoteReadFrameBytes  = 1 << 20
)

// newHandler returns the routes of a Prometheus without its web pages.
func (s *Server) newHandler() (http.Handler, error) {
	gather := prometheus.Gatherers{s.reg, s.data}
	mux := http.NewServeMux()
	mux.HandleFunc("/-/healthy", respond("Prometheus Server is Healthy.\n"))
	mux.HandleFunc("/-/ready", s.ready(respond("Prometheus Server is Ready.\n")))
	mux.Handle("/metrics", promhttp.HandlerFor(gather, promhttp.HandlerOpts{}))

	external, err := url.Parse("http://" + s.opts.Listen)
	if err != nil {
		return nil, fmt.Errorf("promserver: parsing address %q: %w", s.opts.Listen, err)
	}

	router := route.New()
	s.newAPI(gather, external).Register(router)
	mux.Handle(apiPrefix+"/", http.StripPrefix(apiPrefix, router))

	if s.opts.Middleware != nil {
		return s.opts.Middleware(mux), nil
	}

	return mux, nil
}

func respond(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, text) // the client may have disconnected
	}
}

func (s *Server) newAPI(gather prometheus.Gatherer, external *url.URL) *v1.API {
	// Values without a name switch off what this server lacks, such as remote write and the admin API.
	return v1.NewAPI(
		s.engine, s.data, nil, nil, s.data,
		func(context.Context) v1.ScrapePoolsRetriever { return s.targets },
		func(context.Context) v1.TargetRetriever { return s.targets },
		func(context.Context) v1.AlertmanagerRetriever {
			return notifier.NewManager(&notifier.Options{}, model.UTF8Validation, slog.New(slog.DiscardHandler))
		},
		func() config.Config { return *s.targets.config },

		map[string]string{
			"query.max-samples":           fmt.Sprint(s.opts.MaxSamples),
			"query.timeout":               model.Duration(s.opts.Timeout).String(),
			"query.lookback-delta":        model.Duration(defaultLookback).String(),
			"storage.tsdb.path":           s.opts.Dir,
			"storage.tsdb.retention.time": model.Duration(s.opts.Retention).String(),
		},

		v1.GlobalURLOptions{ListenAddress: s.opts.Listen, Host: external.Host, Scheme: external.Scheme},
		s.ready, s.data, s.opts.Dir, false, false, 0, s.opts.Logger,
		func(context.Context) v1.RulesRetriever { return s },
		remoteReadSamples, remoteReadConcurrency, remoteReadFrameBytes, false, nil,
		s.runtimeInfo,
		&v1.PrometheusVersion{
			Version:   version,
			Revision:  "embedded",
			Branch:    "HEAD",
			GoVersion: runtime.Version(),
		},

		func() []notifications.Notification { return nil },
		func() (<-chan notifications.Notification, func(), bool) { return nil, nil, false },
		gather, s.reg, nil, false, nil, false, false, false, false, defaultLookback, false, false, nil, nil,
		v1.OpenAPIOptions{Version: version, IncludePaths: []string{"/query"}}, s.parser,
	)
}

// ready responds with 503 while the data is closed.
func (s *Server) ready(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if _, err := s.data.get(); err != nil {
			http.Error(w, "Service Unavailable", http.StatusServiceUnavailable)
			return
		}

		next(w, r)
	}
}

func (s *Server) runtimeInfo() (v1.RuntimeInfo, error) {
	host, err := os.Hostname()
	if err != nil {
		return v1.RuntimeInfo{}, fmt.Errorf("promserver: reading the host name: %w", err)
	}

	return v1.RuntimeInfo{
		StartTime:           s.started,
		CWD:                 s.opts.Dir,
		Hostname:            host,
		ServerTime:          s.opts.Now(),
		ReloadConfigSuccess: true,
		LastConfigTime:      s.started,
		GoroutineCount:      runtime.NumGoroutine(),
		GOMAXPROCS:          runtime.GOMAXPROCS(0),
		StorageRetention:    model.Duration(s.opts.Retention).String(),
	}, nil
}

// startRules evaluates the rule file, if configured, until the returned manager is stopped.
func (s *Server) startRules() (*rules.Manager, error) {
	if s.opts.Rules == "" {
		return nil, nil
	}

	db, err := s.data.get()
	if err != nil {
		return nil, fmt.Errorf("promserver: opening the data for rules: %w", err)
	}

	// Alerts are evaluated but sent nowhere: there is no Alertmanager.
	m := rules.NewManager(&rules.ManagerOptions{
		QueryFunc:   rules.EngineQueryFunc(s.engine, db),
		NotifyFunc:  func(context.Context, string, ...*rules.Alert) {},
		Appendable:  db,
		Queryable:   db,
		Logger:      s.opts.Logger,
		GroupLoader: inlineRules{content: s.opts.Rules, parser: s.parser},
		Parser:      s.parser,
	})

	if err := m.Update(s.opts.ScrapeInterval, []string{"rules"}, labels.EmptyLabels(), "", nil); err != nil {
		return nil, fmt.Errorf("promserver: loading rules: %w", err)
	}

	go m.Run()
	return m, nil
}

// RuleGroups implements v1.RulesRetriever.
func (s *Server) RuleGroups() []*rules.Group {
	if m := s.rules.Load(); m != nil {
		return m.RuleGroups()
	}

	return nil
}

// AlertingRules implements v1.RulesRetriever.
func (s *Server) AlertingRules() []*rules.AlertingRule {
	if m := s.rules.Load(); m != nil {
		return m.AlertingRules()
	}

	return nil
}

// inlineRules loads the rule file from memory.
type inlineRules struct {
	content string
	parser  parser.Parser
}

// Load implements rules.GroupLoader.
func (l inlineRules) Load(string, bool, model.ValidationScheme) (*rulefmt.RuleGroups, []error) {
	return rulefmt.Parse([]byte(l.content), false, model.UTF8Validation, l.parser, slog.New(slog.DiscardHandler))
}

// Parse implements rules.GroupLoader.
func (l inlineRules) Parse(query string) (parser.Expr, error) { return l.parser.ParseExpr(query) }
