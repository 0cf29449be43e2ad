// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package craned

import (
	"context"
	"fmt"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/clock"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	shared "crane.io/crane/internal/adoption"
	"crane.io/crane/internal/controller/adoption"
	"crane.io/crane/internal/controller/targets"
	newpods "crane.io/crane/internal/webhook/adoption"
)

// adoptionController is the name of what brings recommended values to their targets.
const adoptionController = "adoption"

// Adoption are the settings of Recommendations whose adoptionType is Auto.
type Adoption struct {
	DryRun bool
	shared.Options
}

func newAdoption() Adoption { return Adoption{Options: shared.NewOptions()} }

func (a *Adoption) addFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&a.DryRun, "adoption-dry-run", a.DryRun,
		"Say in the status of Recommendations with adoptionType Auto what would be sent, and send nothing.")
	a.AddFlags(fs)
}

func (a *Adoption) validate() field.ErrorList {
	if _, err := a.Settings(); err != nil {
		return field.ErrorList{field.Invalid(flag("adoption"), "", err.Error())}
	}
	return nil
}

// addTargets adds the index by which the Recommendations of a target are found.
func addTargets(ctx context.Context, p *parts) error {
	return targets.AddIndex(ctx, p.mgr.GetFieldIndexer()) //nolint:wrapcheck // It says what was indexed.
}

// addAdoption adds what brings recommended values to their targets.
func addAdoption(ctx context.Context, p *parts) error {
	settings, err := p.Adoption.Settings()
	if err != nil {
		return err //nolint:wrapcheck // It names the flag.
	}
	settings.DryRun = p.Adoption.DryRun
	cfg := adoption.Config{
		Settings: settings,
		Registry: ctrlmetrics.Registry, Clock: clock.RealClock{},
	}
	if p.source != nil {
		cfg.Throttling = &adoption.PrometheusThrottling{Querier: p.source, Clock: clock.RealClock{}}
	}
	if p.recorder != nil {
		cfg.Kills, cfg.Wake = p.recorder, adoption.WakeOn(p.recorder.Tell)
	}
	if err := adoption.AddToManager(p.mgr, cfg); err != nil {
		return fmt.Errorf("adding adoption: %w", err)
	}
	if !p.Webhook.Enabled || p.Adoption.DryRun {
		return nil
	}
	find, err := newpods.InCache(ctx, p.mgr.GetCache())
	if err != nil {
		return fmt.Errorf("adding what gives new pods the adopted requests: %w", err)
	}
	p.mutators = append(p.mutators, newpods.Mutator{Find: find})
	return nil
}
