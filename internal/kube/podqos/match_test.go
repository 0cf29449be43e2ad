// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package podqos

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	ensurancev1alpha1 "crane.io/crane/api/ensurance/v1alpha1"
)

func pod(change func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Labels: map[string]string{"app": "web", "tier": "back"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "a"}}},
	}

	if change != nil {
		change(p)
	}

	return p
}

func priority(n int32) *corev1.Pod { return pod(func(p *corev1.Pod) { p.Spec.Priority = &n }) }

func scopes(rs ...ensurancev1alpha1.ScopeSelectorRequirement) *ensurancev1alpha1.PodQOSSpec {
	return &ensurancev1alpha1.PodQOSSpec{ScopeSelector: &ensurancev1alpha1.ScopeSelector{MatchExpressions: rs}}
}

func scope(name ensurancev1alpha1.ScopeName, op ensurancev1alpha1.ScopeOperator, values ...string) ensurancev1alpha1.ScopeSelectorRequirement {
	return ensurancev1alpha1.ScopeSelectorRequirement{ScopeName: name, Operator: op, Values: values}
}

func labeled(pairs map[string]string) *ensurancev1alpha1.PodQOSSpec {
	return &ensurancev1alpha1.PodQOSSpec{LabelSelector: &metav1.LabelSelector{MatchLabels: pairs}}
}

func TestMatches(t *testing.T) {
	const in, notIn = ensurancev1alpha1.ScopeOperatorIn, ensurancev1alpha1.ScopeOperatorNotIn
	both := labeled(map[string]string{"app": "web"})
	both.ScopeSelector = &ensurancev1alpha1.ScopeSelector{MatchExpressions: []ensurancev1alpha1.ScopeSelectorRequirement{
		scope(ensurancev1alpha1.ScopeNamespace, notIn, "shop"),
	}}
	for name, test := range map[string]struct {
		spec *ensurancev1alpha1.PodQOSSpec
		pod  *corev1.Pod
		want bool
		bad  bool
	}{
		"nothing selected":      {&ensurancev1alpha1.PodQOSSpec{}, pod(nil), false, false},
		"empty labels":          {labeled(nil), pod(nil), false, false},
		"empty scope":           {scopes(), pod(nil), true, false},
		"labels":                {labeled(map[string]string{"app": "web"}), pod(nil), true, false},
		"other label":           {labeled(map[string]string{"app": "db"}), pod(nil), false, false},
		"empty value, no label": {labeled(map[string]string{"none": ""}), pod(nil), false, false},
		"labels not scope":      {both, pod(nil), false, false},
		"bad selector":          {&ensurancev1alpha1.PodQOSSpec{LabelSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}}}, pod(nil), false, true},
		"namespace":             {scopes(scope(ensurancev1alpha1.ScopeNamespace, in, "bank", "shop")), pod(nil), true, false},
		"not namespace":         {scopes(scope(ensurancev1alpha1.ScopeNamespace, notIn, "bank", "shop")), pod(nil), false, false},
		"new pod's class":       {scopes(scope(ensurancev1alpha1.ScopeQOSClass, in, "BestEffort")), pod(nil), true, false},
		"not new pod's class":   {scopes(scope(ensurancev1alpha1.ScopeQOSClass, notIn, "BestEffort")), pod(nil), false, false},
		"priority":              {scopes(scope(ensurancev1alpha1.ScopePriority, in, "1000")), priority(1000), true, false},
		"no priority is 0":      {scopes(scope(ensurancev1alpha1.ScopePriority, in, "0")), pod(nil), true, false},
		"range, lower end":      {scopes(scope(ensurancev1alpha1.ScopePriority, in, "5", "1000-3000")), priority(1000), true, false},
		"range, upper end":      {scopes(scope(ensurancev1alpha1.ScopePriority, in, "1000-3000", "5")), priority(3000), true, false},
		"out of range":          {scopes(scope(ensurancev1alpha1.ScopePriority, in, "1000-3000")), priority(3001), false, false},
		"not in, first value":   {scopes(scope(ensurancev1alpha1.ScopePriority, notIn, "7", "9")), priority(7), false, false},
		"negative":              {scopes(scope(ensurancev1alpha1.ScopePriority, in, "-100")), priority(-100), true, false},
		"negative range":        {scopes(scope(ensurancev1alpha1.ScopePriority, in, "-100--50")), priority(-75), true, false},
		"not negative":          {scopes(scope(ensurancev1alpha1.ScopePriority, notIn, "-100")), priority(-100), false, false},
		"no number":             {scopes(scope(ensurancev1alpha1.ScopePriority, notIn, "high")), pod(nil), false, true},
		"unknown scope":         {scopes(scope("Color", in, "red")), pod(nil), false, true},
		"unknown operator":      {scopes(scope(ensurancev1alpha1.ScopeNamespace, "in", "bank")), pod(nil), false, true},
		"no values":             {scopes(scope(ensurancev1alpha1.ScopeNamespace, notIn)), pod(nil), false, true},
		"bad after a match":     {scopes(scope(ensurancev1alpha1.ScopePriority, in, "0", "high")), pod(nil), false, true},
	} {
		t.Run(name, func(t *testing.T) {
			rule, err := NewRule(&ensurancev1alpha1.PodQOS{Spec: *test.spec})
			got := err == nil && rule.Matches(test.pod)
			if got != test.want || (err != nil) != test.bad {
				t.Errorf("%t, %v; want %t, error: %t", got, err, test.want, test.bad)
			}
		})
	}
}

func TestBestMatch(t *testing.T) {
	qos := func(name string, spec *ensurancev1alpha1.PodQOSSpec) *ensurancev1alpha1.PodQOS {
		return &ensurancev1alpha1.PodQOS{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: *spec}
	}
	withScope := labeled(map[string]string{"app": "web"})
	withScope.ScopeSelector = &ensurancev1alpha1.ScopeSelector{}
	all := []*ensurancev1alpha1.PodQOS{
		qos("broken", scopes(scope(ensurancev1alpha1.ScopePriority, "In", "x"))), qos("everything", scopes()),
		qos("z", labeled(map[string]string{"app": "web"})), qos("b", labeled(map[string]string{"app": "web"})),
		qos("scoped", withScope), qos("two", labeled(map[string]string{"app": "web", "tier": "back"})), qos("other", labeled(map[string]string{"app": "db"})),
	}

	// Removing the best match leaves the next; the order of the list does not matter.
	for _, want := range []string{"two", "scoped", "b", "z", "everything"} {
		for range 2 {
			if got := NewRules(all).BestMatch(pod(nil)); got == nil || got.Name != want {
				t.Fatalf("%v, want %s", got, want)
			}

			all[0], all[len(all)-1] = all[len(all)-1], all[0]
		}

		for i, q := range all {
			if q.Name == want {
				all = append(all[:i:i], all[i+1:]...)
				break
			}
		}
	}

	if got := NewRules(all).BestMatch(pod(nil)); got != nil {
		t.Errorf("%s, want none", got.Name)
	}
}

func TestQOSClass(t *testing.T) {
	list := func(cpu, memory string) corev1.ResourceList {
		out := corev1.ResourceList{}
		for name, v := range map[corev1.ResourceName]string{"cpu": cpu, "memory": memory} {
			if v != "" {
				out[name] = resource.MustParse(v)
			}
		}

		return out
	}

	with := func(r corev1.ResourceRequirements, more ...corev1.Container) *corev1.Pod {
		return pod(func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources = r
			p.Spec.Containers = append(p.Spec.Containers, more...)
		})
	}

	whole := corev1.ResourceRequirements{Requests: list("1", "1Gi"), Limits: list("1", "1Gi")}
	for name, test := range map[string]struct {
		pod  *corev1.Pod
		want corev1.PodQOSClass
	}{
		"nothing":      {pod(nil), corev1.PodQOSBestEffort},
		"zero":         {with(corev1.ResourceRequirements{Requests: list("0", "")}), corev1.PodQOSBestEffort},
		"requests":     {with(corev1.ResourceRequirements{Requests: list("1", "1Gi")}), corev1.PodQOSBurstable},
		"limits alone": {with(corev1.ResourceRequirements{Limits: list("1", "1Gi")}), corev1.PodQOSGuaranteed},
		"equal":        {with(whole), corev1.PodQOSGuaranteed},
		"one of two":   {with(whole, corev1.Container{Name: "b"}), corev1.PodQOSBurstable},
		"higher limit": {with(corev1.ResourceRequirements{Requests: list("1", "1Gi"), Limits: list("2", "1Gi")}), corev1.PodQOSBurstable},
		"init without": {pod(func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources = whole
			p.Spec.InitContainers = []corev1.Container{{}}
		}), corev1.PodQOSBurstable},
		"extended alone":   {with(corev1.ResourceRequirements{Limits: corev1.ResourceList{"gocrane.io/cpu": resource.MustParse("1")}}), corev1.PodQOSBestEffort},
		"of the whole pod": {pod(func(p *corev1.Pod) { p.Spec.Resources = &whole }), corev1.PodQOSGuaranteed},
		"known":            {pod(func(p *corev1.Pod) { p.Status.QOSClass = corev1.PodQOSGuaranteed }), corev1.PodQOSGuaranteed},
	} {
		t.Run(name, func(t *testing.T) {
			if got := QOSClass(test.pod); got != test.want {
				t.Errorf("%s, want %s", got, test.want)
			}
		})
	}
}

func FuzzPriorities(f *testing.F) {
	for _, s := range []string{"", "-", "--", "-100--50", "1000-3000", "2147483648", "1-2-3", "+5"} {
		f.Add(s)
	}

	f.Fuzz(func(t *testing.T, text string) {
		_, _, _ = ParsePriorityRange(text)
	})
}
