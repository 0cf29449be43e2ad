// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	ensurancev1alpha1 "crane.io/crane/api/ensurance/v1alpha1"
	"crane.io/crane/pkg/qos"
)

// ValidateNodeQOS validates a NodeQOS.
func ValidateNodeQOS(q *ensurancev1alpha1.NodeQOS, f Facts) Result {
	var v Result
	spec := field.NewPath("spec")
	v.addErrors(validateLabelSelector(q.Spec.Selector, spec.Child("selector"))...)

	if len(q.Spec.Rules) == 0 {
		v.warnf(spec.Child("rules"), "is empty: nothing is watched")
	}

	for i := range q.Spec.Rules {
		v.merge(validateNodeRule(&q.Spec.Rules[i], f, spec.Child("rules").Index(i)))
	}

	for _, i := range duplicates(q.Spec.Rules, func(r ensurancev1alpha1.Rule) string { return r.Name }) {
		v.addErrors(field.Duplicate(spec.Child("rules").Index(i).Child("name"), q.Spec.Rules[i].Name))
	}

	v.merge(validateRulePairs(q.Spec.Rules, f, spec.Child("rules")))
	v.merge(warnUnusedNodeFields(&q.Spec, spec))
	return v
}

func validateNodeRule(r *ensurancev1alpha1.Rule, f Facts, path *field.Path) Result {
	var v Result
	if f.Actions != nil {
		if _, ok := f.Actions[r.AvoidanceActionName]; !ok {
			v.warnf(path.Child("actionName"), "there is no AvoidanceAction %s yet: until there is, the rule only taints the node", r.AvoidanceActionName)
		}
	}

	m := r.MetricRule
	if m == nil {
		return v // The schema has refused it.
	}

	metric := path.Child("metricRule")
	spec, measured := qos.Lookup(m.Name)
	if !measured && !slices.Contains(gocraneMetrics(), m.Name) {
		v.warnf(metric.Child("name"), "the agent measures nothing of this name: the rule never fires")
	}

	if spec.IsDisk() && f.Actions[r.AvoidanceActionName].Throttle != nil {
		v.warnf(path.Child("actionName"), "AvoidanceAction %s throttles nothing for %s: disks cannot be throttled, and throttling cpu does not free a disk", r.AvoidanceActionName, m.Name)
	}
	if a := f.Actions[r.AvoidanceActionName]; spec.NotUsage && (a.Throttle != nil || a.Eviction != nil) {
		v.warnf(path.Child("actionName"), "AvoidanceAction %s does nothing for %s, which does not measure the use of pods: the rule only taints the node", r.AvoidanceActionName, m.Name)
	}

	v.addErrors(validateLabelSelector(m.Selector, metric.Child("selector"))...)
	if m.Value.Sign() <= 0 {
		v.addErrors(field.Invalid(metric.Child("value"), m.Value.String(), "must be more than 0"))
	} else if maxValue := spec.MaxValue(); m.Value.AsApproximateFloat64() >= maxValue {
		v.warnf(metric.Child("value"), "the rule never fires: the metric is %g at most and the threshold %s", maxValue, m.Value.String())
	}

	return v
}

// validateRulePairs warns of contradicting rules on one metric.
func validateRulePairs(rules []ensurancev1alpha1.Rule, f Facts, path *field.Path) Result {
	var v Result
	evicts := func(r ensurancev1alpha1.Rule) bool { return f.Actions[r.AvoidanceActionName].Eviction != nil }
	throttles := func(r ensurancev1alpha1.Rule) bool {
		a := f.Actions[r.AvoidanceActionName]
		return a.Throttle != nil && a.Eviction == nil
	}

	for i, r := range rules {
		for j, other := range rules[:i] {
			if r.MetricRule == nil || other.MetricRule == nil || r.MetricRule.Name != other.MetricRule.Name ||
				r.MetricRule.Selector.String() != other.MetricRule.Selector.String() || r.Strategy != other.Strategy {
				continue
			}

			// Throttling is the milder action and should come first, at the lower threshold.
			order := r.MetricRule.Value.Cmp(other.MetricRule.Value)
			switch {
			case order == 0 && r.AvoidanceActionName == other.AvoidanceActionName:
				v.warnf(path.Index(i), "rule %s says the same as rule %s: one threshold, one action", r.Name, other.Name)
			case order <= 0 && evicts(r) && throttles(other):
				v.warnf(path.Index(i), "rule %s evicts pods before rule %s, with a threshold that is not lower, throttles them", r.Name, other.Name)
			case order >= 0 && throttles(r) && evicts(other):
				v.warnf(path.Index(j), "rule %s evicts pods before rule %s, with a threshold that is not lower, throttles them", other.Name, r.Name)
			}
		}
	}

	return v
}

// warnUnusedNodeFields warns of fields without an effect.
func warnUnusedNodeFields(s *ensurancev1alpha1.NodeQOSSpec, spec *field.Path) Result {
	var v Result
	if p := s.NodeQualityProbe; p != nil {
		probe := spec.Child("nodeQualityProbe")
		v.warnUnused(p.HTTPGet != nil, probe.Child("httpGet"))
		v.warnUnused(p.TimeoutSeconds != nil, probe.Child("timeoutSeconds"))
	}

	v.warnUnused(s.ElasticCPULimit != nil, spec.Child("elasticCpuLimit"))
	v.warnUnused(s.MemLimit != nil, spec.Child("memLimit"))
	v.warnUnused(s.MemoryCompression != nil, spec.Child("memoryCompression"))
	v.warnUnused(s.NetLimits != nil, spec.Child("netLimits"))

	return v
}

func (v *Result) warnUnused(set bool, path *field.Path) {
	if set {
		v.warnf(path, "has no effect: no part of Crane uses it, as none of gocrane did")
	}
}

// gocraneMetrics are gocrane's metrics that a rule can name; the agent has more.
func gocraneMetrics() []string {
	return []string{
		ensurancev1alpha1.MetricCPUTotalUsage, ensurancev1alpha1.MetricCPUTotalUtilization, ensurancev1alpha1.MetricCPULoad1Min,
		ensurancev1alpha1.MetricCPULoad5Min, ensurancev1alpha1.MetricCPULoad15Min, ensurancev1alpha1.MetricCPUCoreNumbers,
		ensurancev1alpha1.MetricExclusiveCPUIdle, ensurancev1alpha1.MetricMemoryTotalUsage, ensurancev1alpha1.MetricMemoryTotalUtilization,
		ensurancev1alpha1.MetricMemoryTotal, ensurancev1alpha1.MetricDiskReadKiBps, ensurancev1alpha1.MetricDiskWriteKiBps,
		ensurancev1alpha1.MetricDiskReadIOPS, ensurancev1alpha1.MetricDiskReadUtilization, ensurancev1alpha1.MetricNetworkReceiveKiBps,
		ensurancev1alpha1.MetricNetworkSentKiBps, ensurancev1alpha1.MetricNetworkReceivePackets, ensurancev1alpha1.MetricNetworkSentPackets,
		ensurancev1alpha1.MetricNetworkDropIn, ensurancev1alpha1.MetricNetworkDropOut, ensurancev1alpha1.MetricContainerCPUTotalUsage,
		ensurancev1alpha1.MetricContainerCPULimit, ensurancev1alpha1.MetricContainerCPUQuota, ensurancev1alpha1.MetricContainerCPUPeriod,
		ensurancev1alpha1.MetricContainerSchedRunQueueTime, ensurancev1alpha1.MetricContainerMemTotalUsage,
		ensurancev1alpha1.MetricExtResContainerCPUTotalUsage, ensurancev1alpha1.MetricExtResContainerMemTotalUsage,
		ensurancev1alpha1.MetricExtCPUTotalDistribute,
	}
}

// ValidateAvoidanceAction validates an AvoidanceAction.
func ValidateAvoidanceAction(a *ensurancev1alpha1.AvoidanceAction, _ Facts) Result {
	var v Result
	throttle := field.NewPath("spec", "throttle")
	t := a.Spec.Throttle
	switch {
	case t == nil:
	case t.CPUThrottle == nil && t.MemoryThrottle == nil:
		v.warnf(throttle, "has no effect: neither cpuThrottle nor memoryThrottle is set")
	case t.CPUThrottle != nil && t.CPUThrottle.StepCPURatio == 0:
		v.warnf(throttle.Child("cpuThrottle", "stepCPURatio"), "0 takes nothing: the rule never throttles")
	case t.CPUThrottle != nil && t.CPUThrottle.MinCPURatio == 100:
		v.warnf(throttle.Child("cpuThrottle", "minCPURatio"), "100 leaves a container all that it has: the rule never throttles")
	}

	return v
}
