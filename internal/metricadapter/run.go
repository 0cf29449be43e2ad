// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package metricadapter

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"
	"k8s.io/metrics/pkg/apis/custom_metrics"
	"k8s.io/metrics/pkg/apis/external_metrics"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"

	"crane.io/crane/internal/autoscaling/scalingmetric"
	"crane.io/crane/internal/component/seriesguard"
	"crane.io/crane/internal/component/version"
	"crane.io/crane/internal/metricadapter/cranemetrics"
)

func isMetricsGroup(group string) bool {
	return group == external_metrics.GroupName || group == custom_metrics.GroupName
}

// adapter collects the parts of a metric-adapter before it serves.
type adapter struct {
	options *Options
	config  *rest.Config
	metrics *adapterMetrics

	runners     []func(context.Context) error // background tasks beside the server
	readyChecks []healthz.HealthChecker

	external externalSources
	custom   customSources
}

// Run serves until ctx ends.
func Run(ctx context.Context, o *Options) error {
	a := &adapter{options: o}
	var err error
	if a.metrics, err = newAdapterMetrics(seriesguard.New(legacyregistry.Registerer(), klog.Background())); err != nil {
		return fmt.Errorf("registering metrics: %w", err)
	}

	a.external.api = "external"
	a.external.metrics = a.metrics

	a.custom.api = "custom"
	a.custom.metrics = a.metrics
	if a.config, err = a.clientConfig(); err != nil {
		return err
	}

	s := serverConfig{}
	for _, add := range []func(context.Context) error{a.addCraneMetrics, a.addRules, a.addRemote} {
		if err := add(ctx); err != nil {
			return err
		}
	}

	waitForCertificate := func(context.Context) error { return nil }
	if o.managesCertificate() {
		if s.certificate, waitForCertificate, err = a.addCertificate(); err != nil {
			return err
		}
	}

	group, ctx := errgroup.WithContext(ctx)
	for _, run := range a.runners {
		group.Go(func() error { return run(ctx) })
	}

	group.Go(func() error {
		if waitForCertificate(ctx) != nil { // ctx ended before there was a certificate.
			return nil //nolint:nilerr // the process is stopping before it was ready
		}

		s.external = &a.external
		s.custom = &a.custom

		s.ready = a.readyChecks
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
	config.Wrap(a.metrics.countRequests)

	authentication, authorization := o.Server.Authentication, o.Server.Authorization
	if authentication.RemoteKubeConfigFile == "" {
		authentication.RemoteKubeConfigFile = o.Kubeconfig
	}
	if authorization.RemoteKubeConfigFile == "" {
		authorization.RemoteKubeConfigFile = o.Kubeconfig
	}

	authentication.CustomRoundTripperFn, authorization.CustomRoundTripperFn = a.metrics.countRequests, a.metrics.countRequests
	return config, nil
}

func (a *adapter) addCraneMetrics(ctx context.Context) error {
	store, err := newObjectCaches(ctx, a.config)
	if err != nil {
		return err
	}

	a.runners = append(a.runners, store.Start)
	a.addReadyCheck("informers", store.checkSynced)
	forecasts := &cranemetrics.Provider{
		Reader:      store,
		CheckSynced: store.checkSynced,
		Zones:       scalingmetric.NewZones(a.options.CronLocalTime),
		Clock:       clock.RealClock{},
	}

	a.external.add("crane", forecasts)
	return nil
}

// addCertificate adds the task that renews the certificate. The returned function waits for the first certificate.
func (a *adapter) addCertificate() (*certificateProvider, func(context.Context) error, error) {
	keeper, err := newCertificateKeeper(a.config, a.options)
	if err != nil {
		return nil, nil, err
	}

	k := &certificateProvider{current: func() (*tls.Certificate, error) { return keeper.GetCertificate(nil) }}
	a.runners = append(a.runners, keeper.Run, func(ctx context.Context) error {
		k.run(ctx)
		return nil
	})
	a.addReadyCheck("certificate", keeper.Check)

	return k, func(ctx context.Context) error { return k.waitUntilValid(ctx, keeper.Check) }, nil
}

// addReadyCheck adds a check to the readiness of the server.
func (a *adapter) addReadyCheck(name string, check func() error) {
	a.readyChecks = append(a.readyChecks, healthz.NamedCheck(name, func(*http.Request) error { return check() }))
}

// NewCommand returns the command of metric-adapter.
func NewCommand() *cobra.Command {
	o := NewOptions()
	cmd := &cobra.Command{
		Use:   "metric-adapter",
		Short: "Serves the external and custom metrics API, with Crane's forecasts",
		Long: "metric-adapter serves the metrics API for HorizontalPodAutoscalers: forecasts of Crane, metrics that a configuration of\n" +
			"prometheus-adapter defines, and metrics of another adapter.",
		Version:       version.Long(),
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			warnings := o.Prometheus.Complete()
			if err := o.Validate().ToAggregate(); err != nil {
				return fmt.Errorf("invalid flags: %w", err)
			}

			log := o.Log.New(cmd.ErrOrStderr())
			ctrl.SetLogger(log)
			klog.SetLogger(log)

			for _, warning := range warnings {
				log.Info("flags need attention", "warning", warning)
			}

			return Run(ctrl.LoggerInto(cmd.Context(), log), o)
		},
	}

	o.AddFlags(cmd.Flags())
	return cmd
}
