// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package podlimits

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// amounts returns CPU and memory; empty texts are left out.
func amounts(cpu, memory string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for name, text := range map[corev1.ResourceName]string{corev1.ResourceCPU: cpu, corev1.ResourceMemory: memory} {
		if text != "" {
			out[name] = apiresource.MustParse(text)
		}
	}

	return out
}

func newContainer(name string, requests, limits corev1.ResourceList) corev1.Container {
	return corev1.Container{Name: name, Resources: corev1.ResourceRequirements{Requests: requests, Limits: limits}}
}

func newPod(containers ...corev1.Container) *corev1.Pod {
	return &corev1.Pod{Spec: corev1.PodSpec{Containers: containers}}
}

func newRange(item corev1.LimitRangeItem) Rules {
	return Rules{LimitRanges: []corev1.LimitRange{{
		ObjectMeta: metav1.ObjectMeta{Name: "limits"}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{item}},
	}}}
}

func newQuota(hard, used corev1.ResourceList, scopes ...corev1.ResourceQuotaScope) Rules {
	return Rules{Quotas: []corev1.ResourceQuota{{
		ObjectMeta: metav1.ObjectMeta{Name: "team"},
		Spec:       corev1.ResourceQuotaSpec{Hard: hard, Scopes: scopes},
		Status:     corev1.ResourceQuotaStatus{Hard: hard, Used: used},
	}}}
}

func TestRefusal_LimitRange(t *testing.T) {
	init := newPod(newContainer("app", amounts("1", "1Gi"), nil))
	init.Spec.InitContainers = []corev1.Container{newContainer("init", amounts("100m", ""), nil)}

	for name, c := range map[string]struct {
		item corev1.LimitRangeItem
		pod  *corev1.Pod
		want string // empty if admitted
	}{
		"at the minimum":     {corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Min: amounts("500m", "")}, newPod(newContainer("app", amounts("500m", ""), nil)), ""},
		"below the minimum":  {corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Min: amounts("500m", "")}, newPod(newContainer("app", amounts("499m", ""), nil)), "500m is the minimum"},
		"without a request":  {corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Min: amounts("500m", "")}, newPod(newContainer("app", amounts("", "1Gi"), nil)), "requests cpu none"},
		"an init container":  {corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Min: amounts("500m", "")}, init, "container init"},
		"above the maximum":  {corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Max: amounts("", "1Gi")}, newPod(newContainer("app", nil, amounts("", "1025Mi"))), "1Gi is the maximum"},
		"without a limit":    {corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Max: amounts("", "1Gi")}, newPod(newContainer("app", amounts("", "1Gi"), nil)), "has a limit of memory none"},
		"at the ratio":       {corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, MaxLimitRequestRatio: amounts("4", "")}, newPod(newContainer("app", amounts("500m", ""), amounts("2", ""))), ""},
		"above the ratio":    {corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, MaxLimitRequestRatio: amounts("4", "")}, newPod(newContainer("app", amounts("499m", ""), amounts("2", ""))), "4 times the request"},
		"sum below":          {corev1.LimitRangeItem{Type: corev1.LimitTypePod, Min: amounts("1", "")}, newPod(newContainer("a", amounts("500m", ""), nil), newContainer("b", amounts("499m", ""), nil)), "the pod requests cpu 999m"},
		"sum at":             {corev1.LimitRangeItem{Type: corev1.LimitTypePod, Min: amounts("1", "")}, newPod(newContainer("a", amounts("500m", ""), nil), newContainer("b", amounts("500m", ""), nil)), ""},
		"claims are no pods": {corev1.LimitRangeItem{Type: corev1.LimitTypePersistentVolumeClaim, Min: amounts("1", "")}, newPod(newContainer("app", nil, nil)), ""},
	} {
		if got := newRange(c.item).Refusal(c.pod); (got == "") != (c.want == "") || !strings.Contains(got, c.want) || got != "" && !strings.HasPrefix(got, "LimitRange limits: ") {
			t.Errorf("%s: Refusal = %q, want %q with the name of the object", name, got, c.want)
		}
	}
}

func TestRefusal_Quota(t *testing.T) {
	small := newPod(newContainer("app", amounts("500m", "1Gi"), nil))
	bestEffort := newPod(newContainer("app", nil, nil))
	deadline := newPod(newContainer("app", amounts("1", ""), nil))
	deadline.Spec.ActiveDeadlineSeconds = new(int64(60))
	hard := corev1.ResourceList{"requests.cpu": apiresource.MustParse("2")}
	used := corev1.ResourceList{"requests.cpu": apiresource.MustParse("1600m")}

	for name, c := range map[string]struct {
		rules   Rules
		pod     *corev1.Pod
		refused bool
	}{
		"room":                    {newQuota(hard, corev1.ResourceList{"requests.cpu": apiresource.MustParse("1500m")}), small, false},
		"no room":                 {newQuota(hard, used), small, true},
		"no pod":                  {newQuota(corev1.ResourceList{"pods": apiresource.MustParse("3")}, corev1.ResourceList{"pods": apiresource.MustParse("3")}), bestEffort, true},
		"not terminating":         {newQuota(hard, used, corev1.ResourceQuotaScopeTerminating), small, false},
		"terminating":             {newQuota(hard, used, corev1.ResourceQuotaScopeTerminating), deadline, true},
		"best effort":             {newQuota(hard, used, corev1.ResourceQuotaScopeBestEffort), small, false},
		"both scopes":             {newQuota(hard, used, corev1.ResourceQuotaScopeNotBestEffort, corev1.ResourceQuotaScopeNotTerminating), small, true},
		"status not computed yet": {Rules{Quotas: []corev1.ResourceQuota{{Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"cpu": apiresource.MustParse("100m")}}}}}, small, true},
	} {
		if got := c.rules.Refusal(c.pod); (got != "") != c.refused {
			t.Errorf("%s: Refusal = %q, want a refusal: %t", name, got, c.refused)
		}
	}

	selected := newQuota(hard, used)
	selected.Quotas[0].Spec.ScopeSelector = &corev1.ScopeSelector{MatchExpressions: []corev1.ScopedResourceSelectorRequirement{
		{ScopeName: corev1.ResourceQuotaScopePriorityClass, Operator: corev1.ScopeSelectorOpIn, Values: []string{"high"}},
	}}
	high := small.DeepCopy()
	high.Spec.PriorityClassName = "high"

	if got := selected.Refusal(small); got != "" {
		t.Errorf("Refusal of a pod of another priority class = %q, want none", got)
	}
	if got := selected.Refusal(high); got == "" {
		t.Error("Refusal of a pod of the priority class = none, want the quota")
	}
}

// TestChangeRefusal: a replacement uses what the pod before it no longer uses, and an overdrawn quota refuses only what needs more.
func TestChangeRefusal(t *testing.T) {
	pod := func(cpu string) *corev1.Pod { return newPod(newContainer("app", amounts(cpu, ""), nil)) }
	quota := func(used string) Rules {
		return newQuota(corev1.ResourceList{"requests.cpu": apiresource.MustParse("2")}, corev1.ResourceList{"requests.cpu": apiresource.MustParse(used)})
	}

	for name, c := range map[string]struct {
		rules   Rules
		changes []Change
		want    string
	}{
		"same":              {quota("2"), []Change{{Before: pod("1"), After: pod("1")}, {Before: pod("1"), After: pod("1")}}, ""},
		"less, overdrawn":   {quota("5"), []Change{{Before: pod("1"), After: pod("500m")}}, ""},
		"more, with room":   {quota("1"), []Change{{Before: pod("1"), After: pod("2")}}, ""},
		"more, without":     {quota("2"), []Change{{Before: pod("1"), After: pod("1100m")}}, "ResourceQuota team has no room: 2 of 2 requests.cpu are used, and 100m more are needed"},
		"all pods together": {quota("1600m"), []Change{{Before: pod("500m"), After: pod("700m")}, {Before: pod("500m"), After: pod("701m")}}, "401m more"},
		"equal pods":        {quota("1"), []Change{{Before: pod("500m"), After: pod("600m"), Pods: 11}}, "1100m more"},
		"many equal pods":   {quota("1"), []Change{{Before: pod("500m"), After: pod("600m"), Pods: 1<<31 - 1}}, "ResourceQuota team has no room"},
		"a bound that the pod violates already": {
			newRange(corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Min: amounts("2", "")}), []Change{{Before: pod("1"), After: pod("900m")}}, "",
		},
		"a bound": {newRange(corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Min: amounts("950m", "")}), []Change{{Before: pod("1"), After: pod("900m")}}, "950m is the minimum"},
	} {
		if got := c.rules.ChangeRefusal(c.changes); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: ChangeRefusal = %q, want %q", name, got, c.want)
		}
	}
}

func TestClamp(t *testing.T) {
	for name, c := range map[string]struct {
		item         corev1.LimitRangeItem
		present, app corev1.Container
		want         corev1.ResourceRequirements
		bounded      bool
	}{
		"lowered below the minimum": {
			corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Min: amounts("800m", "")},
			newContainer("app", amounts("1", "1Gi"), nil), newContainer("app", amounts("300m", "512Mi"), nil),
			corev1.ResourceRequirements{Requests: amounts("800m", "512Mi")},
			true,
		},
		"the minimum is above the present": {
			corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Min: amounts("2", "")},
			newContainer("app", amounts("1", ""), nil), newContainer("app", amounts("300m", ""), nil),
			corev1.ResourceRequirements{Requests: amounts("1", "")},
			true,
		},
		"raised above the maximum": {
			corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Max: amounts("2", "")},
			newContainer("app", amounts("1", ""), amounts("1", "")), newContainer("app", amounts("3", ""), amounts("4", "")),
			corev1.ResourceRequirements{Requests: amounts("2", ""), Limits: amounts("2", "")},
			true,
		},
		"lowered beyond the ratio": {
			corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, MaxLimitRequestRatio: amounts("4", "")},
			newContainer("app", amounts("1", ""), amounts("2", "")), newContainer("app", amounts("300m", ""), amounts("2", "")),
			corev1.ResourceRequirements{Requests: amounts("500m", ""), Limits: amounts("2", "")},
			true,
		},
		"within all": {
			corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Min: amounts("100m", "")},
			newContainer("app", amounts("1", ""), nil), newContainer("app", amounts("300m", ""), nil),
			corev1.ResourceRequirements{Requests: amounts("300m", "")},
			false,
		},
		"the sum of the pod": {
			corev1.LimitRangeItem{Type: corev1.LimitTypePod, Min: amounts("800m", "")},
			newContainer("app", amounts("1", ""), nil), newContainer("app", amounts("300m", ""), nil),
			corev1.ResourceRequirements{Requests: amounts("800m", "")},
			true,
		},
	} {
		goal := newPod(*c.app.DeepCopy())
		bounds := newRange(c.item).Clamp(&goal.Spec, &newPod(c.present).Spec)

		got := goal.Spec.Containers[0].Resources
		for what, lists := range map[string][2]corev1.ResourceList{"requests": {got.Requests, c.want.Requests}, "limits": {got.Limits, c.want.Limits}} {
			if lists[0].Cpu().Cmp(*lists[1].Cpu()) != 0 || lists[0].Memory().Cmp(*lists[1].Memory()) != 0 {
				t.Errorf("%s: %s after Clamp are %v, want %v", name, what, lists[0], lists[1])
			}
		}

		if (len(bounds) > 0) != c.bounded || c.bounded && !strings.HasPrefix(bounds[0], "LimitRange limits: ") {
			t.Errorf("%s: Clamp returns %q, want the name of the object: %t", name, bounds, c.bounded)
		}
		if again := newRange(c.item).Clamp(&goal.Spec, &newPod(c.present).Spec); len(again) != 0 {
			t.Errorf("%s: Clamp of a clamped goal returns %q, want nothing", name, again)
		}
	}
}
