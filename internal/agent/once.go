// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"slices"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"crane.io/crane/internal/agent/act"
	"crane.io/crane/internal/agent/cluster"
	"crane.io/crane/internal/agent/features"
	"crane.io/crane/internal/agent/host/cgroup"
	"crane.io/crane/internal/agent/inventory"
	"crane.io/crane/internal/agent/observe"
	"crane.io/crane/internal/agent/signals"
	"crane.io/crane/pkg/qos"
)

// observeOnce takes two snapshots and decides once.
func observeOnce(ctx context.Context, o *Options, clk clock.WithTicker) (*onceReport, error) {
	log := logr.FromContextOrDiscard(ctx)
	marks, err := o.newWaterMarks(log, clk)
	if err != nil {
		return nil, err
	}
	limits, err := o.limits()
	if err != nil {
		return nil, err
	}
	state, api, err := o.readOnce(ctx, log, clk)
	if err != nil {
		return nil, err
	}
	policy, problems := nodePolicy(state, limits)
	policy.WaterMarks = marks.file.Content()
	layout, missing := cgroup.Detect(o.hostRoot())
	observer := observe.New(o.hostRoot(), layout)
	observer.SetKubeletDir(o.KubeletRoot)
	observer.SetDiskIOInterval(o.Interval)
	defer observer.Close()
	observer.Collect(clk.Now())
	select {
	case <-ctx.Done():
		return nil, fmt.Errorf("observe the host: %w", ctx.Err())
	case <-clk.After(o.Interval):
	}
	snapshot := observer.Collect(clk.Now())
	pods := o.newInventory(state)
	if !state.KnowsPods {
		pods.ReadNamesFromLogs(o.hostRoot())
	}
	var eyes signals.SignalBuilder
	observation := eyes.Build(snapshot, pods, act.IsTainted(state.Node))
	r := &onceReport{at: snapshot.At, node: o.nodeName(), snapshot: snapshot, observation: observation, policy: policy, problems: problems}
	r.features, r.zones = o.hostFeatures(layoutOrNil(layout, missing), missing, snapshot), o.readZones(ctx, api, state.Node, clk)
	r.notes = append(append(r.notes, state.Note), state.Unavailable...)
	if note := o.predecessorNote(state); note != "" {
		r.notes = append(r.notes, note)
	}
	if state.Rules.NodeQOS != nil && state.Node == nil {
		r.notes = append(r.notes, "the node's labels are unknown (--node-labels): every NodeQOS applies")
	}
	if n := len(state.Rules.NodeQOS); n > 0 && len(policy.Rules) == 0 {
		r.notes = append(r.notes, fmt.Sprintf("none of the %d NodeQOS has a usable rule for this node", n))
	}
	// A single measurement does not fire a rule: show the result if it lasts, with the required number of measurements.
	lasting := policy
	lasting.Rules = slices.Clone(policy.Rules)
	for i := range lasting.Rules {
		lasting.Rules[i].TriggerCount = 1
	}
	r.plan = qos.Decide(&lasting, observation, o.restoredState(log, snapshot.At))
	return r, nil
}

// newInventory returns the node's pods with the properties that their rules and the eviction policy give them.
func (o *Options) newInventory(s *cluster.State) inventory.Pods {
	rules := s.Rules.PodRules()
	pods := inventory.New(s.Pods, rules.Allowed, o.Eviction.blockReason)
	pods.MarkSensitive(rules.CPUPriority)
	pods.SetOffered(s.Node)
	return pods
}

// hostFeatures returns the host's features and whether flags let the agent use them.
func (o *Options) hostFeatures(layout *cgroup.Layout, missing error, s *observe.Snapshot) []features.Feature {
	host := features.Host{Root: o.hostRoot(), KubeletRoot: o.KubeletRoot, Layout: layout, LayoutError: missing, UnusedReasons: o.unusedFeatures(), CyclesUnsupported: o.cyclesUnsupported(layout)}
	return append(features.List(host, s), o.enforceFeatures(layout)...)
}

func layoutOrNil(l cgroup.Layout, missing error) *cgroup.Layout {
	if missing != nil {
		return nil
	}
	return &l
}
