// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package targetsnapshot

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"crane.io/crane/pkg/adoption"
	"crane.io/crane/pkg/scaling"
	"crane.io/crane/pkg/series"
)

// Options are the flags of Auto, which craned and `crane adopt` share.
type Options struct {
	Policy adoption.Policy
	// Windows are pairs of cron expressions, START;END, in TimeZone.
	Windows  []string
	TimeZone string
}

// NewOptions returns the defaults.
func NewOptions() Options { return Options{Policy: adoption.DefaultPolicy(), TimeZone: "UTC"} }

// AddFlags adds a flag for each option.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	p := &o.Policy
	share := func(v *series.Ratio, name, text string) { fs.Float64Var((*float64)(v), name, float64(*v), text) }
	share(&p.Step, "adoption-step", "Share of a request that one step takes away at most.")
	share(&p.PodsAtOnce, "adoption-pods-at-once", "Share of the pods of a workload that are lowered, or restarted, at once.")
	share(&p.BreakerShare, "adoption-breaker-share",
		"Share of the workloads lowered within --adoption-breaker-window that may have got worse before all adoption stops.")
	fs.IntVar(&p.BreakerMinWorkloads, "adoption-breaker-least", p.BreakerMinWorkloads, "Workloads that have to have got worse for that, at least.")
	fs.DurationVar(&p.BreakerWindow, "adoption-breaker-window", p.BreakerWindow, "Time for which --adoption-breaker-share looks back.")
	fs.DurationVar(&p.Watch, "adoption-watch", p.Watch, "Time for which a step down is watched before the next.")
	fs.DurationVar(&p.Settle, "adoption-settle", p.Settle, "Time that nodes get to give pods their new size before the watch goes on without them.")
	fs.DurationVar(&p.PollInterval, "adoption-look-interval", p.PollInterval, "Time between two looks while something is lowered or watched.")
	fs.DurationVar(&p.ReadyGrace, "adoption-ready-grace", p.ReadyGrace, "Time for which a pod may be not ready before that counts as worse.")
	fs.DurationVar(&p.CoolDown, "adoption-cool-down", p.CoolDown, "Time after a roll-back for which nothing of the workload is lowered.")
	fs.IntVar(&p.MaxRollbacks, "adoption-max-rollbacks", p.MaxRollbacks, "Roll-backs in a row after which a person has to look.")
	fs.IntVar(&p.MaxPerNamespace, "adoption-max-per-namespace", p.MaxPerNamespace, "Workloads of a namespace that are being lowered or watched at once.")
	fs.IntVar(&p.MaxPerCluster, "adoption-max-per-cluster", p.MaxPerCluster, "Workloads of the cluster that are being lowered or watched at once.")
	fs.StringArrayVar(&o.Windows, "adoption-window", o.Windows,
		"Maintenance window in which requests may be lowered, as START;END, two cron expressions: '0 22 * * *;0 6 * * *'. May be given again. None: always.")
	fs.StringVar(&o.TimeZone, "adoption-time-zone", o.TimeZone, "Time zone of --adoption-window.")
}

// Settings returns the settings; an error names its flag.
func (o *Options) Settings() (Settings, error) {
	if err := o.Policy.Validate(); err != nil {
		return Settings{}, fmt.Errorf("--adoption-...: %w", err)
	}
	out := Settings{Policy: o.Policy}
	zone, err := time.LoadLocation(o.TimeZone)
	if err != nil {
		return Settings{}, fmt.Errorf("--adoption-time-zone %q: %w", o.TimeZone, err)
	}
	for _, text := range o.Windows {
		start, end, ok := strings.Cut(text, ";")
		if !ok {
			return Settings{}, fmt.Errorf("--adoption-window %q: want START;END", text)
		}
		w, err := scaling.NewCronWindow(text, strings.TrimSpace(start), strings.TrimSpace(end), zone, 0)
		if err != nil {
			return Settings{}, fmt.Errorf("--adoption-window %q: %w", text, err)
		}
		out.Windows = append(out.Windows, w)
	}
	return out, nil
}
