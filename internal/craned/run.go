// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package craned

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	ensurancev1alpha1 "crane.io/crane/api/ensurance/v1alpha1"
	predictionv1alpha1 "crane.io/crane/api/prediction/v1alpha1"
	topologyv1alpha1 "crane.io/crane/api/topology/v1alpha1"
	"crane.io/crane/internal/component/version"
	"crane.io/crane/internal/component/wallclock"
	"crane.io/crane/internal/kube/pause"
	"crane.io/crane/internal/kube/slimclient"
)

// leaderElectionID is the name of the lease, as gocrane's.
const leaderElectionID = "craned"

// Run builds the manager and runs it until ctx ends or a part of it fails. It returns nil after an orderly shutdown; after an
// error the process must exit, because parts of the manager may still run.
//
// # Start and stop order
//
// All parts are built before any of them runs, so that an invalid setting or an address in use is an error at once. Then start,
// each after the previous one:
//
//  1. servers: probes, metrics, profiles, and the web API, which answers that it is not ready while caches are empty;
//  2. webhooks: an API server that calls them must not wait for caches, which wait for the API server;
//  3. caches, until each has its first list;
//  4. runnables of every replica: the checks of data sources, and those with NeedLeaderElection() == false;
//  5. the election, and on the leader all other runnables and controllers.
//
// A runnable that is added later starts at once, or with the others of its group.
//
// When ctx ends, /readyz fails and everything runs on for Options.ShutdownDelay, so that the API server no longer sends webhook
// requests to this replica. Then the groups stop in the order 5, 4, 3, 2, 1, within Options.ShutdownTimeout together; the lease is released after
// that, so that another replica starts only after this one has stopped. When the lease is lost, because it could not be renewed
// within its deadline or another replica has acquired it, all contexts end and Run returns an error at once: the process must
// exit, which ends what still runs.
func Run(ctx context.Context, o *Options) error {
	config, err := restConfig(o)
	if err != nil {
		return err
	}

	// The switch wraps the configuration before any client is built from it.
	pauseSwitch, err := newPause(config, o)
	if err != nil {
		return err
	}

	lock, err := newLease(config, o)
	if err != nil {
		return err
	}
	defer lock.close()

	mgr, err := newManager(ctx, config, o, lock)
	if err != nil {
		return err
	}

	d, err := newDependencies(ctx, mgr, o)
	if err != nil {
		return err
	}

	d.pause = pauseSwitch
	err = errors.Join(mgr.Add(pauseSwitch), mgr.AddReadyzCheck("pause", pauseSwitch.Check), metricsRegistry().Register(pauseSwitch))
	if err != nil {
		return fmt.Errorf("adding the switch that stops writes: %w", err)
	}

	if err := addHealth(mgr, d.data); err != nil {
		return err
	}

	if err := addFeatures(ctx, d); err != nil {
		return err
	}

	ctrl.LoggerFrom(ctx).Info("starting craned", "version", version.String(), "namespace", o.Namespace,
		"dataSources", o.DataSources, "leaderElection", o.LeaderElection.Enabled)
	return start(ctx, mgr, o.ShutdownDelay, wallclock.New(), lock.lost)
}

// start runs the manager until it stops or another replica holds its lease. The manager stops at a delay after the end of ctx, during
// which the replica is not ready.
func start(ctx context.Context, mgr probedManager, delay time.Duration, clk clock.Clock, lost <-chan error) error {
	// The manager outlives ctx, so that the replica keeps serving during the delay.
	runCtx, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()

	drain := context.AfterFunc(ctx, func() {
		mgr.probes.drain()
		if delay > 0 {
			ctrl.LoggerFrom(ctx).Info("shutting down after a delay", "delay", delay)
			select {
			case <-clk.After(delay):
			case <-runCtx.Done():
			}
		}

		stop()
	})
	defer drain()

	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(runCtx) }()

	select {
	case err := <-ended:
		if err != nil {
			return fmt.Errorf("running the manager: %w", err)
		}

		return nil

	case err := <-lost: // The lease is lost: do not wait until parts of the manager have ended.
		return fmt.Errorf("running the manager: %w", err)
	}
}

// restConfig uses the usual sources: the given file, else $KUBECONFIG or ~/.kube/config, else the service account of the pod.
func restConfig(o *Options) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.Kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("finding the API server: %w", err)
	}

	config.QPS = o.APIQPS
	config.Burst = o.APIBurst
	config.UserAgent = "craned/" + version.String()

	return config, nil
}

// newPause returns the switch that stops writes, through which all clients of the configuration write.
func newPause(config *rest.Config, o *Options) (*pause.Switch, error) {
	clients, err := slimclient.NewForConfig(rest.CopyConfig(config))
	if err != nil {
		return nil, fmt.Errorf("building the client of the switch that stops writes: %w", err)
	}

	out := pause.New(clients, o.Namespace, wallclock.New())
	config.Wrap(out.Wrap)
	return out, nil
}

// newScheme returns a scheme with Kubernetes' kinds and those of Crane's five groups, independent of the enabled features.
func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, analysisv1alpha1.AddToScheme, autoscalingv1alpha1.AddToScheme, ensurancev1alpha1.AddToScheme,
		predictionv1alpha1.AddToScheme, topologyv1alpha1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("building the scheme: %w", err)
		}
	}

	return scheme, nil
}

// newManager builds the manager with craned's probes.
func newManager(ctx context.Context, config *rest.Config, o *Options, lock *lease) (probedManager, error) {
	scheme, err := newScheme()
	if err != nil {
		return probedManager{}, err
	}

	le := o.LeaderElection
	mgr, err := ctrl.NewManager(config, manager.Options{
		Scheme: scheme,
		Logger: ctrl.LoggerFrom(ctx),
		// Managed fields are half of an object and not used here.
		Cache:                               cache.Options{DefaultTransform: cache.TransformStripManagedFields(), ByObject: trimNodes()},
		Client:                              client.Options{Cache: &client.CacheOptions{Unstructured: false}},
		Metrics:                             metricsserver.Options{BindAddress: "0"}, // serveMetrics
		HealthProbeBindAddress:              "0",
		PprofBindAddress:                    o.PprofBindAddress,
		LeaderElection:                      le.Enabled,
		LeaderElectionResourceLockInterface: lock,
		LeaderElectionID:                    leaderElectionID,
		LeaderElectionReleaseOnCancel:       true,
		LeaseDuration:                       &le.LeaseDuration,
		RenewDeadline:                       &le.RenewDeadline,
		RetryPeriod:                         &le.RetryPeriod,
		GracefulShutdownTimeout:             &o.ShutdownTimeout,
	})
	if err != nil {
		return probedManager{}, fmt.Errorf("building the manager: %w", err)
	}

	rotator, err := newCertificateRotator(config, o)
	if err != nil {
		return probedManager{}, err
	}

	m := probedManager{Manager: mgr, probes: newProbes(mgr.Elected()), certificates: rotator}
	if err := errors.Join(serveProbes(ctx, m, o.HealthProbeBindAddress), serveMetrics(ctx, m, o)); err != nil {
		return probedManager{}, err
	}

	return m, nil
}

func addHealth(mgr probedManager, data *sources) error {
	if err := metricsRegistry().Register(leaderGauge(mgr.probes.isLeader)); err != nil {
		return fmt.Errorf("registering the metric of the role: %w", err)
	}

	if err := metricsRegistry().Register(newSourceUpCollector(data.health)); err != nil {
		return fmt.Errorf("registering the metric of data sources: %w", err)
	}

	for _, source := range data.health {
		if err := mgr.Add(source); err != nil {
			return fmt.Errorf("adding the check of a data source: %w", err)
		}
	}

	for name, check := range map[string]healthz.Checker{
		"caches":      cachesSynced(mgr.GetCache()),
		"data-source": anySourceHealthy(data.health),
	} {
		if err := mgr.AddReadyzCheck(name, check); err != nil {
			return fmt.Errorf("adding the readiness check: %w", err)
		}
	}

	return nil
}
