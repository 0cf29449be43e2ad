// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package podlimits

import (
	"fmt"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	podresource "k8s.io/component-helpers/resource"
)

// sizedResources are the resources that Crane sizes.
func sizedResources() []corev1.ResourceName {
	return []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}
}

// containersOf returns the containers of a pod, init containers first.
func containersOf(spec *corev1.PodSpec) []*corev1.Container {
	var out []*corev1.Container
	for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			out = append(out, &list[i])
		}
	}

	return out
}

// rangeRefusal returns the first bound of a LimitRange that a pod violates; empty for none.
func (r Rules) rangeRefusal(pod *corev1.Pod) string {
	for i := range r.LimitRanges {
		for _, item := range r.LimitRanges[i].Spec.Limits {
			if reason := itemRefusal(item, pod); reason != "" {
				return fmt.Sprintf("LimitRange %s: %s", r.LimitRanges[i].Name, reason)
			}
		}
	}

	return ""
}

func itemRefusal(item corev1.LimitRangeItem, pod *corev1.Pod) string {
	switch item.Type {
	case corev1.LimitTypeContainer:
		for _, c := range containersOf(&pod.Spec) {
			if reason := amountsRefusal(item, c.Resources.Requests, c.Resources.Limits); reason != "" {
				return fmt.Sprintf("container %s %s", c.Name, reason)
			}
		}

	case corev1.LimitTypePod:
		requests := podresource.PodRequests(pod, podresource.PodResourcesOptions{})
		limits := podresource.PodLimits(pod, podresource.PodResourcesOptions{})
		if reason := amountsRefusal(item, requests, limits); reason != "" {
			return "the pod " + reason
		}

	default:
	}

	return ""
}

// amountsRefusal returns which bound requests and limits violate. Like the API server, it takes a missing amount for a violation.
func amountsRefusal(item corev1.LimitRangeItem, requests, limits corev1.ResourceList) string {
	for _, name := range sizedResources() {
		request, hasRequest := requests[name]
		limit, hasLimit := limits[name]

		if minimum, isSet := item.Min[name]; isSet {
			switch {
			case !hasRequest || request.Cmp(minimum) < 0:
				return fmt.Sprintf("requests %s %s, and %s is the minimum", name, textOf(request, hasRequest), minimum.String())
			case hasLimit && limit.Cmp(minimum) < 0:
				return fmt.Sprintf("has a limit of %s %s, and %s is the minimum", name, limit.String(), minimum.String())
			}
		}

		if maximum, isSet := item.Max[name]; isSet {
			switch {
			case !hasLimit || limit.Cmp(maximum) > 0:
				return fmt.Sprintf("has a limit of %s %s, and %s is the maximum", name, textOf(limit, hasLimit), maximum.String())
			case hasRequest && request.Cmp(maximum) > 0:
				return fmt.Sprintf("requests %s %s, and %s is the maximum", name, request.String(), maximum.String())
			}
		}

		if ratio, isSet := item.MaxLimitRequestRatio[name]; isSet {
			if request.Sign() <= 0 || limit.Sign() <= 0 || limit.AsApproximateFloat64() > ratio.AsApproximateFloat64()*request.AsApproximateFloat64() {
				return fmt.Sprintf("has a limit of %s %s at a request of %s, and %s times the request is the maximum", name,
					textOf(limit, hasLimit), textOf(request, hasRequest), ratio.String())
			}
		}
	}

	return ""
}

func textOf(q apiresource.Quantity, set bool) string {
	if !set {
		return "none"
	}

	return q.String()
}

// Clamp changes the amounts of a goal to the nearest that the LimitRanges allow, and returns the bounds that changed one, with the name of
// their object. A bound never raises an amount above the present one in base unless the goal does, and never adds an amount.
func (r Rules) Clamp(goal, base *corev1.PodSpec) []string {
	var bounds []string
	for i := range r.LimitRanges {
		name := r.LimitRanges[i].Name
		for _, item := range r.LimitRanges[i].Spec.Limits {
			switch item.Type {
			case corev1.LimitTypeContainer:
				for _, c := range containersOf(goal) {
					for _, text := range clampContainer(item, c, find(base, c.Name)) {
						bounds = append(bounds, fmt.Sprintf("LimitRange %s: %s", name, text))
					}
				}

			case corev1.LimitTypePod:
				for _, text := range clampPod(item, goal, base) {
					bounds = append(bounds, fmt.Sprintf("LimitRange %s: %s", name, text))
				}

			default:
			}
		}
	}

	return bounds
}

func find(spec *corev1.PodSpec, name string) *corev1.Container {
	all := containersOf(spec)
	if i := slices.IndexFunc(all, func(c *corev1.Container) bool { return c.Name == name }); i >= 0 {
		return all[i]
	}

	return nil
}

// clampContainer changes the requests and limits of one container.
func clampContainer(item corev1.LimitRangeItem, c, base *corev1.Container) []string {
	if base == nil {
		return nil
	}

	bounds := clampedAmounts{container: c.Name}
	for _, name := range sizedResources() {
		if minimum, ok := item.Min[name]; ok {
			for what, lists := range listsOf(c, base, name) {
				if q, isSet := lists[0][name]; isSet && q.Cmp(minimum) < 0 {
					bounds.set(lists[0], lists[1], name, minimum, what, "the minimum is "+minimum.String())
				}
			}
		}

		if maximum, ok := item.Max[name]; ok {
			for what, lists := range listsOf(c, base, name) {
				if q, isSet := lists[0][name]; isSet && q.Cmp(maximum) > 0 {
					bounds.set(lists[0], lists[1], name, maximum, what, "the maximum is "+maximum.String())
				}
			}
		}

		ratio, ok := item.MaxLimitRequestRatio[name]
		limit := c.Resources.Limits[name]
		request := c.Resources.Requests[name]
		if ok && request.Sign() > 0 && limit.AsApproximateFloat64() > ratio.AsApproximateFloat64()*request.AsApproximateFloat64() {
			minimum := scale(limit, 1/ratio.AsApproximateFloat64(), name)
			bounds.set(c.Resources.Requests, base.Resources.Requests, name, minimum, string(name)+" request",
				fmt.Sprintf("its limit of %s may be %s times the request at most", limit.String(), ratio.String()))
		}
	}

	slices.Sort(bounds.reasons)
	return bounds.reasons
}

// clampedAmounts collects what a LimitRange keeps a container from getting.
type clampedAmounts struct {
	container string
	reasons   []string
}

// set sets an amount to a bound. present has the amounts before the change; what does not change is not Crane's.
func (b *clampedAmounts) set(list, present corev1.ResourceList, name corev1.ResourceName, to apiresource.Quantity, what, bound string) {
	now, isSet := list[name]
	before, wasSet := present[name]
	if !isSet || now.Cmp(to) == 0 || wasSet && now.Cmp(before) == 0 {
		return
	}

	// An amount that is lowered stays where it is at most, and one that is raised likewise.
	if wasSet && now.Cmp(before) < 0 && to.Cmp(before) > 0 || wasSet && now.Cmp(before) > 0 && to.Cmp(before) < 0 {
		to = before
	}

	list[name] = to
	b.reasons = append(b.reasons, fmt.Sprintf("%s of container %s stays at %s instead of %s: %s", what, b.container, to.String(), now.String(), bound))
}

// listsOf returns the requests and the limits of both containers, by what they are called.
func listsOf(c, base *corev1.Container, name corev1.ResourceName) map[string][2]corev1.ResourceList {
	return map[string][2]corev1.ResourceList{
		string(name) + " request": {c.Resources.Requests, base.Resources.Requests},
		string(name) + " limit":   {c.Resources.Limits, base.Resources.Limits},
	}
}

// scale returns a share of an amount, rounded up to whole millicores or bytes.
func scale(q apiresource.Quantity, share float64, name corev1.ResourceName) apiresource.Quantity {
	if name == corev1.ResourceCPU {
		return *apiresource.NewMilliQuantity(int64(math.Ceil(float64(q.MilliValue())*share)), apiresource.DecimalSI)
	}

	return *apiresource.NewQuantity(int64(math.Ceil(float64(q.Value())*share)), apiresource.BinarySI)
}

// clampPod moves the amounts of all containers back toward the present ones until their sums are within the bounds of a pod.
func clampPod(item corev1.LimitRangeItem, goal, base *corev1.PodSpec) []string {
	reason := itemRefusal(item, &corev1.Pod{Spec: *goal})
	if reason == "" || itemRefusal(item, &corev1.Pod{Spec: *base}) != "" {
		return nil // Nothing between the two is known to be allowed.
	}

	// The share of the change that is allowed is found by bisection; bounds are monotonous in it.
	low, high := 0.0, 1.0
	for range 20 {
		middle := (low + high) / 2
		if itemRefusal(item, &corev1.Pod{Spec: *between(base, goal, middle)}) == "" {
			low = middle
		} else {
			high = middle
		}
	}

	*goal = *between(base, goal, low)
	return []string{fmt.Sprintf("%.0f %% of the change is allowed: else %s", 100*low, reason)}
}

// between returns the goal with amounts that are a share of the way from base to goal.
func between(base, goal *corev1.PodSpec, share float64) *corev1.PodSpec {
	out := goal.DeepCopy()
	for _, c := range containersOf(out) {
		before := find(base, c.Name)
		if before == nil {
			continue
		}

		for _, lists := range [][2]corev1.ResourceList{{c.Resources.Requests, before.Resources.Requests}, {c.Resources.Limits, before.Resources.Limits}} {
			for _, name := range sizedResources() {
				to, isSet := lists[0][name]
				from, wasSet := lists[1][name]
				if isSet && wasSet && to.Cmp(from) != 0 {
					lists[0][name] = interpolate(from, to, share, name)
				}
			}
		}
	}

	return out
}

// interpolate rounds to whole millicores or MiB, away from the goal.
func interpolate(from, to apiresource.Quantity, share float64, name corev1.ResourceName) apiresource.Quantity {
	round := math.Ceil
	if to.Cmp(from) > 0 {
		round = math.Floor
	}

	if name == corev1.ResourceCPU {
		v := round(float64(from.MilliValue()) + share*float64(to.MilliValue()-from.MilliValue()))
		return *apiresource.NewMilliQuantity(int64(v), apiresource.DecimalSI)
	}

	const unit = 1 << 20
	v := unit * round((float64(from.Value())+share*float64(to.Value()-from.Value()))/unit)
	if v > float64(from.Value()) && to.Cmp(from) < 0 || v < float64(from.Value()) && to.Cmp(from) > 0 {
		return from
	}

	return *apiresource.NewQuantity(int64(v), apiresource.BinarySI)
}
