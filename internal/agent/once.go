// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"crane.io/crane/internal/agent/act"
	"crane.io/crane/internal/agent/cluster"
	"crane.io/crane/internal/agent/features"
	"crane.io/crane/internal/agent/host/cgroup"
	"crane.io/crane/internal/agent/inventory"
	"crane.io/crane/internal/agent/kubeletsocket"
	"crane.io/crane/internal/agent/observe"
	"crane.io/crane/internal/agent/signals"
	"crane.io/crane/pkg/qos"
	"crane.io/crane/pkg/units"
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

	state, api, err := o.Cluster.readOnce(ctx, log, clk)
	if err != nil {
		return nil, err
	}

	policy, problems := nodePolicy(state, limits)
	policy.WaterMarks = marks.file.Content()
	layout, missing := o.detectCgroups()
	observer := observe.New(o.hostRoot(), layout)
	assignments, assignmentsErr := kubeletsocket.Read(ctx, kubeletSocket(o))
	kubelet := func() (kubeletsocket.Assignments, error) { return assignments, assignmentsErr }

	observer.SetKubelet(o.KubeletRoot, kubelet)
	observer.SetDiskIOInterval(o.Interval)
	defer observer.Close()

	observer.Collect(clk.Now())
	select {
	case <-ctx.Done():
		return nil, fmt.Errorf("observing the host: %w", ctx.Err())
	case <-clk.After(o.Interval):
	}

	snapshot := observer.Collect(clk.Now())
	pods := o.newInventory(state)
	if !state.KnowsPods {
		pods.ReadNamesFromLogs(o.hostRoot())
	}

	var builder signals.SignalBuilder
	observation := builder.Build(snapshot, pods, act.IsTainted(state.Node))
	r := &onceReport{
		at:          snapshot.At,
		node:        o.Cluster.nodeName(),
		snapshot:    snapshot,
		observation: observation,
		policy:      policy,
		problems:    problems,
	}

	r.features = o.hostFeatures(layoutOrNil(layout, missing), missing, snapshot, kubelet)
	r.zones = o.readZones(ctx, api, state.Node, kubelet, clk)
	r.notes = append(append(r.notes, state.Note), state.Unavailable...)
	if note := o.predecessorNote(state, snapshot); note != "" {
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
func (o *Options) hostFeatures(layout *cgroup.Layout, missing error, s *observe.Snapshot, kubelet kubeletsocket.Source) []features.Feature {
	host := features.Host{
		Root:              o.hostRoot(),
		KubeletRoot:       o.KubeletRoot,
		Assignments:       kubelet,
		Layout:            layout,
		LayoutError:       missing,
		UnusedReasons:     o.unusedFeatures(),
		CyclesUnsupported: o.cyclesUnsupported(layout),
	}

	return append(features.List(host, s), o.enforceFeatures(layout)...)
}

func layoutOrNil(l cgroup.Layout, missing error) *cgroup.Layout {
	if missing != nil {
		return nil
	}

	return &l
}

// rules prints the rules and the actions they would take.
func (r *onceReport) rules(w io.Writer) {
	for _, p := range r.problems {
		fmt.Fprintln(w, "\nProblem:", p)
	}

	if len(r.policy.Rules) == 0 {
		return
	}

	r.section(w, []any{"RULE", "METRIC", "VALUE", "THRESHOLD", "NOW", "IF IT LASTS", "ACTION"}, r.ruleRows)
	fmt.Fprintln(w)

	// Gaps first, then reasons: a rule that does not fire may have only a reason.
	for i, f := range r.plan.Rules {
		if f.Gap > 0 {
			fmt.Fprintf(w, "%s: to release, with a margin: %s; %s is being released, %s would be released now, %s would remain\n",
				f.Rule, formatAmount(f.Resource, f.Gap), formatAmount(f.Resource, f.PendingRelease), formatAmount(f.Resource, max(0, f.Gap-f.PendingRelease-f.Shortfall)), formatAmount(f.Resource, f.Shortfall))
		}

		if f.Reason != "" {
			fmt.Fprintf(w, "%s: %s\n", r.policy.Rules[i].Name, f.Reason)
		}
	}

	keep := "no"
	if r.plan.Avoid.Desired {
		keep = "yes"
	}

	fmt.Fprintf(w, "New pods would be kept away: %s (%s)\n", keep, r.plan.Avoid.Reason)
	r.eachAction(func(preview bool, a qos.Actions) { printActions(w, preview, a) })
}

func (r *onceReport) ruleRows(row func(...any)) {
	for i, f := range r.plan.Rules {
		rule := &r.policy.Rules[i]
		value := unknown
		lasts := "nothing"

		if f.Phase != qos.Unknown {
			value = qos.FormatValue(f.Value, f.Unit)
		}

		now := string(f.Phase)
		if f.Phase == qos.Firing {
			lasts = fmt.Sprintf("fires after %d in a row", rule.TriggerCount)
			now = "above"
		}

		action := rule.Action.Name
		if rule.Preview {
			action += " (preview)"
		}

		row(f.Rule, rule.Metric, value, qos.FormatValue(f.Threshold, f.Unit), now, lasts, action)
	}
}

func printActions(w io.Writer, preview bool, a qos.Actions) {
	would := "Would"
	if preview {
		would = "In preview, would only report that it would"
	}

	for _, t := range a.Throttles {
		fmt.Fprintf(w, "%s limit %s container %s from %s to %s, which frees %s, by rule %s: %s\n",
			would, t.Pod, t.ContainerName, t.From, t.To, formatAmount(units.CPU, float64(t.Freed)), t.Rule, t.Reason)
	}

	for _, t := range a.MemoryThrottles {
		fmt.Fprintf(w, "%s limit memory of %s container %s from %s to %s, which frees %s, by rule %s: %s\n",
			would, t.Pod, t.ContainerName, t.From, t.To, formatAmount(units.Memory, float64(t.Freed)), t.Rule, t.Reason)
	}

	for _, e := range a.Evictions {
		fmt.Fprintf(w, "%s evict %s with a grace period of %s%s, by rule %s: %s\n", would, e.Pod, e.GracePeriod, freedText(e), e.Rule, e.Reason)
	}
}

// freedText describes what an eviction releases; empty if its rule measures no amount.
func freedText(e qos.Eviction) string {
	if e.Resource != units.CPU && e.Resource != units.Memory {
		return ""
	}

	return ", which frees " + formatAmount(e.Resource, e.Freed)
}

func formatAmount(resource units.Resource, v float64) string {
	if resource == units.CPU {
		return fmt.Sprintf("%.3f cores", v/1000)
	}

	return units.FormatMiB(units.Bytes(v))
}
