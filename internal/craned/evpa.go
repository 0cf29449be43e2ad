// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package craned

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"crane.io/crane/internal/autoscaling/controller/evpa"
	"crane.io/crane/internal/component/wallclock"
	"crane.io/crane/internal/metrics/profile"
)

// effectiveVPAController is the name of the controller behind EffectiveVerticalPodAutoscaler.
const effectiveVPAController = "effectivevpa"

// VerticalAutoscaling are the settings of EffectiveVerticalPodAutoscalers.
type VerticalAutoscaling struct {
	// Every is the interval between two evaluations of a namespace; Fresh is the maximum age of cached history.
	Every, Fresh time.Duration
}

func newVerticalAutoscaling() VerticalAutoscaling {
	return VerticalAutoscaling{Every: time.Minute, Fresh: 15 * time.Minute}
}

func (v *VerticalAutoscaling) addFlags(fs *pflag.FlagSet) {
	fs.DurationVar(&v.Every, "evpa-interval", v.Every,
		"Interval at which the EffectiveVerticalPodAutoscalers of a namespace are evaluated.")
	fs.DurationVar(&v.Fresh, "evpa-history-interval", v.Fresh,
		"Maximum age of the usage history of their workloads before it is read again.")
}

func (v *VerticalAutoscaling) validate() field.ErrorList {
	var errs field.ErrorList
	for name, d := range map[string]time.Duration{"evpa-interval": v.Every, "evpa-history-interval": v.Fresh} {
		if d <= 0 {
			errs = append(errs, notPositive(name, d))
		}
	}

	return errs
}

// addVerticalAutoscaling adds the controller behind EffectiveVerticalPodAutoscaler.
func addVerticalAutoscaling(_ context.Context, d *dependencies) error {
	cfg := evpa.Config{
		// Recorded OOM kills are read besides the history, because they are available at once.
		History:  profile.Source{Capabilities: d.data.history()},
		Interval: d.VerticalAutoscaling.Every, HistoryMaxAge: d.VerticalAutoscaling.Fresh,
		Mapper: d.mapper, Registry: metricsRegistry(), Clock: wallclock.New(),
	}

	if d.recorder != nil {
		cfg.Kills = d.recorder
	}

	if err := evpa.AddToManager(d.mgr, cfg); err != nil {
		return fmt.Errorf("adding the controller of effective VPAs: %w", err)
	}

	return nil
}
