// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package craned

import (
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"crane.io/crane/internal/component/wallclock"
	"crane.io/crane/internal/kube/workload"
	"crane.io/crane/internal/metrics"
	"crane.io/crane/internal/metrics/csv"
	"crane.io/crane/internal/metrics/fallback"
	"crane.io/crane/internal/metrics/grpc"
	"crane.io/crane/internal/metrics/metricsserver"
	"crane.io/crane/internal/metrics/prometheus"
)

// Names of data sources as --datasource takes them.
const (
	dataSourceProm          = "prom"
	dataSourceMetricsServer = "metricserver"
	dataSourceGRPC          = "grpc"
	dataSourceCSV           = "csv"
)

// dataSourceName returns the canonical name of a data source for any of its accepted names.
func dataSourceName(name string) (string, bool) {
	canonicalNames := map[string]string{
		dataSourceProm: dataSourceProm, "prometheus": dataSourceProm,
		dataSourceMetricsServer: dataSourceMetricsServer, "metricsserver": dataSourceMetricsServer, "metrics-server": dataSourceMetricsServer,
		dataSourceGRPC: dataSourceGRPC, dataSourceCSV: dataSourceCSV,
	}

	canonical, ok := canonicalNames[strings.ToLower(strings.TrimSpace(name))]
	return canonical, ok
}

func dataSourceNames() []string {
	return []string{dataSourceProm, dataSourceMetricsServer, dataSourceGRPC, dataSourceCSV}
}

func knownDataSources() string { return strings.Join(dataSourceNames(), ", ") }

// keepsHistory reports whether the data source of that name serves past usage.
func keepsHistory(name string) bool { return name != dataSourceMetricsServer }

// sources holds the data sources in the order of preference.
type sources struct {
	list *fallback.List
	// prom evaluates PromQL; nil where Prometheus is not one of the sources.
	prom *prometheus.Source
	// health holds the health of each source, in the same order.
	health []*sourceHealth
}

// newSources opens the data sources that the options name. It sends no request.
func newSources(ctx context.Context, mgr manager.Manager, o *Options) (*sources, error) {
	s := &sources{}
	var members []fallback.Source
	for _, name := range o.DataSources {
		capabilities, probe, err := s.open(mgr, o, name)
		if err != nil {
			return nil, err
		}

		members = append(members, fallback.Source{Name: name, Capabilities: capabilities})
		s.health = append(s.health, newSourceHealth(name, probe))
	}

	s.list = fallback.New(fallback.Config{
		IsQueryError: isRequestError, Clock: wallclock.New(), Log: ctrl.LoggerFrom(ctx).WithName("data-source"),
	}, members...)

	return s, nil
}

// open opens one source. ask is its health check.
func (s *sources) open(mgr manager.Manager, o *Options, name string) (metrics.Capabilities, func(context.Context) error, error) {
	switch name {
	case dataSourceProm:
		prom, err := newSource(o.Prometheus)
		if err != nil {
			return metrics.Capabilities{}, nil, err
		}

		s.prom = prom
		return prom.Capabilities(), probeSource(prom), nil

	case dataSourceMetricsServer:
		server, err := metricsserver.New(mgr.GetConfig())
		if err != nil {
			return metrics.Capabilities{}, nil, fmt.Errorf("data source %s: %w", name, err)
		}

		return server.Capabilities(), server.Check, nil

	case dataSourceGRPC:
		server, err := grpc.New(grpc.Config{
			Address:   o.GRPC.Address,
			CAFile:    o.GRPC.CAFile,
			Insecure:  o.GRPC.Insecure,
			Timeout:   o.GRPC.Timeout,
			Inventory: newLiveLister(mgr),
			Clock:     wallclock.New(),
		})
		if err != nil {
			return metrics.Capabilities{}, nil, fmt.Errorf("data source %s: %w", name, err)
		}

		return server.Capabilities(), server.Check, nil

	case dataSourceCSV:
		dir, err := csv.OpenDir(o.CSVDir)
		if err != nil {
			return metrics.Capabilities{}, nil, fmt.Errorf("--csv-dir: %w", err)
		}

		return dir.Capabilities(), dir.Check, nil

	default:
		return metrics.Capabilities{}, nil, fmt.Errorf("--datasource: %q is none of %s", name, knownDataSources())
	}
}

// newLiveLister lists workloads and pods from the API server, page by page: a cache of all pods would cost more memory than
// the rest of craned.
func newLiveLister(mgr manager.Manager) *workload.Lister {
	live := workload.Source{Reader: mgr.GetAPIReader(), PageSize: costPageSize}
	return &workload.Lister{
		Sources: func(schema.GroupVersionKind) workload.Source { return live }, Scales: mgr.GetClient(), Scheme: mgr.GetScheme(),
	}
}

// history returns the readers of history. A Prometheus that is the only source is used directly, as it can be read day by day.
func (s *sources) history() metrics.Capabilities {
	out := s.list.Capabilities()
	if s.prom != nil && len(s.health) == 1 {
		kills := out.OOM
		out = s.prom.Capabilities()
		out.OOM = kills
	}

	return out
}

// selector writes the name of a series as a selector.
func (s *sources) selector(metric string, matchers ...prometheus.Matcher) (string, error) {
	if s.prom == nil {
		return "", fmt.Errorf("series %s: --datasource has no %s: %w", metric, dataSourceProm, metrics.ErrUnsupported)
	}

	return s.prom.Selector(metric, matchers...)
}

// newSource opens Prometheus. It sends no request.
func newSource(p Prometheus) (*prometheus.Source, error) {
	cfg, err := p.Config()
	if err != nil {
		return nil, err
	}

	source, err := prometheus.New(cfg)
	if err != nil {
		return nil, fmt.Errorf("data source prom: %w", err)
	}

	return source, nil
}

// probeSource sends the cheapest query that every server with this API supports.
func probeSource(q metrics.Querier) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := q.Instant(ctx, "vector(1)", time.Now())
		if err != nil {
			return fmt.Errorf("asking the data source: %w", err)
		}

		return nil
	}
}
