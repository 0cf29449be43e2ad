// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/component-base/featuregate"
	"k8s.io/utils/clock"

	"crane.io/crane/internal/agent/features"
	"crane.io/crane/internal/agent/host/cgroup"
	"crane.io/crane/internal/component/configfile"
	gates "crane.io/crane/internal/component/featuregate"
	"crane.io/crane/internal/nodeload/policyfile"
	"crane.io/crane/pkg/units"
)

const (
	minInactivity = 10 * time.Second
	// maxStartSpread is well below the wait for heartbeats.
	maxStartSpread = 2 * time.Minute
)

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
	errs = append(errs, o.Cluster.validate()...)
	if o.PodGroup != "" && !filepath.IsLocal(strings.Trim(o.PodGroup, "/")) {
		errs = append(errs, invalid("pod-cgroup", o.PodGroup, "must be a path below the cgroup hierarchies"))
	}
	if o.Interval < minInterval || o.Interval > maxInterval {
		errs = append(errs, invalid("collect-interval", o.Interval, fmt.Sprintf("must be from %s to %s", minInterval, maxInterval)))
	}

	errs = append(errs, o.validateServing()...)
	errs = append(errs, o.Eviction.validate()...)

	errs = append(errs, o.Reclaim.validate()...)
	errs = append(errs, o.CPUs.validate()...)
	if o.FeatureGates.Enabled(gates.CraneCPUManager) && !o.FeatureGates.Enabled(gates.NodeResourceTopology) {
		errs = append(errs, invalid("feature-gates", gates.CraneCPUManager, fmt.Sprintf("also requires %s=true", gates.NodeResourceTopology)))
	}

	errs = append(errs, o.validateActing()...)
	errs = append(errs, o.Log.Validate()...)
	if info, err := os.Stat(o.HostRoot); err != nil || !info.IsDir() {
		errs = append(errs, invalid("host-root", o.HostRoot, "must be a directory"))
	}
	if _, err := o.excess(); err != nil {
		errs = append(errs, invalid("execute-excess", o.Excess, err.Error()))
	}

	return errs
}

// validateMode validates the flags that select what is executed.
func (o *Options) validateMode() field.ErrorList {
	var errs field.ErrorList
	if o.CleanUp {
		if o.DryRun || len(o.Enforce) > 0 {
			errs = append(errs, invalid("cleanup", o.CleanUp, "excludes --dry-run and --enforce"))
		}

		return errs
	}

	// What is executed must be chosen: the default is neither to watch nor to act.
	if o.DryRun == (len(o.Enforce) > 0) {
		errs = append(errs, invalid("dry-run", o.DryRun, "must be set together with either --dry-run or --enforce"))
	}
	if o.Once && !o.DryRun {
		errs = append(errs, invalid("once", o.Once, "requires --dry-run"))
	}
	if len(o.Enforce) > 0 && !o.Cluster.usesAPIServer() && o.Cluster.NodeLabels == "" {
		errs = append(errs, invalid("enforce", o.Enforce, "requires --kubeconfig or --node-labels to select the NodeQOS of the node"))
	}

	for _, e := range o.Enforce {
		i := slices.IndexFunc(enforceKinds(), func(k enforceKind) bool { return k.name == e })
		switch {
		case i < 0:
			errs = append(errs, field.NotSupported(field.NewPath("--enforce"), e, enforceKindNames()))
		case enforceKinds()[i].needsAPIServer && !o.Cluster.usesAPIServer():
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
		if o.MetricsSecure && !o.Cluster.usesAPIServer() {
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

// Kinds of actions for --enforce; all others are only reported.
const (
	enforceThrottle     = "cpu-throttle"
	enforceMemory       = "memory-throttle"
	enforceEvict        = "evict"
	enforceTaint        = "taint"
	enforceNodeResource = "node-resource"
	enforcePodResource  = "pod-resource"
	enforceCPUManager   = "cpu-manager"
)

// enforceKind is a kind of action that can be enforced.
type enforceKind struct {
	name string
	// gate is the feature gate of the part; empty for none.
	gate featuregate.Feature
	// needsAPIServer reports that it writes to the API server, changesHost that it writes files of the host through the journal.
	needsAPIServer, changesHost bool
	// unsupported returns why a host does not support it, empty if it does; nil if every host does.
	unsupported func(cgroup.Layout) string
}

// memoryHighMissing returns why a host does not support memory throttling.
func memoryHighMissing(l cgroup.Layout) string {
	switch {
	case l.Version != cgroup.V2:
		return fmt.Sprintf("cgroup %s", l.Version)
	case l.Pods != "" && !l.HasFile("memory", cgroup.FileHigh):
		return "no memory.high"
	}

	return ""
}

// enforceKinds returns the kinds this version can enforce.
func enforceKinds() []enforceKind {
	return []enforceKind{
		{name: enforceThrottle, changesHost: true},
		{name: enforceMemory, changesHost: true, unsupported: memoryHighMissing},
		{name: enforceEvict, needsAPIServer: true},
		{name: enforceTaint, needsAPIServer: true},
		{name: enforceNodeResource, gate: gates.NodeResource, needsAPIServer: true},
		{name: enforcePodResource, gate: gates.PodResource, changesHost: true},
		{name: enforceCPUManager, gate: gates.CraneCPUManager, changesHost: true},
	}
}

func enforceKindNames() []string {
	var out []string
	for _, k := range enforceKinds() {
		out = append(out, k.name)
	}

	return out
}

// enforces reports whether a kind of action is executed.
func (o *Options) enforces(name string) bool { return !o.DryRun && slices.Contains(o.Enforce, name) }

// enforceFeatures returns the kinds as features, on if they are executed.
func (o *Options) enforceFeatures(layout *cgroup.Layout) []features.Feature {
	var out []features.Feature
	for _, k := range enforceKinds() {
		f := features.Feature{Name: "enforce-" + k.name, State: features.On}
		// A host that cannot do it explains more than a flag that does not ask for it.
		why := ""
		switch {
		case k.changesHost && layout == nil:
			why = "there are no cgroups"
		case k.unsupported != nil && layout != nil:
			why = k.unsupported(*layout)
		}

		switch {
		case why != "":
			f.State = features.Unsupported
			f.Reason = why
		case o.DryRun:
			f.State = features.Off
			f.Reason = "--dry-run: actions are only reported"
		case !o.enforces(k.name):
			f.State = features.Off
			f.Reason = "not named by --enforce: actions are only reported"
		}

		out = append(out, f)
	}

	return out
}

// waterMarks are the water marks of the scheduler's policy, which also bound evictions. As a manager it follows the policy file.
type waterMarks struct {
	file *configfile.File[map[units.Resource]units.Ratio]
	log  logr.Logger
}

// newWaterMarks reads --policy-config-path; without it there are none.
func (o *Options) newWaterMarks(log logr.Logger, clk clock.WithTicker) (waterMarks, error) {
	if o.PolicyConfig == "" {
		return waterMarks{configfile.Fixed[map[units.Resource]units.Ratio](nil, clk), log}, nil
	}

	file, err := configfile.Open(o.PolicyConfig, configfile.DefaultInterval, clk, decodeWaterMarks)
	if err != nil {
		return waterMarks{}, fmt.Errorf("--policy-config-path: %w", err)
	}

	return waterMarks{file, log}, nil
}

func decodeWaterMarks(content []byte) (map[units.Resource]units.Ratio, error) {
	policy, err := policyfile.Decode(content)
	if err != nil {
		return nil, fmt.Errorf("water marks: %w", err)
	}

	out := map[units.Resource]units.Ratio{}
	for resource, m := range policy.Marks {
		out[resource] = m.Evict
	}

	return out, nil
}

// Name implements Manager.
func (waterMarks) Name() string { return "water-marks" }

// Run implements Manager.
func (m waterMarks) Run(ctx context.Context) error {
	m.file.Run(ctx, configfile.Observer[map[units.Resource]units.Ratio]{
		Loaded: func(map[units.Resource]units.Ratio) {
			m.log.Info("loaded the changed water marks of the scheduler's policy")
		},
		Rejected: func(err error) {
			m.log.Error(err, "loading the scheduler's policy; keeping the previous water marks")
		},
	})

	return nil
}
