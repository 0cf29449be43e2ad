// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package metricadapter

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/metrics/pkg/apis/custom_metrics"
	"k8s.io/metrics/pkg/apis/external_metrics"
	"k8s.io/utils/clock"

	"crane.io/crane/internal/autoscaling/scalingmetric"
	"crane.io/crane/internal/component/version"
	"crane.io/crane/internal/metricadapter/cranemetrics"
)

func isMetricsGroup(group string) bool {
	return group == external_metrics.GroupName || group == custom_metrics.GroupName
}

// adapter is a running metric-adapter.
type adapter struct {
	options *Options
	config  *rest.Config
	figures *figures

	work  []func(context.Context) error // what runs beside the server
	ready []healthz.HealthChecker

	external externalSources
	custom   customSources
}

// Run serves until ctx ends.
func Run(ctx context.Context, o *Options) error {
	a := &adapter{options: o}
	var err error
	if a.figures, err = newFigures(legacyregistry.Registerer()); err != nil {
		return fmt.Errorf("registering metrics: %w", err)
	}
	a.external.figures, a.custom.figures = a.figures, a.figures
	if a.config, err = a.clientConfig(); err != nil {
		return err
	}
	s := serving{}
	for _, add := range []func(context.Context) error{a.addCraneMetrics, a.addRules, a.addRemote} {
		if err := add(ctx); err != nil {
			return err
		}
	}
	waitForCertificate := func(context.Context) error { return nil }
	if o.ownCertificate() {
		if s.certificate, waitForCertificate, err = a.addCertificate(); err != nil {
			return err
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, run := range a.work {
		group.Go(func() error { return run(ctx) })
	}
	group.Go(func() error {
		if err := waitForCertificate(ctx); err != nil {
			return nil //nolint:nilerr // The end has come before the beginning.
		}
		s.external, s.custom, s.ready = &a.external, &a.custom, a.ready
		server, err := newServer(o, s)
		if err != nil {
			return err
		}
		return server.PrepareRun().RunWithContext(ctx)
	})
	return group.Wait()
}

func (a *adapter) clientConfig() (*rest.Config, error) {
	o := a.options
	config, err := clientcmd.BuildConfigFromFlags("", o.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reaching the API server: %w", err)
	}
	config.QPS, config.Burst = o.APIQPS, o.APIBurst
	config.UserAgent = "crane-metric-adapter/" + version.String()
	config.Wrap(a.figures.count)
	authentication, authorization := o.Server.Authentication, o.Server.Authorization
	if authentication.RemoteKubeConfigFile == "" {
		authentication.RemoteKubeConfigFile = o.Kubeconfig
	}
	if authorization.RemoteKubeConfigFile == "" {
		authorization.RemoteKubeConfigFile = o.Kubeconfig
	}
	authentication.CustomRoundTripperFn, authorization.CustomRoundTripperFn = a.figures.count, a.figures.count
	return config, nil
}

func (a *adapter) addCraneMetrics(ctx context.Context) error {
	store, err := newCaches(ctx, a.config)
	if err != nil {
		return err
	}
	a.work = append(a.work, store.Start)
	a.check("informers", store.ready)
	own := &cranemetrics.Provider{Reader: store, Synced: store.ready, Zones: &scalingmetric.Zones{}, Clock: clock.RealClock{}}
	if a.options.CronLocalTime {
		own.Zones.Local = time.Local
	}
	a.external.add("crane", own)
	return nil
}

// addCertificate adds the keeper of the certificate. The function that it returns waits for the first one.
func (a *adapter) addCertificate() (*kept, func(context.Context) error, error) {
	keeper, err := newKeeper(a.config, a.options)
	if err != nil {
		return nil, nil, err
	}
	k := &kept{current: func() (*tls.Certificate, error) { return keeper.GetCertificate(nil) }}
	a.work = append(a.work, keeper.Run, func(ctx context.Context) error {
		k.run(ctx)
		return nil
	})
	a.check("certificate", keeper.Check)
	return k, func(ctx context.Context) error { return k.await(ctx, keeper.Check) }, nil
}

// check adds a condition of readiness.
func (a *adapter) check(name string, check func() error) {
	a.ready = append(a.ready, healthz.NamedCheck(name, func(*http.Request) error { return check() }))
}
