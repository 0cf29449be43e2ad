// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package messy_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	autoscalingv1alpha1 "crane.io/crane/api/autoscaling/v1alpha1"
	"crane.io/crane/internal/adoption/controller"
	"crane.io/crane/internal/adoption/foreignvpa"
	"crane.io/crane/internal/adoption/poddryrun"
	"crane.io/crane/internal/adoption/targetindex"
	"crane.io/crane/internal/adoption/targetsnapshot"
	newpods "crane.io/crane/internal/adoption/webhook"
	"crane.io/crane/internal/kube/podwebhook"
	"crane.io/crane/internal/testbed/controlplane"
)

const systemNamespace = "crane-system"

// shutdown bounds the wait for the end of a craned.
const shutdown = 5 * time.Second

func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, analysisv1alpha1.AddToScheme, autoscalingv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("building the scheme: %w", err)
		}
	}

	return scheme, nil
}

// craned is the adoption of craned in this process, with its rights and its pod webhook.
type craned struct {
	wake  chan event.TypedGenericEvent[targetindex.Key]
	chain *admission.Webhook
	stop  context.CancelFunc
	ended chan error
}

// cranedConfig is what the crane of a batch has in common.
type cranedConfig struct {
	clock    *jumpClock
	settings targetsnapshot.Settings
	// writes records the requests of craned.
	writes *recorder
}

// shiftedManager is a manager whose API reader shifts times.
type shiftedManager struct {
	manager.Manager
	clock *jumpClock
}

// GetAPIReader implements manager.Manager.
func (m shiftedManager) GetAPIReader() client.Reader {
	return shiftedReader{m.Manager.GetAPIReader(), m.clock}
}

// startCraned runs craned until stop is called.
func startCraned(ctx context.Context, cfg cranedConfig) (*craned, error) {
	to, err := control.ConfigFor(ctx, controlplane.ServiceAccount(systemNamespace, "craned"))
	if err != nil {
		return nil, err
	}

	to.Wrap(cfg.writes.wrap)
	mgr, err := newManager(to)
	if err != nil {
		return nil, err
	}

	c := &craned{wake: make(chan event.TypedGenericEvent[targetindex.Key], 1000), ended: make(chan error, 1)}
	if err := c.addAdoption(ctx, shiftedManager{mgr, cfg.clock}, cfg); err != nil {
		return nil, err
	}

	running, stop := context.WithCancel(ctx)
	c.stop = stop
	go func() { c.ended <- mgr.Start(running) }()
	if !mgr.GetCache().WaitForCacheSync(running) {
		return nil, errors.Join(errors.New("the caches of craned are not filled"), c.close())
	}

	return c, nil
}

func newManager(to *rest.Config) (manager.Manager, error) {
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}

	mgr, err := ctrl.NewManager(to, manager.Options{
		Scheme:                  scheme,
		Cache:                   cache.Options{DefaultTransform: cache.TransformStripManagedFields()},
		Metrics:                 metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress:  "0",
		GracefulShutdownTimeout: new(shutdown),
		// Each restart adds the controller again.
		Controller: config.Controller{SkipNameValidation: new(true)},
	})
	if err != nil {
		return nil, fmt.Errorf("building the manager: %w", err)
	}

	return mgr, nil
}

// addAdoption adds what package craned adds for adoption, without metrics of usage.
func (c *craned) addAdoption(ctx context.Context, mgr manager.Manager, cfg cranedConfig) error {
	if err := targetindex.AddIndex(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}

	pods := poddryrun.New(mgr.GetClient(), mgr.GetAPIReader(), systemNamespace, cfg.clock)
	if err := mgr.Add(pods); err != nil {
		return err
	}

	err := controller.AddToManager(mgr, controller.Config{
		Settings:        cfg.settings,
		SystemNamespace: systemNamespace,
		Registry:        prometheus.NewRegistry(),
		Clock:           cfg.clock,
		Pods:            pods,
		VPAs:            foreignvpa.NewFinder(mgr.GetAPIReader(), mgr.GetRESTMapper()),
		Wake:            c.wake,
	})
	if err != nil {
		return err
	}

	find, err := newpods.NewCacheFinder(ctx, mgr.GetCache())
	if err != nil {
		return err
	}

	limits, err := newpods.NewCacheLimits(ctx, mgr.GetCache())
	if err != nil {
		return err
	}

	chain := podwebhook.NewChain([]podwebhook.Mutator{newpods.NewMutator(find, limits)}, "kube-system", systemNamespace)
	c.chain = &admission.Webhook{Handler: chain}
	return nil
}

// close stops craned in the middle of what it does.
func (c *craned) close() error {
	c.stop()
	return <-c.ended
}

// wakeTarget lets craned decide about a target now.
func (c *craned) wakeTarget(key targetindex.Key) {
	c.wake <- event.TypedGenericEvent[targetindex.Key]{Object: key}
}
