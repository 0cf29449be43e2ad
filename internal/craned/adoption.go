// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package craned

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/clock"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	shared "crane.io/crane/internal/adoption"
	"crane.io/crane/internal/controller/adoption"
	"crane.io/crane/internal/controller/targets"
	newpods "crane.io/crane/internal/webhook/adoption"
	decide "crane.io/crane/pkg/adoption"
	"crane.io/crane/pkg/scaling"
	"crane.io/crane/pkg/series"
)

// adoptionController is the name of what brings recommended values to their targets.
const adoptionController = "adoption"

// Adoption are the settings of Recommendations whose adoptionType is Auto.
type Adoption struct {
	DryRun bool
	Policy decide.Policy
	// Windows are pairs of cron expressions, START;END; TimeZone is where their clock hangs.
	Windows  []string
	TimeZone string
}

func newAdoption() Adoption { return Adoption{Policy: decide.DefaultPolicy(), TimeZone: "UTC"} }

func (a *Adoption) addFlags(fs *pflag.FlagSet) {
	p := &a.Policy
	fs.BoolVar(&a.DryRun, "adoption-dry-run", a.DryRun,
		"Say in the status of Recommendations with adoptionType Auto what would be sent, and send nothing.")
	share := func(v *series.Ratio, name, text string) { fs.Float64Var((*float64)(v), name, float64(*v), text) }
	share(&p.Step, "adoption-step", "Share of a request that one step takes away at most.")
	share(&p.PodsAtOnce, "adoption-pods-at-once", "Share of the pods of a workload that are lowered, or restarted, at once.")
	share(&p.BreakerShare, "adoption-breaker-share",
		"Share of the workloads lowered within --adoption-breaker-window that may have got worse before all adoption stops.")
	fs.IntVar(&p.BreakerLeast, "adoption-breaker-least", p.BreakerLeast, "Workloads that have to have got worse for that, at least.")
	fs.DurationVar(&p.BreakerWindow, "adoption-breaker-window", p.BreakerWindow, "Time for which --adoption-breaker-share looks back.")
	fs.DurationVar(&p.Watch, "adoption-watch", p.Watch, "Time for which a step down is watched before the next.")
	fs.DurationVar(&p.Settle, "adoption-settle", p.Settle, "Time that nodes get to give pods their new size before the watch goes on without them.")
	fs.DurationVar(&p.Look, "adoption-look-interval", p.Look, "Time between two looks while something is lowered or watched.")
	fs.DurationVar(&p.ReadyGrace, "adoption-ready-grace", p.ReadyGrace, "Time for which a pod may be not ready before that counts as worse.")
	fs.DurationVar(&p.CoolDown, "adoption-cool-down", p.CoolDown, "Time after a roll-back for which nothing of the workload is lowered.")
	fs.IntVar(&p.MaxRollbacks, "adoption-max-rollbacks", p.MaxRollbacks, "Roll-backs in a row after which a person has to look.")
	fs.IntVar(&p.PerNamespace, "adoption-max-per-namespace", p.PerNamespace, "Workloads of a namespace that are being lowered or watched at once.")
	fs.IntVar(&p.PerCluster, "adoption-max-per-cluster", p.PerCluster, "Workloads of the cluster that are being lowered or watched at once.")
	fs.StringArrayVar(&a.Windows, "adoption-window", a.Windows,
		"Maintenance window in which requests may be lowered, as START;END, two cron expressions: '0 22 * * *;0 6 * * *'. May be given again. None: always.")
	fs.StringVar(&a.TimeZone, "adoption-time-zone", a.TimeZone, "Time zone of --adoption-window.")
}

func (a *Adoption) validate() field.ErrorList {
	var errs field.ErrorList
	if err := a.Policy.Validate(); err != nil {
		errs = append(errs, field.Invalid(flag("adoption"), "", err.Error()))
	}
	if _, err := a.windows(); err != nil {
		errs = append(errs, field.Invalid(flag("adoption-window"), strings.Join(a.Windows, ", "), err.Error()))
	}
	return errs
}

func (a *Adoption) windows() ([]scaling.CronWindow, error) {
	zone, err := time.LoadLocation(a.TimeZone)
	if err != nil {
		return nil, fmt.Errorf("--adoption-time-zone %q: %w", a.TimeZone, err)
	}
	var out []scaling.CronWindow
	for _, text := range a.Windows {
		start, end, ok := strings.Cut(text, ";")
		if !ok {
			return nil, fmt.Errorf("%q: want START;END", text)
		}
		w, err := scaling.NewCronWindow(text, strings.TrimSpace(start), strings.TrimSpace(end), zone, 0)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", text, err)
		}
		out = append(out, w)
	}
	return out, nil
}

// addTargets adds the index by which the Recommendations of a target are found.
func addTargets(ctx context.Context, p *parts) error {
	return targets.AddIndex(ctx, p.mgr.GetFieldIndexer()) //nolint:wrapcheck // It says what was indexed.
}

// addAdoption adds what brings recommended values to their targets.
func addAdoption(ctx context.Context, p *parts) error {
	windows, err := p.Adoption.windows()
	if err != nil {
		return err
	}
	cfg := adoption.Config{
		Settings: shared.Settings{DryRun: p.Adoption.DryRun, Policy: p.Adoption.Policy, Windows: windows},
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
