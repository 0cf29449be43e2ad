// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"slices"

	"k8s.io/component-base/featuregate"

	"crane.io/crane/internal/agent/features"
	"crane.io/crane/internal/agent/host/cgroup"
	gates "crane.io/crane/internal/component/featuregate"
)

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
		why := ""
		switch {
		case k.changesHost && layout == nil:
			why = "there are no cgroups"
		case k.unsupported != nil && layout != nil:
			why = k.unsupported(*layout)
		}
		switch {
		case why != "":
			f.State, f.Reason = features.Unsupported, why
		case o.DryRun:
			f.State, f.Reason = features.Off, "--dry-run: actions are only reported"
		case !o.enforces(k.name):
			f.State, f.Reason = features.Off, "not named by --enforce: actions are only reported"
		}
		out = append(out, f)
	}
	return out
}
