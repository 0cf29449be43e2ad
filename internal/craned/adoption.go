// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package craned

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"crane.io/crane/internal/adoption/controller"
	"crane.io/crane/internal/adoption/foreignvpa"
	"crane.io/crane/internal/adoption/poddryrun"
	"crane.io/crane/internal/adoption/targetindex"
	"crane.io/crane/internal/adoption/targetsnapshot"
	newpods "crane.io/crane/internal/adoption/webhook"
	"crane.io/crane/internal/component/featuregate"
	"crane.io/crane/internal/component/wallclock"
)

// adoptionController is the name of the controller that applies recommended values to their targets.
const adoptionController = "adoption"

// replayedInterval is the longest time between two readings of usage after which a sample is known within the delay of the reaction, two
// minutes after it began.
const replayedInterval = time.Minute

// Adoption are the settings of Recommendations whose adoptionType is Auto.
type Adoption struct {
	DryRun bool
	// ReactionInterval is the time between two readings of the usage of calibrated workloads; 0 for no reaction.
	ReactionInterval time.Duration
	targetsnapshot.Options
}

func newAdoption() Adoption {
	return Adoption{Options: targetsnapshot.NewOptions(), ReactionInterval: time.Minute}
}

func (a *Adoption) addFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&a.DryRun, "adoption-dry-run", a.DryRun,
		"Dry run: record planned changes in status.adoption.dryRun and apply none.")
	fs.DurationVar(&a.ReactionInterval, "adoption-reaction-interval", a.ReactionInterval,
		"Interval at which the CPU usage of calibrated workloads with adoptionType Auto is read, to raise their pods within the day: "+
			"one query per namespace. 0 turns the reaction off. Above 1m, recommendations are calibrated without it.")
	a.AddFlags(fs)
}

// reactsAsReplayed reports whether usage above a request is acted on within the delay that a replay of the reaction assumes.
func (o *Options) reactsAsReplayed() bool {
	a := o.Adoption
	return o.runsController(adoptionController) && !a.DryRun && a.ReactionInterval > 0 && a.ReactionInterval <= replayedInterval
}

func (a *Adoption) validate() field.ErrorList {
	var errs field.ErrorList
	if _, err := a.Settings(); err != nil {
		errs = append(errs, field.Invalid(flag("adoption"), "", err.Error()))
	}
	if a.ReactionInterval < 0 || a.ReactionInterval > time.Hour {
		errs = append(errs, field.Invalid(flag("adoption-reaction-interval"), a.ReactionInterval.String(), "must be 0 to 1h"))
	}

	return errs
}

// addTargets adds the index from a target to its Recommendations, which rules, adoption and vertical autoscalers use.
func addTargets(ctx context.Context, d *dependencies) error {
	if !d.FeatureGates.Enabled(featuregate.Analysis) && !d.FeatureGates.Enabled(featuregate.Autoscaling) {
		return nil
	}

	return targetindex.AddIndex(ctx, d.mgr.GetFieldIndexer())
}

// addAdoption adds the controller and the mutator that apply recommended values.
func addAdoption(ctx context.Context, d *dependencies) error {
	settings, err := d.Adoption.Settings()
	if err != nil {
		return err
	}

	settings.DryRun = d.Adoption.DryRun
	cfg := controller.Config{
		Settings:        settings,
		SystemNamespace: d.Namespace,
		Pause:           d.pause,
		Registry:        metricsRegistry(),
		Clock:           wallclock.New(),
		Notify:          d.notify,
	}

	// Throttling rates and the reaction within the day need PromQL.
	if d.source != nil {
		cfg.Reaction = d.source
		cfg.ReactionInterval = d.Adoption.ReactionInterval
		cfg.Throttling = &controller.PrometheusThrottling{Querier: d.source, Clock: wallclock.New()}
	}

	if d.recorder != nil {
		cfg.Kills = d.recorder
		cfg.Wake = controller.WakeOnKills(d.recorder.OnRecorded)
	}

	pods := poddryrun.New(d.mgr.GetClient(), d.mgr.GetAPIReader(), d.Namespace, wallclock.New())
	if err := d.mgr.Add(pods); err != nil {
		return fmt.Errorf("adding the dry runs of adoption: %w", err)
	}

	cfg.Pods = pods
	cfg.VPAs = foreignvpa.NewFinder(d.mgr.GetAPIReader(), d.mapper)
	if err := controller.AddToManager(d.mgr, cfg); err != nil {
		return fmt.Errorf("adding adoption: %w", err)
	}

	// The webhook gives new pods the adopted requests, which a dry run must not.
	if !d.Webhook.Enabled || d.Adoption.DryRun {
		return nil
	}

	find, err := newpods.NewCacheFinder(ctx, d.mgr.GetCache())
	if err != nil {
		return fmt.Errorf("adding the pod webhook of adoption: %w", err)
	}

	limits, err := newpods.NewCacheLimits(ctx, d.mgr.GetCache())
	if err != nil {
		return fmt.Errorf("adding the pod webhook of adoption: %w", err)
	}

	mutator := newpods.NewMutator(find, limits)
	if err := metricsRegistry().Register(mutator); err != nil {
		return fmt.Errorf("registering the metrics of the adoption of new pods: %w", err)
	}

	d.mutators = append(d.mutators, mutator)
	return nil
}
