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
	"crane.io/crane/pkg/units"
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
	share := func(v *units.Ratio, name, text string) { fs.Float64Var((*float64)(v), name, float64(*v), text) }
	share(&p.Step, "adoption-step", "Maximum share of a request by which one step lowers it.")
	share(&p.PodsAtOnce, "adoption-pods-at-once", "Maximum share of the pods of a workload that are lowered, or restarted, at once.")
	share(&p.BreakerShare, "adoption-breaker-share",
		"Maximum share of the workloads lowered within --adoption-breaker-window that may degrade. Above it the circuit breaker opens: "+
			"adoption stops in their namespace, or everywhere if several namespaces degrade.")
	fs.IntVar(&p.BreakerMinWorkloads, "adoption-breaker-least", p.BreakerMinWorkloads, "Minimum number of degraded workloads that opens the circuit breaker.")
	fs.DurationVar(&p.BreakerWindow, "adoption-breaker-window", p.BreakerWindow, "Length of the window of --adoption-breaker-share.")
	fs.DurationVar(&p.Watch, "adoption-watch", p.Watch, "Time for which the pods are watched after a step down, before the next step.")

	fs.DurationVar(&p.Settle, "adoption-settle", p.Settle, "Maximum time to wait until nodes have resized the pods of a step.")
	fs.DurationVar(&p.PollInterval, "adoption-look-interval", p.PollInterval, "Interval at which workloads that are lowered or watched are evaluated.")
	fs.DurationVar(&p.ReadyGrace, "adoption-ready-grace", p.ReadyGrace, "Grace period of an unready pod before the workload counts as degraded.")
	fs.DurationVar(&p.CoolDown, "adoption-cool-down", p.CoolDown, "Time after a rollback during which no request of the workload is lowered.")
	fs.IntVar(&p.MaxRollbacks, "adoption-max-rollbacks", p.MaxRollbacks, "Number of consecutive rollbacks after which adoption of the workload stops. Deleting its adoption annotation starts it again.")
	fs.IntVar(&p.MaxPerNamespace, "adoption-max-per-namespace", p.MaxPerNamespace, "Maximum number of workloads of a namespace that are lowered or watched at once.")
	fs.IntVar(&p.MaxPerCluster, "adoption-max-per-cluster", p.MaxPerCluster, "Maximum number of workloads of the cluster that are lowered or watched at once.")
	fs.StringArrayVar(&o.Windows, "adoption-window", o.Windows,
		"Maintenance window in which requests may be lowered: START;END, two cron expressions, such as '0 22 * * *;0 6 * * *'. May be repeated. If empty, requests are lowered at any time.")
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
