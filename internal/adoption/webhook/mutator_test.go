// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"crane.io/crane/internal/kube/podlimits"
	"crane.io/crane/internal/kube/podwebhook"
)

var _ podwebhook.Mutator = (*Mutator)(nil)

const watching = `{"phase":"Watching","earlier":{"containers":{"app":{"cpuRequest":1000,"memoryRequest":536870912}}},` +
	`"before":{"containers":{"app":{"cpuRequest":1000,"memoryRequest":536870912}}},"current":{"containers":{"app":{"cpuRequest":700,"memoryRequest":268435456}}},` +
	`"newPods":{"containers":{"app":{"cpuRequest":800,"memoryRequest":268435456}}},"steps":1}`

func newPod(cpu, memory string, change ...func(*corev1.Pod)) *corev1.Pod {
	controller := true
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", GenerateName: "web-5d4f-", Labels: map[string]string{"pod-template-hash": "5d4f"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-5d4f", Controller: &controller}},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{
			{Name: "proxy"},
			{Name: "app", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceCPU: apiresource.MustParse(cpu), corev1.ResourceMemory: apiresource.MustParse(memory), "example.com/card": apiresource.MustParse("1"),
			}}},
		}},
	}

	for _, f := range change {
		f(p)
	}

	return p
}

func TestMutate(t *testing.T) {
	const want = `[{"op":"add","path":"/spec/containers/1/resources","value":{"requests":{"cpu":"800m","example.com/card":"1","memory":"256Mi"}}}]`
	adopted := Workload{Annotations: map[string]string{"analysis.crane.io/adoption": watching}}
	disabled := map[string]string{"analysis.crane.io/adoption": "disabled"}
	for name, c := range map[string]struct {
		pod      *corev1.Pod
		workload Workload
		want     string
		fails    bool
	}{
		"adopted":                  {newPod("1", "512Mi"), adopted, want, false},
		"as adopted":               {newPod("800m", "256Mi"), adopted, "null", false},
		"the owner said otherwise": {newPod("2", "512Mi"), adopted, "null", false},
		"not adopted":              {newPod("1", "512Mi"), Workload{}, "null", false},
		"opted out":                {newPod("1", "512Mi"), Workload{Annotations: adopted.Annotations, Labels: disabled}, "null", false},
		"namespace opted out":      {newPod("1", "512Mi"), Workload{Annotations: adopted.Annotations, NamespaceLabels: disabled}, "null", false},
		"no owner":                 {newPod("1", "512Mi", func(p *corev1.Pod) { p.OwnerReferences = nil }), adopted, "null", false},
		"another owner":            {newPod("1", "512Mi", func(p *corev1.Pod) { p.OwnerReferences[0].Kind = "Game" }), adopted, "null", false},
		"another template":         {newPod("1", "512Mi", func(p *corev1.Pod) { p.Labels = nil }), adopted, "null", false},
		"nonsense":                 {newPod("1", "512Mi"), Workload{Annotations: map[string]string{"analysis.crane.io/adoption": "{"}}, "null", true},
		"resources of the pod":     {newPod("1", "512Mi", func(p *corev1.Pod) { p.Spec.Resources = &corev1.ResourceRequirements{} }), adopted, "null", false},
		"another container":        {newPod("1", "512Mi", func(p *corev1.Pod) { p.Spec.Containers[1].Name = "x" }), adopted, "null", false},
	} {
		m := NewMutator(func(kind, namespace, name string) (Workload, bool, error) {
			return c.workload, kind == "Deployment" && namespace == "shop" && name == "web", nil
		}, unlimited)
		before := c.pod.DeepCopy()

		got, err := m.Mutate(c.pod)
		text, encodeErr := json.Marshal(got)
		if encodeErr != nil {
			t.Fatal(encodeErr)
		}

		if string(text) != c.want || (err != nil) != c.fails {
			t.Errorf("%s: Mutate = %s, error %v, want %s, error %v", name, text, err, c.want, c.fails)
		}
		if !equality.Semantic.DeepEqual(before, c.pod) {
			t.Errorf("%s: Mutate changed its argument, want operations alone", name)
		}
	}
}

// TestMutate_DefaultedRequest checks that a pod whose template has no request gets the adopted size: the API server and LimitRanges have
// set the request by then, and another webhook may have changed it or may do so later.
func TestMutate_DefaultedRequest(t *testing.T) {
	const state = `{"phase":"Resting","earlier":{"containers":{"app":{"cpuRequest":%s,"cpuLimit":2000}}},` +
		`"declared":{"containers":{"app":{"cpuLimit":2000}}},"current":{"containers":{"app":{"cpuRequest":300,"cpuLimit":2000}}},` +
		`"newPods":{"containers":{"app":{"cpuRequest":300,"cpuLimit":2000}}}}`

	for name, test := range map[string]struct {
		original, request string
		want              int
	}{
		"the default":              {"2000", "2", 1},
		"set by another webhook":   {"1500", "1500m", 1},
		"set later by a webhook":   {"1500", "2", 1},
		"a default that changed":   {"2000", "1", 0},
		"the adopted size already": {"2000", "300m", 0},
	} {
		pod := newPod("1", "1", func(p *corev1.Pod) {
			p.Spec.Containers[1].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: apiresource.MustParse(test.request)}
			p.Spec.Containers[1].Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: apiresource.MustParse("2")}
		})

		m := NewMutator(func(string, string, string) (Workload, bool, error) {
			return Workload{Annotations: map[string]string{"analysis.crane.io/adoption": fmt.Sprintf(state, test.original)}}, true, nil
		}, unlimited)

		if got, err := m.Mutate(pod); err != nil || len(got) != test.want {
			t.Errorf("%s: Mutate of a pod that requests %s returned operations %v and error %v, want %d", name, test.request, got, err, test.want)
		}
	}
}

// TestMutate_GuaranteedPod checks that a Guaranteed pod does not become Burstable.
func TestMutate_GuaranteedPod(t *testing.T) {
	pod := newPod("1", "512Mi", func(p *corev1.Pod) {
		p.Spec.Containers = p.Spec.Containers[1:]
		delete(p.Spec.Containers[0].Resources.Requests, "example.com/card")
		p.Spec.Containers[0].Resources.Limits = p.Spec.Containers[0].Resources.Requests.DeepCopy()
	})

	const state = `{"phase":"Resting","earlier":{"containers":{"app":{"cpuRequest":1000,"cpuLimit":1000,"memoryRequest":536870912,"memoryLimit":536870912}}},` +
		`"current":{"containers":{"app":{"cpuRequest":800,"cpuLimit":1000,"memoryRequest":536870912,"memoryLimit":536870912}}},` +
		`"newPods":{"containers":{"app":{"cpuRequest":800,"cpuLimit":1000,"memoryRequest":536870912,"memoryLimit":536870912}}}}`
	m := NewMutator(func(string, string, string) (Workload, bool, error) {
		return Workload{Annotations: map[string]string{"analysis.crane.io/adoption": state}}, true, nil
	}, unlimited)

	if got, err := m.Mutate(pod); err != nil || len(got) != 0 {
		t.Errorf("Mutate returned operations %v and error %v for a Guaranteed pod, want none", got, err)
	}
}

// unlimited is the LimitReader of a namespace without LimitRanges and ResourceQuotas.
func unlimited(string) (podlimits.Rules, error) { return podlimits.Rules{}, nil }

// TestMutate_Limits checks that a pod is left as its template says where a rule of its namespace would refuse the adopted size, and where it
// is not known whether one would.
func TestMutate_Limits(t *testing.T) {
	limitRange := func(item corev1.LimitRangeItem) podlimits.Rules {
		return podlimits.Rules{LimitRanges: []corev1.LimitRange{{Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{item}}}}}
	}
	cpu := func(text string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: apiresource.MustParse(text)}
	}

	for name, c := range map[string]struct {
		rules podlimits.Rules
		err   error
		given bool
	}{
		"none":             {given: true},
		"minimum below":    {rules: limitRange(corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Min: cpu("800m")}), given: false}, // The proxy requests nothing.
		"minimum of a pod": {rules: limitRange(corev1.LimitRangeItem{Type: corev1.LimitTypePod, Min: cpu("900m")})},
		"allowed":          {rules: limitRange(corev1.LimitRangeItem{Type: corev1.LimitTypePod, Min: cpu("800m")}), given: true},
		"unreadable":       {err: errors.New("the cache is not synced")},
	} {
		m := NewMutator(func(string, string, string) (Workload, bool, error) {
			return Workload{Annotations: map[string]string{"analysis.crane.io/adoption": watching}}, true, nil
		}, func(string) (podlimits.Rules, error) { return c.rules, c.err })

		got, err := m.Mutate(newPod("1", "512Mi"))
		if (len(got) > 0) != c.given || !errors.Is(err, c.err) {
			t.Errorf("%s: Mutate = %v, error %v, want the adopted size: %t, error %v", name, got, err, c.given, c.err)
		}
	}
}

// TestMutate_StaleQuota checks that a pod gets its adopted size, if that needs no more, where the quota of the cache has room for neither size: the
// cache may lag behind.
func TestMutate_StaleQuota(t *testing.T) {
	quota := corev1.ResourceList{"requests.memory": apiresource.MustParse("1Gi")}
	for name, c := range map[string]struct {
		memory string
		given  bool
	}{"less memory": {"512Mi", true}, "more memory": {"128Mi", false}} {
		state := strings.ReplaceAll(watching, "536870912", fmt.Sprint(amountOf(c.memory)))
		m := NewMutator(func(string, string, string) (Workload, bool, error) {
			return Workload{Annotations: map[string]string{"analysis.crane.io/adoption": state}}, true, nil
		}, func(string) (podlimits.Rules, error) {
			return podlimits.Rules{Quotas: []corev1.ResourceQuota{{Status: corev1.ResourceQuotaStatus{Hard: quota, Used: quota}}}}, nil
		})

		if got, err := m.Mutate(newPod("1", c.memory)); err != nil || (len(got) > 0) != c.given {
			t.Errorf("%s: Mutate = %v, error %v, want the adopted size: %t", name, got, err, c.given)
		}
	}
}

func amountOf(text string) int64 {
	q := apiresource.MustParse(text)
	return q.Value()
}

func TestOwner(t *testing.T) {
	controller := true
	for parent, want := range map[[2]string]string{
		{"StatefulSet", "db"}: "StatefulSet db", {"DaemonSet", "log"}: "DaemonSet log", {"Job", "night-29283"}: "CronJob night", {"Job", "now"}: " ",
		{"ReplicaSet", "other"}: " ",
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Labels:          map[string]string{"pod-template-hash": "5d4f"},
			OwnerReferences: []metav1.OwnerReference{{Kind: parent[0], Name: parent[1], Controller: &controller}},
		}}

		kind, name, ok := owner(pod)
		if !ok {
			kind, name = "", ""
		}
		if got := kind + " " + name; got != want {
			t.Errorf("owner of a pod of %v = %q, want %q", parent, got, want)
		}
	}
}

// TestMutate_BurstablePod checks that a Burstable pod does not become Guaranteed by a request that is raised to its limit.
func TestMutate_BurstablePod(t *testing.T) {
	const raised = `{"phase":"Resting","earlier":{"containers":{"app":{"cpuRequest":250,"cpuLimit":500,"memoryRequest":536870912,"memoryLimit":536870912}}},` +
		`"current":{"containers":{"app":{"cpuRequest":900,"cpuLimit":900,"memoryRequest":536870912,"memoryLimit":536870912}}},` +
		`"newPods":{"containers":{"app":{"cpuRequest":900,"cpuLimit":900,"memoryRequest":536870912,"memoryLimit":536870912}}}}`
	pod := newPod("250m", "512Mi", func(p *corev1.Pod) {
		p.Spec.Containers = p.Spec.Containers[1:]
		p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{
			corev1.ResourceCPU: apiresource.MustParse("500m"), corev1.ResourceMemory: apiresource.MustParse("512Mi"),
		}
	})

	find := func(string, string, string) (Workload, bool, error) {
		return Workload{Annotations: map[string]string{"analysis.crane.io/adoption": raised}}, true, nil
	}

	got, err := NewMutator(find, unlimited).Mutate(pod)
	if err != nil || len(got) > 0 {
		t.Errorf("Mutate returned operations %v and error %v for a Burstable pod that would be Guaranteed, want none", got, err)
	}
}
