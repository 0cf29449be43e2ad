// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package metricadapter

import (
	"context"
	"fmt"

	"github.com/go-logr/logr"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/clock"

	"crane.io/crane/internal/component/configfile"
	"crane.io/crane/internal/metricadapter/remote"
	"crane.io/crane/internal/metricadapter/rules"
	"crane.io/crane/internal/metrics/promadapter"
	"crane.io/crane/internal/metrics/prometheus"
)

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
		Rules: file.Content, Query: history.Vector, Resources: resources, Objects: objects, ListInterval: o.ListInterval, Clock: clock.RealClock{},
	})
	log := logr.FromContextOrDiscard(ctx).WithName("rules")
	follow := func(ctx context.Context) error {
		file.Run(ctx, configfile.Observer[*promadapter.Rules]{
			Loaded: func(*promadapter.Rules) {
				log.Info("Other rules are in force", "file", o.RulesFile)
				defined.NotifyChanged()
			},
			Rejected: func(err error) { log.Error(err, "Rules are refused, the old ones stay in force") },
		})
		return nil
	}
	a.runners = append(a.runners, follow, resources.Run, objects.Run, defined.Run)
	a.addReadyCheck("prometheus", defined.Ready)
	if err := a.metrics.registerRules(file.State); err != nil {
		return err
	}
	a.external.add("rules", rules.External{Provider: defined})
	a.custom.add("rules", rules.Custom{Provider: defined})
	return nil
}

// openPrometheus returns the client for the queries of rules. It does not retry, because the HPA controller repeats its request.
func (a *adapter) openPrometheus() (*prometheus.Source, error) {
	config, err := a.options.Prometheus.Config()
	if err != nil {
		return nil, fmt.Errorf("prometheus: %w", err)
	}
	config.MaxAttempts, config.MaxSamples = 1, maxSamples
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
		Namespace: r.Namespace, Service: r.Service, Port: r.Port, Address: r.Address, CAFile: r.CAFile,
		Token: a.config.BearerToken, TokenFile: a.config.BearerTokenFile,
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
