// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package metricadapter

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/metrics/pkg/apis/custom_metrics"
	"k8s.io/metrics/pkg/apis/external_metrics"
	"k8s.io/utils/clock"
	"sigs.k8s.io/custom-metrics-apiserver/pkg/provider"

	"crane.io/crane/internal/component/configfile"
	"crane.io/crane/internal/metricadapter/remote"
	"crane.io/crane/internal/metricadapter/rules"
	"crane.io/crane/internal/metricadapter/status"
	"crane.io/crane/internal/metrics/promadapter"
	"crane.io/crane/internal/metrics/prometheus"
)

// metricSource serves some metrics of an API.
type metricSource interface {
	// Serves reports whether a metric is one of the source's. It sends no request.
	Serves(metric string) bool
}

type externalSource interface {
	metricSource
	provider.ExternalMetricsProvider
}

type customSource interface {
	metricSource
	provider.CustomMetricsProvider
}

// sources serve each metric of an API from the first source that has it.
type sources[S metricSource] struct {
	api     string
	names   []string // label values of the metrics about requests
	sources []S
	metrics *adapterMetrics
}

func (s *sources[S]) add(name string, source S) {
	s.names = append(s.names, name)
	s.sources = append(s.sources, source)
}

// query calls read with the first source that serves a metric. found is false without one.
func (s *sources[S]) query(metric string, read func(S) error) (found bool, err error) {
	for i, source := range s.sources {
		if source.Serves(metric) {
			start := time.Now()
			err := read(source)
			s.metrics.observe(s.api, s.names[i], time.Since(start), err)

			return true, err
		}
	}

	return false, nil
}

// mergedList returns the metrics that any source lists, each once.
func mergedList[S any, T comparable](sources []S, list func(S) []T) []T {
	var all []T
	seen := map[T]bool{}
	for _, s := range sources {
		for _, metric := range list(s) {
			if !seen[metric] {
				seen[metric] = true
				all = append(all, metric)
			}
		}
	}

	return all
}

// externalSources serve the external metrics API.
type externalSources struct{ sources[externalSource] }

// GetExternalMetric implements provider.ExternalMetricsProvider.
func (e *externalSources) GetExternalMetric(
	ctx context.Context, namespace string, selector labels.Selector, info provider.ExternalMetricInfo,
) (list *external_metrics.ExternalMetricValueList, err error) {
	found, err := e.query(info.Metric, func(s externalSource) error {
		list, err = s.GetExternalMetric(ctx, namespace, selector, info)
		return err
	})
	if !found {
		err = status.NotFound("%s: no rule finds series of it, and neither a remote adapter nor Crane itself serves it", info.Metric)
	}

	return list, err
}

// ListAllExternalMetrics implements provider.ExternalMetricsProvider.
func (e *externalSources) ListAllExternalMetrics() []provider.ExternalMetricInfo {
	return mergedList(e.sources.sources, externalSource.ListAllExternalMetrics)
}

// customSources serve the custom metrics API.
type customSources struct{ sources[customSource] }

// GetMetricByName implements provider.CustomMetricsProvider.
func (c *customSources) GetMetricByName(
	ctx context.Context, name types.NamespacedName, info provider.CustomMetricInfo, selector labels.Selector,
) (value *custom_metrics.MetricValue, err error) {
	err = c.read(info, func(s customSource) error {
		value, err = s.GetMetricByName(ctx, name, info, selector)
		return err
	})

	return value, err
}

// GetMetricBySelector implements provider.CustomMetricsProvider.
func (c *customSources) GetMetricBySelector(
	ctx context.Context, namespace string, selector labels.Selector, info provider.CustomMetricInfo, metricSelector labels.Selector,
) (list *custom_metrics.MetricValueList, err error) {
	err = c.read(info, func(s customSource) error {
		list, err = s.GetMetricBySelector(ctx, namespace, selector, info, metricSelector)
		return err
	})

	return list, err
}

func (c *customSources) read(info provider.CustomMetricInfo, read func(customSource) error) error {
	found, err := c.query(info.Metric, read)
	if !found {
		return status.NotFound("%s of %s: no rule finds series of it, and no remote adapter serves it", info.Metric, info.GroupResource.String())
	}

	return err
}

// ListAllMetrics implements provider.CustomMetricsProvider.
func (c *customSources) ListAllMetrics() []provider.CustomMetricInfo {
	return mergedList(c.sources.sources, customSource.ListAllMetrics)
}

// addRules adds the metrics that a configuration of prometheus-adapter defines, if one is set.
func (a *adapter) addRules(ctx context.Context) error {
	o := a.options
	if o.RulesFile == "" {
		return nil
	}

	extra, err := prometheus.ParseMatchers(o.RulesLabels)
	if err != nil {
		return fmt.Errorf("--prometheus-adapter-extension-labels: %w", err)
	}

	file, err := configfile.Open(o.RulesFile, configfile.DefaultInterval, clock.RealClock{}, func(text []byte) (*promadapter.Rules, error) {
		return promadapter.Parse(text, extra)
	})
	if err != nil {
		return fmt.Errorf("rules: %w", err)
	}

	history, err := a.openPrometheus()
	if err != nil {
		return err
	}

	client, err := metadata.NewForConfig(a.config)
	if err != nil {
		return fmt.Errorf("building a client: %w", err)
	}

	disco, err := discovery.NewDiscoveryClientForConfig(a.config)
	if err != nil {
		return fmt.Errorf("building a client: %w", err)
	}

	resources := &rules.Resources{Discovery: disco, Interval: o.DiscoveryInterval, Clock: clock.RealClock{}}
	objects := rules.NewObjects(client)
	defined := rules.New(rules.Config{
		Rules:        file.Content,
		Query:        history.Vector,
		Resources:    resources,
		Objects:      objects,
		ListInterval: o.ListInterval,
		MaxAge:       o.MaxAge,
		Clock:        clock.RealClock{},
	})

	// Series are listed again as soon as the file changes; a file that does not parse leaves the previous rules in force.
	log := logr.FromContextOrDiscard(ctx).WithName("rules")
	logRefused(log, file.Content())
	follow := func(ctx context.Context) error {
		file.Run(ctx, configfile.Observer[*promadapter.Rules]{
			Loaded: func(changed *promadapter.Rules) {
				log.Info("rules changed", "file", o.RulesFile)
				logRefused(log, changed)
				defined.NotifyChanged()
			},
			Rejected: func(err error) { log.Error(err, "invalid rules, keeping the previous ones") },
		})

		return nil
	}

	a.runners = append(a.runners, follow, resources.Run, objects.Run, defined.Run)
	a.addReadyCheck("prometheus", defined.Ready)

	if err := a.metrics.registerRules(file.State, defined.IneffectiveRules); err != nil {
		return err
	}

	a.external.add("rules", rules.External{Provider: defined})
	a.custom.add("rules", rules.Custom{Provider: defined})
	return nil
}

// logRefused logs the rules that are not in force.
func logRefused(log logr.Logger, r *promadapter.Rules) {
	if err := r.Refused(); err != nil {
		log.Error(err, "refusing rules, the others are in force")
	}
}

// openPrometheus returns the client for the queries of rules. It does not retry, because the HPA controller repeats its request.
func (a *adapter) openPrometheus() (*prometheus.Source, error) {
	config, err := a.options.Prometheus.Config()
	if err != nil {
		return nil, fmt.Errorf("prometheus: %w", err)
	}

	config.MaxAttempts = 1
	config.MaxSamples = maxSamples
	source, err := prometheus.New(config)
	if err != nil {
		return nil, fmt.Errorf("prometheus: %w", err)
	}

	return source, nil
}

// maxSamples bounds the samples of one response, one for each series.
const maxSamples = 10_000

// addRemote adds another adapter, if one is set.
func (a *adapter) addRemote(context.Context) error {
	r := a.options.Remote
	if !r.Enabled {
		return nil
	}

	other, err := remote.New(remote.Config{
		Namespace: r.Namespace,
		Service:   r.Service,
		Port:      r.Port,
		Address:   r.Address,
		CAFile:    r.CAFile,
		Token:     a.config.BearerToken,
		TokenFile: a.config.BearerTokenFile,
	}, a.options.DiscoveryInterval, clock.RealClock{})
	if err != nil {
		return err
	}

	a.runners = append(a.runners, other.Run)
	a.addReadyCheck("remote-adapter", other.Ready)
	a.external.add("remote", remote.External{Provider: other})
	a.custom.add("remote", remote.Custom{Provider: other})

	return nil
}
