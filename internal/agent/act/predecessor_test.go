// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package act

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/kubernetes/fake"

	ensurancev1alpha1 "crane.io/crane/api/ensurance/v1alpha1"
)

// gocranesNode returns a Node as gocrane's agent leaves it: with capacity, taint and condition.
func gocranesNode() *corev1.Node {
	node := calmNode()
	node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: ensurancev1alpha1.TaintKey, Effect: corev1.TaintEffectPreferNoSchedule})
	node.Status.Conditions = []corev1.NodeCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady"},
		{Type: ensurancev1alpha1.ConditionInterferenceIdentified, Status: corev1.ConditionTrue},
	}

	node.Status.Capacity = corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("8"), ensurancev1alpha1.ResourceReclaimedCPU: resource.MustParse("6"),
		ensurancev1alpha1.ResourceReclaimedMemory: resource.MustParse("8Gi"),
	}
	node.Status.Allocatable = node.Status.Capacity.DeepCopy()

	return node
}

// TestRemovePredecessor checks that everything that gocrane's agent left is removed, except resources that pods hold, and nothing of others.
func TestRemovePredecessor(t *testing.T) {
	client := fake.NewClientset(gocranesNode())
	allocated := corev1.ResourceList{ensurancev1alpha1.ResourceReclaimedCPU: resource.MustParse("2")}

	removed, err := RemovePredecessor(t.Context(), client.CoreV1().Nodes(), "n", true, false, allocated)
	if err != nil || removed.String() != "taint interference.crane.io, condition interference-identified, capacity gocrane.io/cpu, capacity gocrane.io/memory" {
		t.Errorf("RemovePredecessor = %s, %v, want the taint, the condition and both resources", removed, err)
	}

	node := stored(t, client)
	if !slices.Equal(node.Spec.Taints, others) || conditionOf(node) != nil || len(node.Status.Conditions) != 1 {
		t.Errorf("the node has taints %+v and conditions %+v, want those of others", node.Spec.Taints, node.Status.Conditions)
	}

	for _, list := range []corev1.ResourceList{node.Status.Capacity, node.Status.Allocatable} {
		cpu := list[ensurancev1alpha1.ResourceReclaimedCPU]
		if _, ok := list[ensurancev1alpha1.ResourceReclaimedMemory]; ok || cpu.Value() != 2 || list.Cpu().Value() != 8 {
			t.Errorf("resources are %v, want the 2 elastic CPUs that pods hold, no elastic memory, and 8 CPUs", list)
		}
	}

	client = fake.NewClientset(gocranesNode())
	if removed, err := RemovePredecessor(t.Context(), client.CoreV1().Nodes(), "n", false, false, nil); err != nil || len(removed.Resources) > 0 || len(stored(t, client).Status.Capacity) != 3 {
		t.Errorf("RemovePredecessor without resources = %s, %v, want all resources to stay", removed, err)
	}
}

// TestPredecessorAnnotation checks that the annotation replaces the other marks while quotas are left, stays meanwhile without further
// writes, and goes with the last quota.
func TestPredecessorAnnotation(t *testing.T) {
	client := fake.NewClientset(gocranesNode())
	for i, step := range []struct {
		left     bool
		value    string
		removed  string
		requests int
	}{
		{true, ensurancev1alpha1.PredecessorGocrane, "taint interference.crane.io, condition interference-identified, capacity gocrane.io/cpu, capacity gocrane.io/memory", 4},
		{true, ensurancev1alpha1.PredecessorGocrane, "", 1},
		{false, "", "annotation ensurance.crane.io/predecessor", 2},
	} {
		client.ClearActions()
		removed, err := RemovePredecessor(t.Context(), client.CoreV1().Nodes(), "n", true, step.left, nil)
		requests := len(client.Actions())
		node := stored(t, client)
		if err != nil || removed.String() != step.removed || requests != step.requests || node.Annotations[ensurancev1alpha1.AnnotationPredecessor] != step.value || conditionOf(node) != nil {
			t.Errorf("step %d: removed %q with %d requests, %v, annotations %v; want %q, %d requests and annotation %q", i, removed, requests, err, node.Annotations, step.removed, step.requests, step.value)
		}
	}
}

// TestFindPredecessor checks that Crane's own taint, condition and resources are not gocrane's.
func TestFindPredecessor(t *testing.T) {
	for name, change := range map[string]func(*corev1.Node){
		"Crane's": func(n *corev1.Node) {
			n.Status.Conditions[1].Reason = reasonRuleFires
			n.Annotations = map[string]string{ensurancev1alpha1.AnnotationElasticResources: "{}"}
		},
		"nothing": func(n *corev1.Node) { *n = *calmNode() },
		"a taint alone": func(n *corev1.Node) {
			n.Status = corev1.NodeStatus{}
		},
	} {
		node := gocranesNode()
		change(node)

		if got := FindPredecessor(node); !got.IsEmpty() {
			t.Errorf("%s: FindPredecessor = %s, want nothing", name, got)
		}

		client := fake.NewClientset(node)
		if removed, err := RemovePredecessor(t.Context(), client.CoreV1().Nodes(), "n", true, false, nil); err != nil || !removed.IsEmpty() || len(client.Actions()) != 1 {
			t.Errorf("%s: RemovePredecessor = %s, %v with %d requests, want nothing with 1 request", name, removed, err, len(client.Actions()))
		}
	}

	if got := FindPredecessor(gocranesNode()); got.IsEmpty() || !got.Taint {
		t.Errorf("FindPredecessor of gocrane's node = %s, want its taint", got)
	}
}
