// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"crane.io/crane/pkg/qos"
	"crane.io/crane/pkg/units"
)

// ReportPlan reports the state of rules and the actions that are not enforced. Enforced actions are reported with their outcome.
func (r *Reporter) ReportPlan(plan *qos.Plan) {
	r.mu.Lock()
	defer r.mu.Unlock()

	for _, status := range r.rules {
		status.seen = false
	}

	for i := range plan.Rules {
		r.reportRule(plan, &plan.Rules[i])
	}

	// A deleted rule ends, and its series with it.
	for name, status := range r.rules {
		if !status.seen {
			r.reportEnded(name, status, "the rule was deleted")
			r.metrics.removeRule(name)
			delete(r.rules, name)
		}
	}

	for i := range plan.Previews {
		p := &plan.Previews[i]
		r.reportEachOnce(p.Actions, Previewed)
	}

	r.reportNotEnforced(plan)
	r.setExecutorMetrics(plan)
}

func (r *Reporter) reportRule(plan *qos.Plan, f *qos.Finding) {
	status := r.rules[f.Rule]
	if status == nil {
		status = &ruleStatus{key: keyOf(f.Rule), reported: map[string]bool{}}
		r.rules[f.Rule] = status
	}

	status.seen = true
	status.action = f.Action
	fires := f.Phase == qos.Firing || f.Phase == qos.Falling || f.Phase == qos.Held
	r.metrics.setRule(status.key, f, fires)
	r.setPreviewMetrics(plan, f)

	if status.phase != f.Phase {
		r.cfg.Log.Info("rule has another phase", "rule", f.Rule, "phase", string(f.Phase), "value", f.Value, "threshold", f.Threshold, "unit", f.Unit, "count", f.Count, "needed", f.Needed, "reason", f.Reason)
		status.phase = f.Phase
	}

	// Events are written when a rule begins to fire and when it ends, not at each measurement.
	switch {
	case fires && !status.firing:
		r.reportFiring(plan, f, status)
	case !fires && status.firing:
		why := describeMeasurement(f, "not above")
		if f.Phase == qos.Unknown {
			why = f.Reason
		}

		r.reportEnded(f.Rule, status, why)
	}

	if f.Withheld != status.withheld && f.Phase == qos.Firing {
		status.withheld = f.Withheld
		r.reportWithheld(f)
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
func (r *Reporter) reportFiring(plan *qos.Plan, f *qos.Finding, status *ruleStatus) {
	status.firing = true
	r.metrics.analyzed.WithLabelValues(keyOf(f.Rule), typeAvoidance).Inc()

	text := fmt.Sprintf("%s triggered action %s: %s", f.Rule, f.Action, describeMeasurement(f, "above"))
	if actions := r.plannedActions(plan, f); actions != "" {
		text += "; " + actions
	}
	if f.Reason != "" {
		text += "; " + f.Reason
	}

	r.cfg.Log.Info("rule fires", "rule", f.Rule, "action", f.Action, "value", f.Value, "threshold", f.Threshold, "unit", f.Unit, "dryRun", f.Preview, "reason", f.Reason)
	record := newRuleRecord(RuleFires, f)
	if f.Preview {
		record.Outcome = Previewed
	}

	r.writeAudit(record)
	r.writeEvent(qos.PodRef{}, corev1.EventTypeWarning, reasonTriggered, f.Rule, text)
}

// reportEnded reports that a rule has ended.
func (r *Reporter) reportEnded(rule string, status *ruleStatus, why string) {
	clear(status.reported)
	status.withheld = qos.NotWithheld
	if !status.firing {
		return
	}

	status.firing = false
	r.metrics.analyzed.WithLabelValues(keyOf(rule), typeRestore).Inc()
	r.cfg.Log.Info("rule has ended", "rule", rule, "action", status.action, "reason", why)
	r.writeAudit(Record{
		Action:          RuleEnds,
		Outcome:         Done,
		Rule:            rule,
		AvoidanceAction: status.action,
		Reason:          why,
	})

	r.writeEvent(qos.PodRef{}, corev1.EventTypeNormal, reasonRestored, rule, fmt.Sprintf("%s restored action %s: %s", rule, status.action, why))
}

// reportWithheld reports why a firing rule evicts no or too few pods, once when that begins.
func (r *Reporter) reportWithheld(f *qos.Finding) {
	if f.Withheld == qos.NotWithheld || f.Withheld == qos.WithheldForMetric {
		return
	}

	r.metrics.withheld.WithLabelValues(f.Rule, string(f.Withheld)).Inc()
	r.cfg.Log.Info("evictions are withheld", "rule", f.Rule, "cause", string(f.Withheld), "reason", f.Reason)
	record := newRuleRecord(Evict, f)
	record.Outcome = Withheld
	r.writeAudit(record)
	r.writeEvent(qos.PodRef{}, corev1.EventTypeWarning, reasonWithheld, f.Rule+" "+string(f.Withheld), fmt.Sprintf("%s: %s", f.Rule, f.Reason))
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
func (r *Reporter) plannedActions(plan *qos.Plan, f *qos.Finding) string {
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

	// An action that is not enforced is described as one that would be taken.
	add := func(kind Kind, does, would string, pods []string) {
		if len(pods) == 0 {
			return
		}

		if f.Preview || !r.cfg.Enforced(kind) {
			does = would
		}
		parts = append(parts, does+" "+units.FormatFirst(pods, maxNamedPods))
	}

	add(CPUThrottle, "throttles", "would throttle", podsOfRule(actions.Throttles, f.Rule, func(t *qos.Throttle) (string, qos.PodRef) { return t.Rule, t.Pod }))
	add(MemoryThrottle, "throttles memory of", "would throttle memory of",
		podsOfRule(actions.MemoryThrottles, f.Rule, func(t *qos.MemoryThrottle) (string, qos.PodRef) { return t.Rule, t.Pod }))
	add(Evict, "evicts", "would evict", podsOfRule(actions.Evictions, f.Rule, func(e *qos.Eviction) (string, qos.PodRef) { return e.Rule, e.Pod }))

	return strings.Join(parts, "; ")
}

// podsOfRule returns the pods of a rule's actions.
func podsOfRule[T any](list []T, rule string, ruleAndPod func(*T) (rule string, pod qos.PodRef)) (pods []string) {
	for i := range list {
		if name, pod := ruleAndPod(&list[i]); name == rule {
			pods = append(pods, pod.String())
		}
	}

	return pods
}

// reportNotEnforced reports planned actions of kinds that are not enforced.
func (r *Reporter) reportNotEnforced(plan *qos.Plan) {
	actions := plan.Actions
	if r.cfg.Enforced(CPUThrottle) {
		actions.Throttles = nil
	}
	if r.cfg.Enforced(MemoryThrottle) {
		actions.MemoryThrottles = nil
	}
	if r.cfg.Enforced(Evict) {
		actions.Evictions = nil
	}

	r.reportEachOnce(actions, NotEnforced)
	if r.cfg.Enforced(Taint) || plan.Avoid.Desired == r.avoided {
		return
	}

	r.avoided = plan.Avoid.Desired
	a := Action{Kind: Untaint, Outcome: NotEnforced, Reason: plan.Avoid.Reason}
	if r.avoided {
		a.Kind = Taint
	}

	r.reportAction(a)
}

// reportEachOnce reports each action once while its rule fires, since it is planned again at each measurement.
func (r *Reporter) reportEachOnce(actions qos.Actions, outcome Outcome) {
	for i := range actions.Throttles {
		a := &actions.Throttles[i]
		r.reportOnce(a.Rule, a.ContainerID, throttleAction(a, outcome))
	}

	for i := range actions.MemoryThrottles {
		a := &actions.MemoryThrottles[i]
		r.reportOnce(a.Rule, a.ContainerID, memoryThrottleAction(a, outcome))
	}

	for i := range actions.Evictions {
		a := &actions.Evictions[i]
		r.reportOnce(a.Rule, a.Pod.UID, evictionAction(a, outcome))
	}
}

func (r *Reporter) reportOnce(rule, id string, a Action) {
	status := r.rules[rule]
	key := string(a.Kind) + " " + id
	if status == nil || status.reported[key] || len(status.reported) >= maxTracked {
		return
	}

	status.reported[key] = true
	if a.Outcome == Previewed {
		r.metrics.previews.WithLabelValues(rule, string(a.Kind)).Inc()
	}

	r.reportAction(a)
}

// setPreviewMetrics sets what the plan of a rule in preview would release.
func (r *Reporter) setPreviewMetrics(plan *qos.Plan, f *qos.Finding) {
	if !f.Preview {
		r.metrics.previewCores.DeleteLabelValues(f.Rule)
		r.metrics.previewBytes.DeleteLabelValues(f.Rule)
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
				case units.CPU:
					cores += e.Freed / milli
				case units.Memory:
					bytes += e.Freed
				case qos.Disks, qos.NoResource:
				}
			}
		}
	}

	r.metrics.previewCores.WithLabelValues(f.Rule).Set(cores)
	r.metrics.previewBytes.WithLabelValues(f.Rule).Set(bytes)
}

// setExecutorMetrics sets the metrics of the enforced actions.
func (r *Reporter) setExecutorMetrics(plan *qos.Plan) {
	r.metrics.analyzer.WithLabelValues("", typeScheduling).Set(boolValue(!plan.Avoid.Desired))
	if r.cfg.Enforced(Taint) {
		r.metrics.executor.WithLabelValues(schedule, avoid).Set(boolValue(plan.Avoid.Desired))
		r.metrics.executor.WithLabelValues(schedule, restore).Set(boolValue(!plan.Avoid.Desired))
	}

	if r.cfg.Enforced(CPUThrottle) {
		throttles := false
		restores := false
		for i := range plan.Throttles {
			throttles = throttles || plan.Throttles[i].Freed > 0
			restores = restores || plan.Throttles[i].Freed < 0
		}

		r.metrics.executor.WithLabelValues(throttle, avoid).Set(boolValue(throttles))
		r.metrics.executor.WithLabelValues(throttle, restore).Set(boolValue(restores))
	}

	if r.cfg.Enforced(Evict) {
		r.metrics.executor.WithLabelValues(evict, avoid).Set(boolValue(len(plan.Evictions) > 0))
	}
}
