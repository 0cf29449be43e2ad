// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package podlimits

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	podresource "k8s.io/component-helpers/resource"
)

// quotaRefusal returns the quota that has no room for what changed pods need more, with its numbers; empty if all have.
func (r Rules) quotaRefusal(changes []Change) string {
	for i := range r.Quotas {
		quota := &r.Quotas[i]
		needs := map[corev1.ResourceName]apiresource.Quantity{}
		for _, c := range changes {
			pods := max(1, c.Pods)
			addUsage(needs, quota, c.After, pods)
			addUsage(needs, quota, c.Before, -pods)
		}

		for _, name := range slices.Sorted(maps.Keys(needs)) {
			need := needs[name]
			hard, limited := quota.Status.Hard[name]
			if !limited { // The controller has not computed the status of a new quota yet.
				hard, limited = quota.Spec.Hard[name]
			}

			used := quota.Status.Used[name]
			after := used.DeepCopy() // The quota may belong to a cache.
			after.Add(need)
			if limited && need.Sign() > 0 && after.Cmp(hard) > 0 {
				return fmt.Sprintf("ResourceQuota %s has no room: %s of %s %s are used, and %s more are needed",
					quota.Name, used.String(), hard.String(), name, need.String())
			}
		}
	}

	return ""
}

// addUsage adds what a number of pods, which may be negative, use of a quota that selects them.
func addUsage(sums map[corev1.ResourceName]apiresource.Quantity, quota *corev1.ResourceQuota, pod *corev1.Pod, pods int64) {
	if pod == nil || !selectsPod(quota, pod) {
		return
	}

	add := func(name corev1.ResourceName, q apiresource.Quantity) {
		all := q.DeepCopy()
		all.Mul(pods)

		sum := sums[name]
		sum.Add(all)
		sums[name] = sum
	}

	one := *apiresource.NewQuantity(1, apiresource.DecimalSI)
	add(corev1.ResourcePods, one)
	add("count/pods", one)

	requests := podresource.PodRequests(pod, podresource.PodResourcesOptions{})
	limits := podresource.PodLimits(pod, podresource.PodResourcesOptions{})
	for _, name := range sizedResources() {
		if q, ok := requests[name]; ok {
			add(name, q)
			add("requests."+name, q)
		}
		if q, ok := limits[name]; ok {
			add("limits."+name, q)
		}
	}
}

// selectsPod reports whether all scopes of a quota select a pod.
func selectsPod(quota *corev1.ResourceQuota, pod *corev1.Pod) bool {
	requirements := []corev1.ScopedResourceSelectorRequirement{}
	for _, scope := range quota.Spec.Scopes {
		requirements = append(requirements, corev1.ScopedResourceSelectorRequirement{ScopeName: scope, Operator: corev1.ScopeSelectorOpExists})
	}
	if quota.Spec.ScopeSelector != nil {
		requirements = append(requirements, quota.Spec.ScopeSelector.MatchExpressions...)
	}

	return !slices.ContainsFunc(requirements, func(r corev1.ScopedResourceSelectorRequirement) bool { return !matchesScope(r, pod) })
}

func matchesScope(r corev1.ScopedResourceSelectorRequirement, pod *corev1.Pod) bool {
	terminating := pod.Spec.ActiveDeadlineSeconds != nil && *pod.Spec.ActiveDeadlineSeconds >= 0
	switch r.ScopeName {
	case corev1.ResourceQuotaScopeTerminating:
		return terminating
	case corev1.ResourceQuotaScopeNotTerminating:
		return !terminating
	case corev1.ResourceQuotaScopeBestEffort:
		return isBestEffort(pod)
	case corev1.ResourceQuotaScopeNotBestEffort:
		return !isBestEffort(pod)
	case corev1.ResourceQuotaScopeCrossNamespacePodAffinity:
		return usesCrossNamespaceAffinity(pod)
	case corev1.ResourceQuotaScopePriorityClass:
		return matchesPriorityClass(r, pod.Spec.PriorityClassName)
	default:
		return false // The other scopes select no pods.
	}
}

func matchesPriorityClass(r corev1.ScopedResourceSelectorRequirement, class string) bool {
	switch r.Operator {
	case corev1.ScopeSelectorOpExists:
		return class != ""
	case corev1.ScopeSelectorOpDoesNotExist:
		return class == ""
	case corev1.ScopeSelectorOpNotIn:
		return !slices.Contains(r.Values, class)
	default:
		return slices.Contains(r.Values, class)
	}
}

func isBestEffort(pod *corev1.Pod) bool {
	lists := []corev1.ResourceList{}
	if r := pod.Spec.Resources; r != nil {
		lists = append(lists, r.Requests, r.Limits)
	}
	for _, c := range containersOf(&pod.Spec) {
		lists = append(lists, c.Resources.Requests, c.Resources.Limits)
	}

	for _, list := range lists {
		if list.Cpu().Sign() > 0 || list.Memory().Sign() > 0 {
			return false
		}
	}

	return true
}

// usesCrossNamespaceAffinity reports whether an affinity term of a pod names namespaces.
func usesCrossNamespaceAffinity(pod *corev1.Pod) bool {
	a := pod.Spec.Affinity
	if a == nil {
		return false
	}

	var terms []corev1.PodAffinityTerm
	var weighted []corev1.WeightedPodAffinityTerm
	if a.PodAffinity != nil {
		terms = append(terms, a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution...)
		weighted = append(weighted, a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution...)
	}
	if a.PodAntiAffinity != nil {
		terms = append(terms, a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution...)
		weighted = append(weighted, a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution...)
	}
	for i := range weighted {
		terms = append(terms, weighted[i].PodAffinityTerm)
	}

	return slices.ContainsFunc(terms, func(t corev1.PodAffinityTerm) bool { return len(t.Namespaces) > 0 || t.NamespaceSelector != nil })
}
