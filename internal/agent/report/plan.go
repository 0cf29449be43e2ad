// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"crane.io/crane/pkg/qos"
)

// ReportPlan reports the state of rules and the actions that are not enforced. Enforced actions are reported with their outcome.
func (t *Reporter) ReportPlan(plan *qos.Plan) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, told := range t.rules {
		told.seen = false
	}
	for i := range plan.Rules {
		t.reportRule(plan, &plan.Rules[i])
	}
	for name, told := range t.rules {
		if !told.seen {
			t.reportEnded(name, told, "the rule was deleted")
			t.metrics.removeRule(name)
			delete(t.rules, name)
		}
	}
	for i := range plan.Previews {
		p := &plan.Previews[i]
		t.reportEachOnce(p.Throttles, p.MemoryThrottles, p.Evictions, Previewed)
	}
	t.reportNotEnforced(plan)
	t.setExecutorMetrics(plan)
}

func (t *Reporter) reportRule(plan *qos.Plan, f *qos.Finding) {
	told := t.rules[f.Rule]
	if told == nil {
		told = &ruleStatus{key: keyOf(f.Rule), reported: map[string]bool{}}
		t.rules[f.Rule] = told
	}
	told.seen, told.action = true, f.Action
	fires := f.Phase == qos.Firing || f.Phase == qos.Falling || f.Phase == qos.Held
	t.metrics.setRule(told.key, f, fires)
	t.setPreviewMetrics(plan, f)
	if told.phase != f.Phase {
		t.cfg.Log.Info("rule is "+string(f.Phase), "rule", f.Rule, "value", f.Value, "above", f.Threshold, "unit", f.Unit, "count", f.Count, "needed", f.Needed, "why", f.Reason)
		told.phase = f.Phase
	}
	switch {
	case fires && !told.firing:
		t.reportFiring(plan, f, told)
	case !fires && told.firing:
		why := describeMeasurement(f, "not above")
		if f.Phase == qos.Unknown {
			why = f.Reason
		}
		t.reportEnded(f.Rule, told, why)
	}
	if by := f.Withheld; by != told.withheld && f.Phase == qos.Firing {
		told.withheld = by
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
func (t *Reporter) reportFiring(plan *qos.Plan, f *qos.Finding, told *ruleStatus) {
	told.firing = true
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
func (t *Reporter) reportEnded(rule string, told *ruleStatus, why string) {
	clear(told.reported)
	told.withheld = qos.NotWithheld
	if !told.firing {
		return
	}
	told.firing = false
	t.metrics.analyzed.WithLabelValues(keyOf(rule), typeRestore).Inc()
	t.cfg.Log.Info("rule has ended", "rule", rule, "action", told.action, "why", why)
	t.writeAudit(Record{Action: RuleEnds, Outcome: Done, Rule: rule, AvoidanceAction: told.action, Reason: why})
	t.writeEvent(qos.PodRef{}, corev1.EventTypeNormal, reasonRestored, rule, fmt.Sprintf("%s restored action %s: %s", rule, told.action, why))
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
		Action: kind, Outcome: Done, Rule: f.Rule, AvoidanceAction: f.Action, Value: &f.Value, Threshold: &f.Threshold, Unit: f.Unit, Gap: f.Gap, Reason: f.Reason,
	}
}

// plannedActions describes the actions planned for a rule.
func (t *Reporter) plannedActions(plan *qos.Plan, f *qos.Finding) string {
	throttles, memory, evictions := plan.Throttles, plan.MemoryThrottles, plan.Evictions
	if f.Preview {
		for i := range plan.Previews {
			if p := &plan.Previews[i]; p.Rule == f.Rule {
				throttles, memory, evictions = p.Throttles, p.MemoryThrottles, p.Evictions
			}
		}
	}
	var throttled, squeezed, evicted []string
	for i := range memory {
		if memory[i].Rule == f.Rule {
			squeezed = append(squeezed, memory[i].Pod.String())
		}
	}
	for i := range throttles {
		if throttles[i].Rule == f.Rule {
			throttled = append(throttled, throttles[i].Pod.String())
		}
	}
	for i := range evictions {
		if evictions[i].Rule == f.Rule {
			evicted = append(evicted, evictions[i].Pod.String())
		}
	}
	var parts []string
	if f.Preview {
		parts = append(parts, "in preview, nothing is done")
	}
	for _, w := range []struct {
		kind        Kind
		does, would string
		pods        []string
	}{{CPUThrottle, "throttles", "would throttle", throttled}, {MemoryThrottle, "throttles memory of", "would throttle memory of", squeezed}, {Evict, "evicts", "would evict", evicted}} {
		verb := w.does
		if f.Preview || !t.cfg.Enforced(w.kind) {
			verb = w.would
		}
		if len(w.pods) > 0 {
			parts = append(parts, verb+" "+listPods(w.pods))
		}
	}
	return strings.Join(parts, "; ")
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
	throttles, memory, evictions := plan.Throttles, plan.MemoryThrottles, plan.Evictions
	if t.cfg.Enforced(CPUThrottle) {
		throttles = nil
	}
	if t.cfg.Enforced(MemoryThrottle) {
		memory = nil
	}
	if t.cfg.Enforced(Evict) {
		evictions = nil
	}
	t.reportEachOnce(throttles, memory, evictions, NotEnforced)
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
func (t *Reporter) reportEachOnce(throttles []qos.Throttle, memory []qos.MemoryThrottle, evictions []qos.Eviction, outcome Outcome) {
	for i := range throttles {
		t.reportOnce(throttles[i].Rule, throttles[i].ContainerID, throttleAction(&throttles[i], outcome))
	}
	for i := range memory {
		t.reportOnce(memory[i].Rule, memory[i].ContainerID, memoryThrottleAction(&memory[i], outcome))
	}
	for i := range evictions {
		t.reportOnce(evictions[i].Rule, evictions[i].Pod.UID, evictionAction(&evictions[i], outcome))
	}
}

func (t *Reporter) reportOnce(rule, id string, a Action) {
	told := t.rules[rule]
	key := string(a.Kind) + " " + id
	if told == nil || told.reported[key] || len(told.reported) >= maxTracked {
		return
	}
	told.reported[key] = true
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
				case qos.CPU:
					cores += e.Freed / milli
				case qos.Memory:
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
		takes, gives := false, false
		for i := range plan.Throttles {
			takes, gives = takes || plan.Throttles[i].Freed > 0, gives || plan.Throttles[i].Freed < 0
		}
		t.metrics.executor.WithLabelValues(throttle, avoid).Set(boolValue(takes))
		t.metrics.executor.WithLabelValues(throttle, restore).Set(boolValue(gives))
	}
	if t.cfg.Enforced(Evict) {
		t.metrics.executor.WithLabelValues(evict, avoid).Set(boolValue(len(plan.Evictions) > 0))
	}
}
