// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package craned

import (
	"context"
	"fmt"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation/field"
	policyclient "k8s.io/client-go/kubernetes/typed/policy/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"crane.io/crane/internal/adoption/optoutlist"
	"crane.io/crane/internal/component/wallclock"
	"crane.io/crane/internal/kube/optout"
	"crane.io/crane/internal/metrics/prometheus"
	nodeloadcontroller "crane.io/crane/internal/nodeload/controller"
	"crane.io/crane/internal/nodeload/controller/rebalancer"
	"crane.io/crane/internal/nodeload/policyfile"
	"crane.io/crane/pkg/nodeload"
)

func addRebalanceFlags(fs *pflag.FlagSet, s *rebalancer.Settings) {
	fs.BoolVar(&s.DryRun, "rebalance-dry-run", s.DryRun,
		"Dry run: report which pods would be moved off hot nodes, and move none. Only nodes with water marks in the policy are evaluated.")
	fs.DurationVar(&s.Interval, "rebalance-interval", s.Interval, "Interval at which the loads of nodes are evaluated.")
	fs.IntVar(&s.Rounds, "rebalance-rounds", s.Rounds, "Number of consecutive readings above the water mark evict before pods are moved.")
	fs.IntVar(&s.PerRound, "rebalance-max-moves", s.PerRound, "Maximum number of pods that are moved at once in the cluster.")
	fs.IntVar(&s.PerNode, "rebalance-max-moves-per-node", s.PerNode, "Maximum number of pods that are moved off one node at once.")

	fs.IntVar(&s.PerHour, "rebalance-max-moves-per-hour", s.PerHour, "Maximum number of pods that are moved in any hour.")
	fs.DurationVar(&s.CoolDown, "rebalance-cool-down", s.CoolDown,
		"Time after a move during which no pod of the same node or workload is moved.")
	fs.StringSliceVar(&s.Schedulers, "rebalance-schedulers", s.Schedulers,
		"Names of the scheduler profiles that run plugin Dynamic. Only pods with one of them as schedulerName are moved.")
	fs.StringSliceVar(&s.Protected, "rebalance-protected-namespaces", s.Protected, "Namespaces whose pods are never moved.")
}

func validateRebalance(s rebalancer.Settings) field.ErrorList {
	var errs field.ErrorList
	if s.Interval <= 0 {
		errs = append(errs, notPositive("rebalance-interval", s.Interval))
	}
	if s.CoolDown < 0 {
		errs = append(errs, field.Invalid(flag("rebalance-cool-down"), s.CoolDown.String(), "must be 0 or more"))
	}

	for _, limit := range []struct {
		name string
		n    int
	}{
		{"rebalance-rounds", s.Rounds},
		{"rebalance-max-moves", s.PerRound},
		{"rebalance-max-moves-per-node", s.PerNode},
		{"rebalance-max-moves-per-hour", s.PerHour},
	} {
		if limit.n < 1 {
			errs = append(errs, field.Invalid(flag(limit.name), limit.n, "must be 1 or more"))
		}
	}

	if len(s.Schedulers) == 0 {
		errs = append(errs, field.Required(flag("rebalance-schedulers"), "names the schedulers whose pods may be moved"))
	}

	return errs
}

// addScheduling adds the enabled controllers that support schedulers. All of them use one policy file.
func addScheduling(ctx context.Context, d *dependencies) error {
	mgr := d.mgr
	o := d.Options
	policy, err := o.NodeLoad.openPolicy(ctx)
	if err != nil {
		return err
	}

	if err := metricsRegistry().Register(policy); err != nil {
		return fmt.Errorf("registering the metrics of the node-load policy: %w", err)
	}

	format, err := o.NodeLoad.format()
	if err != nil {
		return fmt.Errorf("--node-load-time-zone: %w", err)
	}

	// Loads of nodes come from Prometheus, or the metrics server, and from forecasts.
	follower := nodeloadcontroller.Follower{Policy: policy, Events: mgr.GetEventRecorder("craned"), Namespace: o.Namespace}
	if o.runsController(nodeLoadController) {
		models, err := d.predictor(ctx)
		if err != nil {
			return err
		}

		usages, err := nodeloadcontroller.NewMetricsServer(mgr.GetConfig())
		if err != nil {
			return err
		}

		sources := nodeloadcontroller.Sources{MetricsServer: usages, Forecast: nodeloadcontroller.NewPeaks(models, wallclock.New())}
		if d.source != nil {
			sources.Prometheus = d.source
		}

		writer, err := addNodeLoad(mgr, o, policy, format, sources)
		if err != nil {
			return err
		}

		follower.Loaded = writer.Wake
	}

	// Rebalancing needs current usage, which only Prometheus has.
	switch {
	case !o.runsController(rebalanceController):
	case d.source == nil:
		ctrl.LoggerFrom(ctx).Info("controllers are left out, because --datasource lacks their source", "controllers", rebalanceController, "source", dataSourceProm)
	default:
		if err := addRebalance(mgr, o, policy, format, d.source); err != nil {
			return err
		}
	}

	if err := mgr.Add(follower); err != nil {
		return fmt.Errorf("adding the follower of the node-load policy: %w", err)
	}

	return nil
}

// addRebalance adds the controller that evicts pods from hot nodes.
func addRebalance(mgr manager.Manager, o *Options, policy *policyfile.File, format nodeload.Format, source *prometheus.Source) error {
	clients, err := policyclient.NewForConfig(mgr.GetConfig())
	if err != nil {
		return fmt.Errorf("building the client of evictions: %w", err)
	}

	// Each controller has a rate limit of its own for patches of nodes.
	patches, err := nodeloadcontroller.NewPatcher(mgr.GetConfig(), o.NodeLoad.APIQPS, max(1, int(o.NodeLoad.APIQPS)))
	if err != nil {
		return err
	}

	metrics := rebalancer.NewMetrics()
	controller, err := rebalancer.New(rebalancer.Config{
		Settings: o.Rebalance,
		Policy:   policy,
		Format:   format,
		Nodes:    mgr.GetCache(),
		Live:     mgr.GetAPIReader(),
		OptOuts: func(ctx context.Context) (optout.Set, error) {
			return optoutlist.Read(ctx, mgr.GetAPIReader(), mgr.GetScheme())
		},
		Usage:   source,
		Evictor: rebalancer.APIEvictor{Client: clients},
		Patches: patches,
		Events:  mgr.GetEventRecorder("craned"),
		Metrics: metrics,
		Clock:   wallclock.New(),
	})
	if err != nil {
		return fmt.Errorf("building the rebalancing controller: %w", err)
	}

	if err := metricsRegistry().Register(metrics); err != nil {
		return fmt.Errorf("registering the metrics of rebalancing: %w", err)
	}

	if err := mgr.Add(controller); err != nil {
		return fmt.Errorf("adding the rebalancing controller: %w", err)
	}

	return nil
}
