// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package craned

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	"crane.io/crane/internal/version"
)

// leaderElectionID is the name of the lease, as gocrane's.
const leaderElectionID = "craned"

// Run builds the manager and runs it until ctx ends or a part of it fails. It returns nil after an orderly stop.
//
// The life of the manager: caches start first; then what runs on every replica (the look at the data source, metrics,
// probes); then, once this replica holds the lease, the controllers. When ctx ends the controllers get
// Options.ShutdownTimeout to finish and the lease is given back; when the lease is lost Run returns an error at once,
// and the process must end.
func Run(ctx context.Context, o *Options) error {
	config, err := restConfig(o)
	if err != nil {
		return err
	}
	mgr, err := newManager(ctx, config, o)
	if err != nil {
		return err
	}
	p, err := newParts(mgr, o)
	if err != nil {
		return err
	}
	if err := addHealth(mgr, newSourceHealth(askSource(p.source))); err != nil {
		return err
	}
	for _, f := range features() {
		if !o.wants(f) {
			continue
		}
		if err := f.add(ctx, p); err != nil {
			return err
		}
	}
	ctrl.LoggerFrom(ctx).Info("Starting craned", "version", version.String(), "namespace", o.Namespace,
		"dataSources", o.DataSources, "leaderElection", o.LeaderElection.Enabled)
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("running the manager: %w", err)
	}
	return nil
}

// restConfig follows the usual rules: the file that is named, else $KUBECONFIG or ~/.kube/config, else the service
// account of the pod.
func restConfig(o *Options) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.Kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("finding the API server: %w", err)
	}
	config.QPS, config.Burst = o.APIQPS, o.APIBurst
	config.UserAgent = "craned/" + version.String()
	return config, nil
}

func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("building the scheme: %w", err)
	}
	if err := analysisv1alpha1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("building the scheme: %w", err)
	}
	if err := predictionv1alpha1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("building the scheme: %w", err)
	}
	return scheme, nil
}

func newManager(ctx context.Context, config *rest.Config, o *Options) (manager.Manager, error) {
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	le := o.LeaderElection
	// The lease has a client of its own: one that shares the rate limit of the controllers' would be late, and the lease
	// lost, whenever they have much to write.
	lease := rest.CopyConfig(config)
	lease.RateLimiter = nil
	mgr, err := ctrl.NewManager(config, manager.Options{
		Scheme: scheme,
		Logger: ctrl.LoggerFrom(ctx),
		// Managed fields are half of an object and nothing here reads them.
		Cache:                         cache.Options{DefaultTransform: cache.TransformStripManagedFields(), ByObject: leanNodes()},
		Client:                        client.Options{Cache: &client.CacheOptions{Unstructured: false}},
		Metrics:                       metricsserver.Options{BindAddress: o.MetricsBindAddress},
		HealthProbeBindAddress:        o.HealthProbeBindAddress,
		LeaderElection:                le.Enabled,
		LeaderElectionConfig:          lease,
		LeaderElectionID:              leaderElectionID,
		LeaderElectionNamespace:       o.Namespace,
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 &le.LeaseDuration,
		RenewDeadline:                 &le.RenewDeadline,
		RetryPeriod:                   &le.RetryPeriod,
		GracefulShutdownTimeout:       &o.ShutdownTimeout,
	})
	if err != nil {
		return nil, fmt.Errorf("building the manager: %w", err)
	}
	return mgr, nil
}

func addHealth(mgr manager.Manager, source *sourceHealth) error {
	if err := mgr.Add(source); err != nil {
		return fmt.Errorf("adding the look at the data source: %w", err)
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return fmt.Errorf("adding the liveness check: %w", err)
	}
	for name, check := range map[string]healthz.Checker{
		"caches":      cachesSynced(mgr.GetCache()),
		"data-source": source.Check,
	} {
		if err := mgr.AddReadyzCheck(name, check); err != nil {
			return fmt.Errorf("adding the readiness check %s: %w", name, err)
		}
	}
	return nil
}
