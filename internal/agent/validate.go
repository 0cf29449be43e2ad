// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"net"
	"os"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"crane.io/crane/internal/component/featuregate"
)

const minInactivity = 10 * time.Second

func invalid(flag string, value any, why string) *field.Error {
	if d, ok := value.(time.Duration); ok {
		value = d.String() // instead of a number of nanoseconds
	}
	return field.Invalid(field.NewPath("--"+flag), value, why)
}

// Validate returns the invalid flags.
func (o *Options) Validate() field.ErrorList {
	var errs field.ErrorList
	if o.Output != outputTable && o.Output != outputJSON {
		errs = append(errs, field.NotSupported(field.NewPath("--output"), o.Output, []string{outputTable, outputJSON}))
	}
	if o.Scenario != "" && o.Replay != "" {
		errs = append(errs, invalid("replay", o.Replay, "must not be set together with --scenario"))
	}
	if o.Scenario != "" || o.Replay != "" {
		return errs
	}
	errs = append(errs, o.validateMode()...)
	errs = append(errs, o.validateServing()...)
	errs = append(errs, o.Eviction.validate()...)
	errs = append(errs, o.Reclaim.validate()...)
	errs = append(errs, o.CPUs.validate()...)
	if o.FeatureGates.Enabled(featuregate.CraneCPUManager) && !o.FeatureGates.Enabled(featuregate.NodeResourceTopology) {
		errs = append(errs, invalid("feature-gates", featuregate.CraneCPUManager, fmt.Sprintf("also requires %s=true", featuregate.NodeResourceTopology)))
	}
	errs = append(errs, o.validateActing()...)
	errs = append(errs, o.Log.Validate()...)
	if o.Interval < minInterval || o.Interval > maxInterval {
		errs = append(errs, invalid("collect-interval", o.Interval, fmt.Sprintf("must be from %s to %s", minInterval, maxInterval)))
	}
	if info, err := os.Stat(o.HostRoot); err != nil || !info.IsDir() {
		errs = append(errs, invalid("host-root", o.HostRoot, "must be a directory"))
	}
	if o.Pods != "" && o.Kubeconfig != "" {
		errs = append(errs, invalid("pods", o.Pods, "must not be set together with --kubeconfig"))
	}
	if o.NodeLabels != "" && o.Kubeconfig != "" {
		errs = append(errs, invalid("node-labels", o.NodeLabels, "must not be set together with --kubeconfig: they are those of the Node"))
	}
	if _, err := o.excess(); err != nil {
		errs = append(errs, invalid("execute-excess", o.Excess, err.Error()))
	}
	if _, err := labels.ConvertSelectorToLabelsMap(o.NodeLabels); err != nil {
		errs = append(errs, invalid("node-labels", o.NodeLabels, err.Error()))
	}
	return errs
}

// validateMode validates the flags that select what is executed.
func (o *Options) validateMode() field.ErrorList {
	var errs field.ErrorList
	if o.DryRun == (len(o.Enforce) > 0) {
		errs = append(errs, invalid("dry-run", o.DryRun, "must be set together with either --dry-run or --enforce"))
	}
	if o.Once && !o.DryRun {
		errs = append(errs, invalid("once", o.Once, "requires --dry-run"))
	}
	if len(o.Enforce) > 0 && !o.usesAPIServer() && o.NodeLabels == "" {
		errs = append(errs, invalid("enforce", o.Enforce, "requires --kubeconfig or --node-labels to select the NodeQOS of the node"))
	}
	for _, e := range o.Enforce {
		i := slices.IndexFunc(enforceKinds(), func(k enforceKind) bool { return k.name == e })
		switch {
		case i < 0:
			errs = append(errs, field.NotSupported(field.NewPath("--enforce"), e, enforceKindNames()))
		case enforceKinds()[i].needsAPIServer && !o.usesAPIServer():
			errs = append(errs, invalid("enforce", e, "requires an API server (--kubeconfig)"))
		case enforceKinds()[i].gate != "" && !o.FeatureGates.Enabled(enforceKinds()[i].gate):
			errs = append(errs, invalid("enforce", e, fmt.Sprintf("requires --feature-gates=%s=true", enforceKinds()[i].gate)))
		}
	}
	return errs
}

func (o *Options) validateServing() field.ErrorList {
	var errs field.ErrorList
	if o.serves() {
		if o.MetricsSecure && !o.usesAPIServer() {
			errs = append(errs, invalid("metrics-secure", "true", "needs an API server, which decides who may read metrics"))
		}
		if _, _, err := net.SplitHostPort(o.BindAddress); err != nil {
			errs = append(errs, invalid("bind-address", o.BindAddress, err.Error()))
		}
	}
	if o.MaxInactivity < minInactivity {
		errs = append(errs, invalid("max-inactivity", o.MaxInactivity, fmt.Sprintf("must be at least %s", minInactivity)))
	}
	if o.StopTimeout < time.Second {
		errs = append(errs, invalid("stop-timeout", o.StopTimeout, "must be at least 1s"))
	}
	if o.RestartGrace < 0 || o.RestartGrace > maxRestartGrace {
		errs = append(errs, invalid("restart-grace-period", o.RestartGrace, fmt.Sprintf("must be from 0 to %s", maxRestartGrace)))
	}
	return errs
}

// serves reports whether --bind-address is served.
func (o *Options) serves() bool { return o.BindAddress != "" && o.BindAddress != "0" }

// validateActing validates the bounds and the reports of actions.
func (o *Options) validateActing() field.ErrorList {
	var errs field.ErrorList
	if o.EvictionBudget < 0 || o.EvictionBudget > maxBudget {
		errs = append(errs, invalid("eviction-budget", o.EvictionBudget, fmt.Sprintf("must be from 0 to %d", maxBudget)))
	}
	if o.BudgetWindow < minBudgetWindow || o.BudgetWindow > maxBudgetWindow {
		errs = append(errs, invalid("eviction-budget-window", o.BudgetWindow, fmt.Sprintf("must be from %s to %s", minBudgetWindow, maxBudgetWindow)))
	}
	if o.RecordBytes < minRecordBytes {
		errs = append(errs, invalid("record-max-bytes", o.RecordBytes, fmt.Sprintf("must be at least %d", minRecordBytes)))
	}
	if o.Record != "" && o.Once {
		errs = append(errs, invalid("record", o.Record, "must not be set together with --once"))
	}
	if o.AuditBytes < minAuditBytes {
		errs = append(errs, invalid("audit-max-bytes", o.AuditBytes, fmt.Sprintf("must be at least %d", minAuditBytes)))
	}
	return errs
}
