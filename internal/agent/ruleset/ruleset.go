// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package ruleset

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	ensurancev1alpha1 "crane.io/crane/api/ensurance/v1alpha1"
	"crane.io/crane/internal/kube/podqos"
	"crane.io/crane/pkg/qos"
	"crane.io/crane/pkg/units"
)

// Set holds the objects that define rules.
type Set struct {
	NodeQOS []ensurancev1alpha1.NodeQOS
	PodQOS  []ensurancev1alpha1.PodQOS
	Actions []ensurancev1alpha1.AvoidanceAction
}

// defaultAge is the largest age of a measurement without nodeLocalGet, the default of the schema.
const defaultAge = time.Minute

// defaultCoolDown is the default of the schema.
const defaultCoolDown = 300 * time.Second

// Policy returns the policy of a node with the given labels; nil stands for unknown labels, which every NodeQOS matches. Rules are ordered
// by the names of their NodeQOS and their position in it. Problems list unusable rules and fields without effect.
func (s Set) Policy(node map[string]string, limits qos.Limits) (policy qos.Policy, problems []string) {
	policy.Limits = limits
	actions := map[string]*ensurancev1alpha1.AvoidanceAction{}
	for i := range s.Actions {
		a := &s.Actions[i]
		if err := checkAction(&a.Spec); err != nil {
			problems = append(problems, fmt.Sprintf("AvoidanceAction %s: %v: it is ignored", a.Name, err))
			continue
		}

		actions[a.Name] = a
	}

	for i := range s.PodQOS {
		if _, err := podqos.NewRule(&s.PodQOS[i]); err != nil {
			problems = append(problems, fmt.Sprintf("PodQOS %s: %v: it matches no pod", s.PodQOS[i].Name, err))
		}
	}

	// The order of names makes the result, and which of two duplicates counts, independent of the API server.
	names := map[string]bool{}
	earlier := conflicts{}
	list := slices.Clone(s.NodeQOS)
	slices.SortFunc(list, func(a, b ensurancev1alpha1.NodeQOS) int { return cmp.Compare(a.Name, b.Name) })

	for i := range list {
		q := &list[i]
		complain := func(format string, args ...any) {
			problems = append(problems, "NodeQOS "+q.Name+": "+fmt.Sprintf(format, args...))
		}

		matches, err := newMatcher(q.Spec.Selector)
		if err != nil {
			complain("selector: %v", err)
			continue
		}

		if matches != nil && node != nil && !matches(node) {
			continue
		}

		for j := range q.Spec.Rules {
			rule, err := newRule(q, &q.Spec.Rules[j], actions)
			if err != nil {
				complain("rules[%d]: %v", j, err)
				continue
			}

			for _, why := range ineffectiveParts(&rule) {
				complain("rules[%d].%s", j, why)
			}

			if names[rule.Name] {
				complain("rules[%d].name: duplicate of rule %s: this one is ignored", j, q.Spec.Rules[j].Name)
				continue
			}

			names[rule.Name] = true
			if actions[rule.Action.Name] == nil {
				complain("rules[%d].actionName: AvoidanceAction %s does not exist: the rule only taints the node", j, rule.Action.Name)
			}
			if other := earlier.add(&q.Spec.Rules[j], &rule); other != "" {
				complain("rules[%d]: rule %s: both apply, and the one that fires first acts first", j, other)
			}

			policy.Rules = append(policy.Rules, rule)
		}
	}

	return policy, problems
}

// conflicts holds the rules by metric, selector and action to find contradictions.
type conflicts map[string]*qos.Rule

// add returns how a rule contradicts an earlier one with the same action for the same series. Rules with different actions, such as
// throttling first and evicting later, do not conflict.
func (c conflicts) add(r *ensurancev1alpha1.Rule, rule *qos.Rule) string {
	key := rule.Metric + " " + metav1.FormatLabelSelector(r.MetricRule.Selector) + " " + rule.Action.Name
	other := c[key]
	switch {
	case other == nil:
		c[key] = rule
	case other.Threshold != rule.Threshold:
		return fmt.Sprintf("%s also evaluates %s, above %g and not above %g", other.Name, rule.Metric, other.Threshold, rule.Threshold)
	case other.Preview != rule.Preview:
		return fmt.Sprintf("%s also evaluates %s above %g, and one of them is a preview", other.Name, rule.Metric, rule.Threshold)
	}

	return ""
}

// ineffectiveParts lists the parts of a rule that never have an effect, with the responsible field.
func ineffectiveParts(r *qos.Rule) (out []string) {
	metric, ok := qos.Lookup(r.Metric)
	switch {
	case !ok:
		out = append(out, fmt.Sprintf("metricRule.name: unknown metric %q: the rule never fires", r.Metric))
	case metric.IsDisk() && (r.Action.Throttle != nil || r.Action.ThrottleMemory != nil):
		out = append(out, fmt.Sprintf("actionName: AvoidanceAction %s throttles nothing for %s: disks cannot be throttled, and throttling CPU does not free a disk; the rule taints the node, and evicts if the action does", r.Action.Name, r.Metric))
	case metric.NotUsage && (r.Action.Throttle != nil || r.Action.ThrottleMemory != nil || r.Action.Evict != nil):
		out = append(out, fmt.Sprintf("actionName: AvoidanceAction %s does nothing for %s, which does not measure the use of pods: the rule only taints the node", r.Action.Name, r.Metric))
	case r.Action.ThrottleMemory != nil && r.Action.Throttle == nil && !metric.IsMemory(): // An action with both is used by rules of either resource.
		out = append(out, fmt.Sprintf("actionName: AvoidanceAction %s throttles no memory: %s does not measure memory", r.Action.Name, r.Metric))
	}

	if maxValue := metric.MaxValue(); ok && r.Threshold >= maxValue {
		out = append(out, fmt.Sprintf("metricRule.value: %g: %s is %g at most: the rule never fires", r.Threshold, r.Metric, maxValue))
	}
	if t := r.Action.Throttle; t != nil && t.Step == 0 {
		out = append(out, fmt.Sprintf("actionName: AvoidanceAction %s has stepCPURatio 0: CPU is never throttled", r.Action.Name))
	}

	return out
}

// newMatcher converts a selector to a function; nil selects all.
func newMatcher(s *metav1.LabelSelector) (func(map[string]string) bool, error) {
	if s == nil || len(s.MatchLabels)+len(s.MatchExpressions) == 0 {
		return nil, nil
	}

	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return nil, fmt.Errorf("bad selector: %w", err)
	}

	return func(set map[string]string) bool { return selector.Matches(labels.Set(set)) }, nil
}

func newRule(q *ensurancev1alpha1.NodeQOS, r *ensurancev1alpha1.Rule, actions map[string]*ensurancev1alpha1.AvoidanceAction) (qos.Rule, error) {
	out := qos.Rule{
		Name:         q.Name + "/" + r.Name,
		TriggerCount: 1,
		RestoreCount: 1,
		MaxAge:       defaultAge,
		Preview:      r.Strategy == ensurancev1alpha1.AvoidanceActionStrategyPreview,
		Action:       newAction(r.AvoidanceActionName, actions[r.AvoidanceActionName]),
	}

	m := r.MetricRule
	if m == nil {
		return out, fmt.Errorf("%s has no metricRule", r.Name)
	}

	out.Metric = m.Name
	// Fractions are kept: 0.5 is not 1.
	out.Threshold = m.Value.AsApproximateFloat64()
	if !(out.Threshold > 0) || math.IsInf(out.Threshold, 0) {
		return out, fmt.Errorf("metricRule.value: %s: must be more than 0", m.Value.String())
	}

	var err error
	if out.Matches, err = newMatcher(m.Selector); err != nil {
		return out, fmt.Errorf("metricRule.selector: %w", err)
	}

	if err := checkRule(r); err != nil {
		return out, err
	}

	if r.AvoidanceThreshold != nil {
		out.TriggerCount = int(*r.AvoidanceThreshold)
	}
	if r.RestoreThreshold != nil {
		out.RestoreCount = int(*r.RestoreThreshold)
	}

	if p := q.Spec.NodeQualityProbe; p != nil && p.NodeLocalGet != nil && p.NodeLocalGet.LocalCacheTTLSeconds != nil {
		// 0 means the current measurement, which takes a moment to arrive.
		out.MaxAge = max(time.Duration(*p.NodeLocalGet.LocalCacheTTLSeconds)*time.Second, time.Second)
	}

	return out, nil
}

// newAction converts an AvoidanceAction; without one, only new pods are kept away.
func newAction(name string, a *ensurancev1alpha1.AvoidanceAction) qos.Action {
	out := qos.Action{Name: name, CoolDown: defaultCoolDown}
	if a == nil {
		return out
	}

	if a.Spec.CoolDownSeconds != nil {
		out.CoolDown = time.Duration(*a.Spec.CoolDownSeconds) * time.Second
	}

	// Percentages become shares.
	if t := a.Spec.Throttle; t != nil && t.CPUThrottle != nil {
		const percent = 100
		out.Throttle = &qos.CPUThrottling{Step: units.Ratio(t.CPUThrottle.StepCPURatio) / percent, Floor: units.Ratio(t.CPUThrottle.MinCPURatio) / percent}
	}

	if t := a.Spec.Throttle; t != nil && t.MemoryThrottle != nil {
		out.ThrottleMemory = &qos.MemoryThrottleSettings{Reclaim: t.MemoryThrottle.ForceGC}
	}

	if e := a.Spec.Eviction; e != nil {
		out.Evict = &qos.EvictionSettings{}
		if e.TerminationGracePeriodSeconds != nil {
			grace := time.Duration(*e.TerminationGracePeriodSeconds) * time.Second
			out.Evict.GracePeriod = &grace
		}
	}

	return out
}

// PodRules holds parsed PodQOS for matching many pods.
type PodRules struct {
	// all holds the valid ones, withPriority those with a cpuPriority.
	all, withPriority podqos.Rules
}

// PodRules parses the PodQOS of the set. An invalid one matches no pod.
func (s Set) PodRules() PodRules {
	list := make([]*ensurancev1alpha1.PodQOS, len(s.PodQOS))
	for i := range list {
		list[i] = &s.PodQOS[i]
	}

	out := PodRules{all: podqos.NewRules(list)}
	for _, r := range out.all {
		if q := r.Spec.ResourceQOS; q != nil && q.CPUQOS != nil && q.CPUQOS.CPUPriority != nil {
			out.withPriority = append(out.withPriority, r)
		}
	}

	return out
}

// CPUPriority returns a pod's resourceQOS.cpuQOS.cpuPriority, 0 the highest, from the most specific PodQOS that sets one.
func (r PodRules) CPUPriority(pod *corev1.Pod) (priority int32, ok bool) {
	best := r.withPriority.BestMatch(pod)
	if best == nil {
		return 0, false
	}

	return *best.Spec.ResourceQOS.CPUQOS.CPUPriority, true
}

// Allowed returns the actions that may be taken on a pod: those of every matching PodQOS.
func (r PodRules) Allowed(pod *corev1.Pod) []string {
	var out []string
	for _, q := range r.all {
		if !q.Matches(pod) {
			continue
		}

		for _, a := range q.Spec.AllowedActions {
			if !slices.Contains(out, a) {
				out = append(out, a)
			}
		}
	}

	return out
}
