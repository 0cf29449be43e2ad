// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"crane.io/crane/pkg/qos"
)

// Plan tells what a plan says of rules, and what it would do that is not carried out. What is carried out is told when it was.
func (t *Teller) Plan(plan *qos.Plan) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, told := range t.rules {
		told.seen = false
	}
	for i := range plan.Rules {
		t.rule(plan, &plan.Rules[i])
	}
	for name, told := range t.rules {
		if !told.seen {
			t.ended(name, told, "the rule is no more")
			t.metrics.forget(name)
			delete(t.rules, name)
		}
	}
	for i := range plan.Previews {
		p := &plan.Previews[i]
		t.unenforced(p.Throttles, p.MemoryThrottles, p.Evictions, Previewed)
	}
	t.would(plan)
	t.executors(plan)
}

func (t *Teller) rule(plan *qos.Plan, f *qos.Finding) {
	told := t.rules[f.Rule]
	if told == nil {
		told = &ruleTold{key: keyOf(f.Rule), once: map[string]bool{}}
		t.rules[f.Rule] = told
	}
	told.seen, told.action = true, f.Action
	fires := f.Phase == qos.Firing || f.Phase == qos.Falling || f.Phase == qos.Held
	t.metrics.rule(told.key, f, fires)
	t.previewed(plan, f)
	if told.phase != f.Phase {
		t.cfg.Log.Info("Rule is "+string(f.Phase), "rule", f.Rule, "value", f.Value, "above", f.Above, "unit", f.Unit, "count", f.Count, "needed", f.Needed, "why", f.Why)
		told.phase = f.Phase
	}
	switch {
	case fires && !told.fires:
		t.begun(plan, f, told)
	case !fires && told.fires:
		why := measured(f, "not above")
		if f.Phase == qos.Unknown {
			why = f.Why
		}
		t.ended(f.Rule, told, why)
	}
	if by := f.Withheld; by != told.withheld && f.Phase == qos.Firing {
		told.withheld = by
		t.withheld(f)
	}
}

// measured is a rule's measurement for people, and where it lies.
func measured(f *qos.Finding, side string) string {
	times := fmt.Sprintf("%d times in a row", f.Count)
	if f.Count == 1 {
		times = "once"
	}
	return fmt.Sprintf("%s, %s %s, %s", qos.Reading(f.Value, f.Unit), side, qos.Reading(f.Above, f.Unit), times)
}

// begun tells that a rule fires.
func (t *Teller) begun(plan *qos.Plan, f *qos.Finding, told *ruleTold) {
	told.fires = true
	t.metrics.analyzed.WithLabelValues(keyOf(f.Rule), typeAvoidance).Inc()
	text := fmt.Sprintf("%s triggered action %s: %s", f.Rule, f.Action, measured(f, "above"))
	if doing := t.doing(plan, f); doing != "" {
		text += "; " + doing
	}
	if f.Why != "" {
		text += "; " + f.Why
	}
	t.cfg.Log.Info("Rule fires", "rule", f.Rule, "action", f.Action, "value", f.Value, "above", f.Above, "unit", f.Unit, "preview", f.Preview, "why", f.Why)
	r := ruleRecord(RuleFires, f)
	if f.Preview {
		r.Outcome = Previewed
	}
	t.audit(r)
	t.event(qos.PodRef{}, corev1.EventTypeWarning, reasonTriggered, f.Rule, text)
}

// ended tells that a rule has ended.
func (t *Teller) ended(rule string, told *ruleTold, why string) {
	clear(told.once)
	told.withheld = qos.NotWithheld
	if !told.fires {
		return
	}
	told.fires = false
	t.metrics.analyzed.WithLabelValues(keyOf(rule), typeRestore).Inc()
	t.cfg.Log.Info("Rule has ended", "rule", rule, "action", told.action, "why", why)
	t.audit(Record{Action: RuleEnds, Outcome: Done, Rule: rule, AvoidanceAction: told.action, Why: why})
	t.event(qos.PodRef{}, corev1.EventTypeNormal, reasonRestored, rule, fmt.Sprintf("%s restored action %s: %s", rule, told.action, why))
}

// withheld tells why a rule that fires evicts nobody, or not all that it should. It is counted when that begins.
func (t *Teller) withheld(f *qos.Finding) {
	if f.Withheld == qos.NotWithheld || f.Withheld == qos.ByWaiting {
		return
	}
	t.metrics.withheld.WithLabelValues(f.Rule, string(f.Withheld)).Inc()
	t.cfg.Log.Info("Evictions are withheld", "rule", f.Rule, "by", string(f.Withheld), "why", f.Why)
	r := ruleRecord(Evict, f)
	r.Outcome = Withheld
	t.audit(r)
	t.event(qos.PodRef{}, corev1.EventTypeWarning, reasonWithheld, f.Rule+" "+string(f.Withheld), fmt.Sprintf("%s: %s", f.Rule, f.Why))
}

func ruleRecord(kind Kind, f *qos.Finding) Record {
	return Record{
		Action: kind, Outcome: Done, Rule: f.Rule, AvoidanceAction: f.Action, Value: &f.Value, Threshold: &f.Above, Unit: f.Unit, Gap: f.Gap, Why: f.Why,
	}
}

// doing says what a plan does for a rule.
func (t *Teller) doing(plan *qos.Plan, f *qos.Finding) string {
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
	}{{CPUThrottle, "throttles", "would throttle", throttled}, {MemoryThrottle, "takes memory from", "would take memory from", squeezed}, {Evict, "evicts", "would evict", evicted}} {
		verb := w.does
		if f.Preview || !t.cfg.Enforced(w.kind) {
			verb = w.would
		}
		if len(w.pods) > 0 {
			parts = append(parts, verb+" "+some(w.pods))
		}
	}
	return strings.Join(parts, "; ")
}

// some names the first few.
func some(pods []string) string {
	if more := len(pods) - toldPods; more > 0 {
		return strings.Join(pods[:toldPods], ", ") + fmt.Sprintf(" and %d more", more)
	}
	return strings.Join(pods, ", ")
}

// would tells of actions of kinds that are not carried out.
func (t *Teller) would(plan *qos.Plan) {
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
	t.unenforced(throttles, memory, evictions, Would)
	if t.cfg.Enforced(Taint) || plan.Avoid.Wanted == t.avoided {
		return
	}
	t.avoided = plan.Avoid.Wanted
	a := Action{Kind: Untaint, Outcome: Would, Why: plan.Avoid.Why}
	if t.avoided {
		a.Kind = Taint
	}
	t.did(a)
}

// unenforced tells of each action once while its rule fires: it is planned anew at each measurement, since nobody carries it out.
func (t *Teller) unenforced(throttles []qos.Throttle, memory []qos.MemoryThrottle, evictions []qos.Eviction, outcome Outcome) {
	for i := range throttles {
		t.onceOf(throttles[i].Rule, throttles[i].ContainerID, throttling(&throttles[i], outcome))
	}
	for i := range memory {
		t.onceOf(memory[i].Rule, memory[i].ContainerID, memoryThrottling(&memory[i], outcome))
	}
	for i := range evictions {
		t.onceOf(evictions[i].Rule, evictions[i].Pod.UID, eviction(&evictions[i], outcome))
	}
}

func (t *Teller) onceOf(rule, id string, a Action) {
	told := t.rules[rule]
	key := string(a.Kind) + " " + id
	if told == nil || told.once[key] || len(told.once) >= remembered {
		return
	}
	told.once[key] = true
	if a.Outcome == Previewed {
		t.metrics.previews.WithLabelValues(rule, string(a.Kind)).Inc()
	}
	t.did(a)
}

// previewed shows how much the plan of a rule in preview would free.
func (t *Teller) previewed(plan *qos.Plan, f *qos.Finding) {
	if !f.Preview {
		t.metrics.previewCores.DeleteLabelValues(f.Rule)
		t.metrics.previewBytes.DeleteLabelValues(f.Rule)
		return
	}
	var cores, bytes float64
	for i := range plan.Previews {
		if p := &plan.Previews[i]; p.Rule == f.Rule {
			for j := range p.Throttles {
				cores += float64(p.Throttles[j].Frees) / milli
			}
			for j := range p.MemoryThrottles {
				bytes += float64(p.MemoryThrottles[j].Frees)
			}
			for j := range p.Evictions {
				switch e := &p.Evictions[j]; e.Of {
				case qos.CPU:
					cores += e.Frees / milli
				case qos.Memory:
					bytes += e.Frees
				case qos.Disks, qos.None:
				}
			}
		}
	}
	t.metrics.previewCores.WithLabelValues(f.Rule).Set(cores)
	t.metrics.previewBytes.WithLabelValues(f.Rule).Set(bytes)
}

// executors shows what the plan does that is carried out.
func (t *Teller) executors(plan *qos.Plan) {
	t.metrics.analyzer.WithLabelValues("", typeScheduling).Set(number(!plan.Avoid.Wanted))
	if t.cfg.Enforced(Taint) {
		t.metrics.executor.WithLabelValues(schedule, avoid).Set(number(plan.Avoid.Wanted))
		t.metrics.executor.WithLabelValues(schedule, restore).Set(number(!plan.Avoid.Wanted))
	}
	if t.cfg.Enforced(CPUThrottle) {
		takes, gives := false, false
		for i := range plan.Throttles {
			takes, gives = takes || plan.Throttles[i].Frees > 0, gives || plan.Throttles[i].Frees < 0
		}
		t.metrics.executor.WithLabelValues(throttle, avoid).Set(number(takes))
		t.metrics.executor.WithLabelValues(throttle, restore).Set(number(gives))
	}
	if t.cfg.Enforced(Evict) {
		t.metrics.executor.WithLabelValues(evict, avoid).Set(number(len(plan.Evictions) > 0))
	}
}
