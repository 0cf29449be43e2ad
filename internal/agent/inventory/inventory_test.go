// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"crane.io/crane/internal/agent/host"
	"crane.io/crane/pkg/qos"
)

func pod(change func(*corev1.Pod)) corev1.Pod {
	p := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "uid-1"},
		Spec: corev1.PodSpec{
			Priority: new(int32(7)), TerminationGracePeriodSeconds: new(int64(20)),
			InitContainers: []corev1.Container{{Name: "init"}},
			Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{"cpu": resource.MustParse("900m")}, Limits: corev1.ResourceList{"cpu": resource.MustParse("1500m")},
			}}, {Name: "waits"}},
		},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, StartTime: &metav1.Time{Time: time.Unix(100, 0)},
			ContainerStatuses: []corev1.ContainerStatus{{Name: "main", ContainerID: "containerd://abc"}, {Name: "waits"}, {Name: "unheard-of", ContainerID: "x://y"}},
		},
	}

	if change != nil {
		change(&p)
	}

	return p
}

func inventory(list ...corev1.Pod) Pods {
	var pods []*corev1.Pod
	for i := range list {
		pods = append(pods, &list[i])
	}

	return New(pods, func(*corev1.Pod) []string { return []string{"evict"} }, func(p *corev1.Pod) string { return p.Annotations["exempt"] })
}

func TestFind(t *testing.T) {
	p := inventory(pod(nil))
	got, ok := p.Find("uid-1")
	if !ok || got.Namespace != "shop" || got.Name != "web" || got.Priority != 7 || got.Class != qos.Burstable || got.Grace != 20*time.Second ||
		!got.Started.Equal(time.Unix(100, 0)) || got.ExemptReason != "" || got.Elastic || got.Terminating || len(got.Allowed) != 1 {
		t.Errorf("Find = %+v, %t, want shop/web with the properties of its spec", got, ok)
	}
	if c, ok := p.Container("uid-1", "abc"); !ok || c.Name != "main" || c.Request != 900 || c.Limit != 1500 {
		t.Errorf("Container = %+v, %t, want main with 900m and 1500m", c, ok)
	}

	for _, id := range []string{"", "y", "sandbox"} {
		if c, ok := p.Container("uid-1", id); ok {
			t.Errorf("Container(%q) = %+v, want none", id, c)
		}
	}

	if got, ok := p.Find("unknown"); ok || got.UID != "unknown" {
		t.Errorf("Find of an unknown pod = %+v, %t, want its UID and false", got, ok)
	}
	if _, ok := (Pods{}).Find("unknown"); ok {
		t.Error("Find in an empty inventory = true, want false")
	}
}

// TestKinds checks the effect of the kind of pod on its treatment.
func TestKinds(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*corev1.Pod)
		holds  func(qos.Pod) bool
	}{
		"no priority": {func(p *corev1.Pod) { p.Spec.Priority = nil }, func(q qos.Pod) bool { return q.Priority == 0 }},
		"no grace":    {func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = nil }, func(q qos.Pod) bool { return q.Grace == defaultGracePeriod }},
		"ending":      {func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }, func(q qos.Pod) bool { return q.Terminating }},
		"exempt":      {func(p *corev1.Pod) { p.Annotations = map[string]string{"exempt": "why"} }, func(q qos.Pod) bool { return q.ExemptReason == "why" }},
		"elastic": {func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"gocrane.io/cpu": resource.MustParse("2")}
		}, func(q qos.Pod) bool { return q.Elastic }},
	} {
		t.Run(name, func(t *testing.T) {
			if got, ok := inventory(pod(test.change)).Find("uid-1"); !ok || !test.holds(got) {
				t.Errorf("Find = %+v, %t, want what %s means", got, ok, name)
			}
		})
	}

	p := inventory(pod(func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"gocrane.io/cpu": resource.MustParse("2")}
	}))

	if c, _ := p.Container("uid-1", "abc"); c.Limit != 2000 {
		t.Errorf("the container is %+v, want its reclaimed CPU of 2000m as limit", c)
	}
	if p := inventory(pod(func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })); len(p.byUID) != 0 {
		t.Error("a terminated pod is in the inventory, want none")
	}

	p = inventory(pod(func(p *corev1.Pod) {
		p.Annotations = map[string]string{annotationMirror: "x", annotationHash: "hash"}
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Controller: new(true)}}
	}))
	if _, ok := p.Find("hash"); !ok {
		t.Error("Find of a static pod by its cgroup's UID = false, want true")
	}
}

func TestNamesFromLogs(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{"shop_web-1_uid-1", "odd", "a_b_c_d"} {
		if err := os.MkdirAll(filepath.Join(dir, "var/log/pods", d), 0o755); err != nil {
			t.Fatal(err)
		}
	}

	var p Pods
	p.ReadNamesFromLogs(host.Root(dir))

	if got, ok := p.Find("uid-1"); ok || got.Name != "web-1" || got.Namespace != "shop" || got.Allowed != nil {
		t.Errorf("Find = %+v, %t, want the name shop/web-1 of an unknown pod", got, ok)
	}

	p = Pods{}
	p.ReadNamesFromLogs(host.Root(filepath.Join(dir, "nowhere")))

	if got, _ := p.Find("uid-1"); got.Name != "" {
		t.Errorf("Find without log directories = %+v, want no name", got)
	}
}

func TestParse(t *testing.T) {
	for text, want := range map[string]int{
		"kind: List\nitems:\n- {kind: Pod, metadata: {name: a, uid: b}}\n- {metadata: {name: c, uid: d}}\n": 2,
		"kind: PodList\nitems: []\n":                       0,
		"kind: Pod\nmetadata: {name: a, uid: b}\n":         1,
		`{"kind":"Pod","metadata":{"name":"a","uid":"b"}}`: 1,
	} {
		if got, err := Parse([]byte(text)); err != nil || len(got) != want {
			t.Errorf("%q: %d pods, %v; want %d", text, len(got), err, want)
		}
	}

	for _, bad := range []string{"", "kind: Node\n", "kind: List\nitems: [{kind: Service, metadata: {name: a, uid: b}}]\n", "kind: Pod\nmetadata: {name: a}\n", "kind: List\nitems: 5\n", "{"} {
		if got, err := Parse([]byte(bad)); err == nil {
			t.Errorf("Parse(%q) = %+v, want an error", bad, got)
		}
	}
}

// TestContainerOfPodResources checks that a container of a pod with resources as a whole has these as its floor, in CPU and memory.
func TestContainerOfPodResources(t *testing.T) {
	list := corev1.ResourceList{"cpu": resource.MustParse("2"), "memory": resource.MustParse("4Gi")}
	p := inventory(pod(func(p *corev1.Pod) {
		p.Spec.Resources = &corev1.ResourceRequirements{Requests: list, Limits: list}
		p.Spec.Containers = []corev1.Container{{Name: "main"}}
		p.Status.ContainerStatuses = p.Status.ContainerStatuses[:1]
	}))

	got, _ := p.Find("uid-1")
	if got.Class != qos.Guaranteed || got.SensitiveReason == "" {
		t.Errorf("Find = class %s, sensitive %q, want Guaranteed and sensitive", got.Class, got.SensitiveReason)
	}

	want := qos.Container{
		ID:            "abc",
		Name:          "main",
		Request:       2000,
		Limit:         2000,
		RequestMemory: 4 << 30,
		LimitMemory:   4 << 30,
	}
	if c, _ := p.Container("uid-1", "abc"); !reflect.DeepEqual(c, want) {
		t.Errorf("Container = %+v, want %+v", c, want)
	}
}

// TestDebugContainer checks that a container of kubectl debug is known.
func TestDebugContainer(t *testing.T) {
	p := inventory(pod(func(p *corev1.Pod) {
		p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debugger"}}}
		p.Status.EphemeralContainerStatuses = []corev1.ContainerStatus{{Name: "debugger", ContainerID: "containerd://dbg"}}
	}))

	if c, ok := p.Container("uid-1", "dbg"); !ok || c.Name != "debugger" || c.Request != 0 {
		t.Errorf("Container = %+v, %t, want the debugger without a request", c, ok)
	}
}
