// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"

	ensurancev1alpha1 "crane.io/crane/api/ensurance/v1alpha1"
	"crane.io/crane/internal/agent/cluster"
	"crane.io/crane/pkg/qos"
)

// TestEvictedKinds checks which kinds of pods are victims of a rule on memory by default and with --evict-also.
func TestEvictedKinds(t *testing.T) {
	const gi = 1 << 30
	elastic := corev1.ResourceList{ensurancev1alpha1.ResourceReclaimedMemory: resource.MustParse("8Gi")}
	for name, test := range map[string]struct {
		change func(*corev1.Pod)
		also   string
		want   bool
	}{
		"ReplicaSet":    {func(*corev1.Pod) {}, "", true},
		"bare":          {func(p *corev1.Pod) { p.OwnerReferences = nil }, "", false},
		"bare, allowed": {func(p *corev1.Pod) { p.OwnerReferences = nil }, evictBarePods, true},
		"Job":           {func(p *corev1.Pod) { p.OwnerReferences = ownedBy("Job", "j") }, "", false},
		"Job, allowed":  {func(p *corev1.Pod) { p.OwnerReferences = ownedBy("Job", "j") }, evictJobPods, true},
		"elastic Job": {func(p *corev1.Pod) {
			p.OwnerReferences = ownedBy("Job", "j")
			p.Spec.Containers[0].Resources.Limits = elastic
		}, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			m := newHostFixture(t)
			m.write(t, "proc/meminfo", fmt.Sprintf("MemTotal: %d kB\nMemAvailable: %d kB\n", 64*gi>>10, 2*gi>>10))
			leak := podOn("22222222-2222-2222-2222-222222222222", "leak", containerID("2"))
			test.change(leak)
			_, l, _ := fixture{m.dir, t.TempDir(), clocktesting.NewFakeClock(m.now), nil, known(t, memoryVictimRules, leak)}.agent(t)

			o := NewOptions()
			if test.also != "" {
				o.Eviction.Also = []string{test.also}
			}

			l.newInventory = o.newInventory
			var plan qos.Plan
			for range 2 {
				now := m.run(t)
				m.setMemory(t, hogGroup, containerID("2"), 8*gi, 0, 0)
				plan = l.tick(now)
			}

			if (len(plan.Evictions) == 1) != test.want {
				t.Errorf("evictions are %+v, findings %+v; want an eviction: %t", plan.Evictions, plan.Rules, test.want)
			}
		})
	}

	if _, _, err := parse(t, "--dry-run", "--evict-also=everything"); err == nil || !strings.Contains(err.Error(), evictJobPods) {
		t.Errorf("%v", err)
	}
}

// clientOf is a client of an API server with these pods.
func clientOf(list ...*corev1.Pod) *fake.Clientset {
	var objects []runtime.Object
	for _, p := range list {
		objects = append(objects, p)
	}

	return fake.NewClientset(objects...)
}

// TestLastReplica checks that the last ready pod of a workload is not evicted, by a count of those of the cluster.
func TestLastReplica(t *testing.T) {
	replica := func(n int, change func(*corev1.Pod)) *corev1.Pod {
		p := podOn(fmt.Sprint("uid-", n), fmt.Sprint("web-", n), containerID("1"))
		p.Labels[podTemplateHash] = "h"
		p.OwnerReferences = ownedBy("ReplicaSet", "web")
		if change != nil {
			change(p)
		}

		return p
	}

	ready := func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	}

	terminating := func(p *corev1.Pod) {
		ready(p)
		p.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		p.Finalizers = []string{"a/b"}
	}

	other := func(p *corev1.Pod) {
		ready(p)
		p.OwnerReferences = ownedBy("ReplicaSet", "other")
	}
	elastic := func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{ensurancev1alpha1.ResourceReclaimedCPU: resource.MustParse("1")}
	}
	for name, test := range map[string]struct {
		pod     *corev1.Pod
		others  []*corev1.Pod
		also    []string
		blocked bool
	}{
		"the only one":          {replica(1, ready), nil, nil, true},
		"two":                   {replica(1, ready), []*corev1.Pod{replica(2, ready)}, nil, false},
		"the other is unready":  {replica(1, ready), []*corev1.Pod{replica(2, nil)}, nil, true},
		"only the other ready":  {replica(1, nil), []*corev1.Pod{replica(2, ready)}, nil, false},
		"the other terminates":  {replica(1, nil), []*corev1.Pod{replica(2, terminating)}, nil, true},
		"of another workload":   {replica(1, nil), []*corev1.Pod{replica(2, other)}, nil, true},
		"allowed":               {replica(1, nil), nil, []string{evictLastReplicas}, false},
		"on reclaimed capacity": {replica(1, elastic), nil, nil, false},
		"does not run":          {replica(1, func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }), nil, nil, false},
		"bare":                  {replica(1, func(p *corev1.Pod) { p.OwnerReferences = nil }), nil, nil, false},
	} {
		o := EvictionOptions{Also: test.also}
		client := clientOf(slices.Concat([]*corev1.Pod{test.pod}, test.others)...)
		guard := replicaGuard{cluster.NewStatic(cluster.State{Pods: []*corev1.Pod{test.pod}}), client, o.policyFor}

		why, err := guard.blockReason(t.Context(), qos.PodRef{UID: string(test.pod.UID), Namespace: test.pod.Namespace, Name: test.pod.Name})
		if err != nil || (why != "") != test.blocked {
			t.Errorf("%s: blockReason = %q, %v, want a reason: %t", name, why, err, test.blocked)
		}
	}

	client := clientOf()
	client.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("no answer") })

	guard := replicaGuard{cluster.NewStatic(cluster.State{Pods: []*corev1.Pod{replica(1, nil)}}), client, (&EvictionOptions{}).policyFor}
	if why, err := guard.blockReason(context.Background(), qos.PodRef{UID: "uid-1"}); err == nil || why != "" || !strings.Contains(err.Error(), "ReplicaSet n/web") {
		t.Errorf("blockReason without an answer = %q, %v, want an error that names ReplicaSet n/web", why, err)
	}
	if why, err := guard.blockReason(t.Context(), qos.PodRef{UID: string(types.UID("gone"))}); err != nil || why != "" {
		t.Errorf("blockReason of a pod that is gone = %q, %v, want neither", why, err)
	}
}
