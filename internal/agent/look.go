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

// look looks at the host twice and decides once.
func look(ctx context.Context, o *Options, clk clock.WithTicker) (*report, error) {
	log := logr.FromContextOrDiscard(ctx)
	marks, err := o.newMarks(log, clk)
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
	policy, problems := policyOf(state, limits)
	policy.Marks = marks.file.Content()
	layout, missing := cgroup.Detect(o.root())
	observer := observe.New(o.root(), layout)
	observer.KubeletAt(o.KubeletRoot)
	observer.SampleTransfers(o.Interval)
	defer observer.Close()
	observer.Look(clk.Now())
	select {
	case <-ctx.Done():
		return nil, fmt.Errorf("look at the host: %w", ctx.Err())
	case <-clk.After(o.Interval):
	}
	snapshot := observer.Look(clk.Now())
	pods := podsOf(state)
	if !state.KnowsPods {
		pods.NameFromLogs(o.root())
	}
	var eyes signals.Sense
	observation := eyes.Observe(snapshot, pods, act.Tainted(state.Node))
	r := &report{at: snapshot.At, node: o.node(), snapshot: snapshot, observation: observation, policy: policy, problems: problems, known: pods.Known()}
	r.features, r.zones = o.features(present(layout, missing), missing, snapshot), o.seeZones(ctx, api, state.Node, clk)
	r.notes = append(append(r.notes, state.Note), state.Unheard...)
	if state.Rules.NodeQOS != nil && state.Node == nil {
		r.notes = append(r.notes, "the node's labels are not known (--node-labels): every NodeQOS is taken")
	}
	if n := len(state.Rules.NodeQOS); n > 0 && len(policy.Rules) == 0 {
		r.notes = append(r.notes, fmt.Sprintf("no rule of the %d NodeQOS is for this node, or none of them can be used", n))
	}
	// One measurement is not several in a row: what is shown is what happens if it lasts, with the number that is needed.
	lasting := policy
	lasting.Rules = slices.Clone(policy.Rules)
	for i := range lasting.Rules {
		lasting.Rules[i].Trigger = 1
	}
	r.plan = qos.Decide(&lasting, observation, o.recall(log, snapshot.At))
	return r, nil
}

// podsOf are the pods of a node with what rules say of them.
func podsOf(s *cluster.State) inventory.Pods {
	rules := s.Rules.PodRules()
	pods := inventory.New(s.Pods, rules.Allowed)
	pods.Rank(rules.CPUPriority)
	pods.Offer(s.Node)
	return pods
}

// features are those of the host, and what of them the flags let the agent use.
func (o *Options) features(layout *cgroup.Layout, missing error, s *observe.Snapshot) []features.Feature {
	host := features.Host{Root: o.root(), Kubelet: o.KubeletRoot, Layout: layout, Missing: missing, Unused: o.unused(), Uncountable: o.uncountable(layout)}
	return append(features.Report(host, s), o.actions(layout)...)
}

func present(l cgroup.Layout, missing error) *cgroup.Layout {
	if missing != nil {
		return nil
	}
	return &l
}
