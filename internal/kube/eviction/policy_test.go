// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestPolicy checks which pods are evicted by default and what each permission adds.
func TestPolicy(t *testing.T) {
	critical := int32(minCriticalPriority)
	ownedBy := func(kind string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: "web", Controller: new(true)}}
		}
	}

	annotated := func(key, value string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Annotations = map[string]string{key: value} }
	}

	all := Policy{BarePods: true, JobPods: true, LastReplicas: true}
	for name, test := range map[string]struct {
		change        func(*corev1.Pod)
		normal, asAll string
	}{
		"ReplicaSet":     {nil, "", ""},
		"bare":           {func(p *corev1.Pod) { p.OwnerReferences = nil }, "no controller", ""},
		"Job":            {ownedBy("Job"), "a Job", ""},
		"DaemonSet":      {ownedBy("DaemonSet"), "DaemonSet", "DaemonSet"},
		"Node":           {ownedBy("Node"), "Node", "Node"},
		"mirror":         {annotated(annotationMirror, "x"), "static", "static"},
		"file":           {annotated(annotationSource, "file"), "static", "static"},
		"from the API":   {annotated(annotationSource, "api"), "", ""},
		"critical":       {func(p *corev1.Pod) { p.Spec.Priority = &critical }, "critical", "critical"},
		"not safe":       {annotated(SafeToEvict, "false"), "safe-to-evict", "safe-to-evict"},
		"safe":           {annotated(SafeToEvict, "true"), "", ""},
		"undisrupted":    {annotated("karpenter.sh/do-not-disrupt", "true"), "karpenter.sh/do-not-disrupt is true", "do-not-disrupt"},
		"for a while":    {annotated("karpenter.sh/do-not-disrupt", "1h"), "do-not-disrupt is 1h", "do-not-disrupt"},
		"disrupted":      {annotated("karpenter.sh/do-not-disrupt", "false"), "", ""},
		"unevicted":      {annotated("karpenter.sh/do-not-evict", "true"), "do-not-evict is true", "do-not-evict"},
		"descheduler":    {annotated("descheduler.alpha.kubernetes.io/prefer-no-eviction", ""), "prefer-no-eviction is set", "prefer-no-eviction"},
		"safe, but bare": {func(p *corev1.Pod) { p.OwnerReferences = nil; annotated(SafeToEvict, "true")(p) }, "no controller", ""},
	} {
		pod := &corev1.Pod{}
		ownedBy("ReplicaSet")(pod)

		if test.change != nil {
			test.change(pod)
		}

		for policy, want := range map[Policy]string{{}: test.normal, all: test.asAll} {
			if got := policy.BlockReason(pod); (got == "") != (want == "") || !strings.Contains(got, want) {
				t.Errorf("%s, %+v: %q, want %q", name, policy, got, want)
			}
		}
	}

	for others, blocked := range map[int]bool{0: true, 1: false, 2: false} {
		if got := (Policy{}).ReplicaBlockReason(others); (got != "") != blocked {
			t.Errorf("ReplicaBlockReason(%d) = %q, want a reason: %t", others, got, blocked)
		}
	}

	if got := all.ReplicaBlockReason(0); got != "" {
		t.Errorf("ReplicaBlockReason(0) = %q, want none: last replicas are allowed", got)
	}
}
