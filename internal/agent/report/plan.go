// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"crane.io/crane/pkg/qos"
	"crane.io/crane/pkg/series"
)

// ReportPlan reports the state of rules and the actions that are not enforced. Enforced actions are reported with their outcome.
func (t *Reporter) ReportPlan(plan *qos.Plan) {
	t.mu.Lock()
	defer t.mu.Unlock()

	for _, status := range t.rules {
		status.seen = false
	}

	for i := range plan.Rules {
		t.reportRule(plan, &plan.Rules[i])
	}

	for name, status := range t.rules {
		if !status.seen {
			t.reportEnded(name, status, "the rule was deleted")
			t.metrics.removeRule(name)
			delete(t.rules, name)
		}
	}

	for i := range plan.Previews {
		p := &plan.Previews[i]
		t.reportEachOnce(p.Actions, Previewed)
	}

	t.reportNotEnforced(plan)
	t.setExecutorMetrics(plan)
}

func (t *Reporter) reportRule(plan *qos.Plan, f *qos.Finding) {
	status := t.rules[f.Rule]
	if status == nil {
		status = &ruleStatus{key: keyOf(f.Rule), reported: map[string]bool{}}
		t.rules[f.Rule] = status
	}

	status.seen = true
	status.action = f.Action
	fires := f.Phase == qos.Firing || f.Phase == qos.Falling || f.Phase == qos.Held
	t.metrics.setRule(status.key, f, fires)
	t.setPreviewMetrics(plan, f)

	if status.phase != f.Phase {
		t.cfg.Log.Info("rule is "+string(f.Phase), "rule", f.Rule, "value", f.Value, "above", f.Threshold, "unit", f.Unit, "count", f.Count, "needed", f.Needed, "why", f.Reason)
		status.phase = f.Phase
	}

	switch {
	case fires && !status.firing:
		t.reportFiring(plan, f, status)
	case !fires && status.firing:
		why := describeMeasurement(f, "not above")
		if f.Phase == qos.Unknown {
			why = f.Reason
		}

		t.reportEnded(f.Rule, status, why)
	}

	if by := f.Withheld; by != status.withheld && f.Phase == qos.Firing {
		status.withheld = by
		t.reportWithheld(f)
	}
}

// describeMeasurement describes a rule's measurement and its side of the threshold.
func describeMeasurement(f *qos.Finding, side string) string {
	times := fmt.Sprintf("%d times in a row", f.Count)
	if f.Count == 1 {
		times = "once"
	}

	return fmt.Sprintf("%s, %s %s, %s", qos.FormatValue(f.Value, f.Unit), side, qos.FormatValue(f.Threshold, f.Unit), times)
}

// reportFiring reports that a rule fires.
func (t *Reporter) reportFiring(plan *qos.Plan, f *qos.Finding, status *ruleStatus) {
	status.firing = true
	t.metrics.analyzed.WithLabelValues(keyOf(f.Rule), typeAvoidance).Inc()

	text := fmt.Sprintf("%s triggered action %s: %s", f.Rule, f.Action, describeMeasurement(f, "above"))
	if doing := t.plannedActions(plan, f); doing != "" {
		text += "; " + doing
	}
	if f.Reason != "" {
		text += "; " + f.Reason
	}

	t.cfg.Log.Info("rule fires", "rule", f.Rule, "action", f.Action, "value", f.Value, "above", f.Threshold, "unit", f.Unit, "preview", f.Preview, "why", f.Reason)
	r := newRuleRecord(RuleFires, f)
	if f.Preview {
		r.Outcome = Previewed
	}

	t.writeAudit(r)
	t.writeEvent(qos.PodRef{}, corev1.EventTypeWarning, reasonTriggered, f.Rule, text)
}

// reportEnded reports that a rule has ended.
func (t *Reporter) reportEnded(rule string, status *ruleStatus, why string) {
	clear(status.reported)
	status.withheld = qos.NotWithheld
	if !status.firing {
		return
	}

	status.firing = false
	t.metrics.analyzed.WithLabelValues(keyOf(rule), typeRestore).Inc()
	t.cfg.Log.Info("rule has ended", "rule", rule, "action", status.action, "why", why)
	t.writeAudit(Record{
		Action:          RuleEnds,
		Outcome:         Done,
		Rule:            rule,
		AvoidanceAction: status.action,
		Reason:          why,
	})

	t.writeEvent(qos.PodRef{}, corev1.EventTypeNormal, reasonRestored, rule, fmt.Sprintf("%s restored action %s: %s", rule, status.action, why))
}

// reportWithheld reports why a firing rule evicts no or too few pods, once when that begins.
func (t *Reporter) reportWithheld(f *qos.Finding) {
	if f.Withheld == qos.NotWithheld || f.Withheld == qos.WithheldForMetric {
		return
	}

	t.metrics.withheld.WithLabelValues(f.Rule, string(f.Withheld)).Inc()
	t.cfg.Log.Info("evictions are withheld", "rule", f.Rule, "by", string(f.Withheld), "why", f.Reason)
	r := newRuleRecord(Evict, f)
	r.Outcome = Withheld
	t.writeAudit(r)
	t.writeEvent(qos.PodRef{}, corev1.EventTypeWarning, reasonWithheld, f.Rule+" "+string(f.Withheld), fmt.Sprintf("%s: %s", f.Rule, f.Reason))
}

func newRuleRecord(kind Kind, f *qos.Finding) Record {
	return Record{
		Action:          kind,
		Outcome:         Done,
		Rule:            f.Rule,
		AvoidanceAction: f.Action,
		Value:           &f.Value,
		Threshold:       &f.Threshold,
		Unit:            f.Unit,
		Gap:             f.Gap,
		Reason:          f.Reason,
	}
}

// plannedActions describes the actions planned for a rule.
func (t *Reporter) plannedActions(plan *qos.Plan, f *qos.Finding) string {
	actions := plan.Actions
	var parts []string
	if f.Preview {
		parts = append(parts, "in preview, nothing is done")
		for i := range plan.Previews {
			if plan.Previews[i].Rule == f.Rule {
				actions = plan.Previews[i].Actions
			}
		}
	}

	add := func(kind Kind, does, would string, pods []string) {
		if len(pods) == 0 {
			return
		}

		if f.Preview || !t.cfg.Enforced(kind) {
			does = would
		}
		parts = append(parts, does+" "+listPods(pods))
	}

	add(CPUThrottle, "throttles", "would throttle", podsOfRule(actions.Throttles, f.Rule, func(t *qos.Throttle) (string, qos.PodRef) { return t.Rule, t.Pod }))
	add(MemoryThrottle, "throttles memory of", "would throttle memory of",
		podsOfRule(actions.MemoryThrottles, f.Rule, func(t *qos.MemoryThrottle) (string, qos.PodRef) { return t.Rule, t.Pod }))
	add(Evict, "evicts", "would evict", podsOfRule(actions.Evictions, f.Rule, func(e *qos.Eviction) (string, qos.PodRef) { return e.Rule, e.Pod }))

	return strings.Join(parts, "; ")
}

// podsOfRule returns the pods of a rule's actions.
func podsOfRule[T any](list []T, rule string, of func(*T) (rule string, pod qos.PodRef)) (pods []string) {
	for i := range list {
		if name, pod := of(&list[i]); name == rule {
			pods = append(pods, pod.String())
		}
	}

	return pods
}

// listPods lists the first pods and the number of the others.
func listPods(pods []string) string {
	if more := len(pods) - maxNamedPods; more > 0 {
		return strings.Join(pods[:maxNamedPods], ", ") + fmt.Sprintf(" and %d more", more)
	}

	return strings.Join(pods, ", ")
}

// reportNotEnforced reports planned actions of kinds that are not enforced.
func (t *Reporter) reportNotEnforced(plan *qos.Plan) {
	actions := plan.Actions
	if t.cfg.Enforced(CPUThrottle) {
		actions.Throttles = nil
	}
	if t.cfg.Enforced(MemoryThrottle) {
		actions.MemoryThrottles = nil
	}
	if t.cfg.Enforced(Evict) {
		actions.Evictions = nil
	}

	t.reportEachOnce(actions, NotEnforced)
	if t.cfg.Enforced(Taint) || plan.Avoid.Desired == t.avoided {
		return
	}

	t.avoided = plan.Avoid.Desired
	a := Action{Kind: Untaint, Outcome: NotEnforced, Reason: plan.Avoid.Reason}
	if t.avoided {
		a.Kind = Taint
	}

	t.reportAction(a)
}

// reportEachOnce reports each action once while its rule fires, since it is planned again at each measurement.
func (t *Reporter) reportEachOnce(actions qos.Actions, outcome Outcome) {
	for i := range actions.Throttles {
		a := &actions.Throttles[i]
		t.reportOnce(a.Rule, a.ContainerID, throttleAction(a, outcome))
	}

	for i := range actions.MemoryThrottles {
		a := &actions.MemoryThrottles[i]
		t.reportOnce(a.Rule, a.ContainerID, memoryThrottleAction(a, outcome))
	}

	for i := range actions.Evictions {
		a := &actions.Evictions[i]
		t.reportOnce(a.Rule, a.Pod.UID, evictionAction(a, outcome))
	}
}

func (t *Reporter) reportOnce(rule, id string, a Action) {
	status := t.rules[rule]
	key := string(a.Kind) + " " + id
	if status == nil || status.reported[key] || len(status.reported) >= maxTracked {
		return
	}

	status.reported[key] = true
	if a.Outcome == Previewed {
		t.metrics.previews.WithLabelValues(rule, string(a.Kind)).Inc()
	}

	t.reportAction(a)
}

// setPreviewMetrics sets what the plan of a rule in preview would release.
func (t *Reporter) setPreviewMetrics(plan *qos.Plan, f *qos.Finding) {
	if !f.Preview {
		t.metrics.previewCores.DeleteLabelValues(f.Rule)
		t.metrics.previewBytes.DeleteLabelValues(f.Rule)
		return
	}

	var cores, bytes float64
	for i := range plan.Previews {
		if p := &plan.Previews[i]; p.Rule == f.Rule {
			for j := range p.Throttles {
				cores += float64(p.Throttles[j].Freed) / milli
			}

			for j := range p.MemoryThrottles {
				bytes += float64(p.MemoryThrottles[j].Freed)
			}

			for j := range p.Evictions {
				switch e := &p.Evictions[j]; e.Resource {
				case series.CPU:
					cores += e.Freed / milli
				case series.Memory:
					bytes += e.Freed
				case qos.Disks, qos.NoResource:
				}
			}
		}
	}

	t.metrics.previewCores.WithLabelValues(f.Rule).Set(cores)
	t.metrics.previewBytes.WithLabelValues(f.Rule).Set(bytes)
}

// setExecutorMetrics sets the metrics of the enforced actions.
func (t *Reporter) setExecutorMetrics(plan *qos.Plan) {
	t.metrics.analyzer.WithLabelValues("", typeScheduling).Set(boolValue(!plan.Avoid.Desired))
	if t.cfg.Enforced(Taint) {
		t.metrics.executor.WithLabelValues(schedule, avoid).Set(boolValue(plan.Avoid.Desired))
		t.metrics.executor.WithLabelValues(schedule, restore).Set(boolValue(!plan.Avoid.Desired))
	}

	if t.cfg.Enforced(CPUThrottle) {
		takes := false
		gives := false
		for i := range plan.Throttles {
			takes = takes || plan.Throttles[i].Freed > 0
			gives = gives || plan.Throttles[i].Freed < 0
		}

		t.metrics.executor.WithLabelValues(throttle, avoid).Set(boolValue(takes))
		t.metrics.executor.WithLabelValues(throttle, restore).Set(boolValue(gives))
	}

	if t.cfg.Enforced(Evict) {
		t.metrics.executor.WithLabelValues(evict, avoid).Set(boolValue(len(plan.Evictions) > 0))
	}
}
