// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	clocktesting "k8s.io/utils/clock/testing"

	ensurancev1alpha1 "crane.io/crane/api/ensurance/v1alpha1"
	"crane.io/crane/internal/agent/cluster"
)

// TestPredecessor checks that the first start removes what gocrane's agent left, as far as pods do not hold it, and that a dry run warns.
func TestPredecessor(t *testing.T) {
	for name, test := range map[string]struct {
		enforce []string
		removes bool
		cpu     int64
	}{
		"dry run":       {nil, false, 6},
		"enforced":      {[]string{enforceThrottle}, true, 3},
		"node-resource": {[]string{enforceThrottle, enforceNodeResource}, true, 6},
	} {
		t.Run(name, func(t *testing.T) {
			six := corev1.ResourceList{ensurancev1alpha1.ResourceReclaimedCPU: resource.MustParse("6")}
			node := &corev1.Node{
				ObjectMeta: metav1.ObjectMeta{Name: "n"},
				Spec:       corev1.NodeSpec{Taints: []corev1.Taint{{Key: ensurancev1alpha1.TaintKey, Effect: corev1.TaintEffectPreferNoSchedule}}},
				Status: corev1.NodeStatus{
					Conditions: []corev1.NodeCondition{{Type: ensurancev1alpha1.ConditionInterferenceIdentified, Status: corev1.ConditionTrue}},
					Capacity:   six, Allocatable: six.DeepCopy(),
				},
			}
			pod := podOn("1", "elastic", containerID("1"))
			pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{ensurancev1alpha1.ResourceReclaimedCPU: resource.MustParse("3")}
			pod.Spec.Containers[0].Resources.Limits = pod.Spec.Containers[0].Resources.Requests
			client := fake.NewClientset(node)
			o := NewOptions()
			o.Enforce, o.DryRun = test.enforce, test.enforce == nil
			var log []string
			e := environment{Options: o, clock: clocktesting.NewFakeClock(time.Unix(0, 0)), log: funcr.New(func(_, args string) { log = append(log, args) }, funcr.Options{})}
			view := cluster.NewStatic(cluster.State{Node: node, Pods: []*corev1.Pod{pod}, KnowsPods: true})
			for _, m := range e.newPredecessorManager(clusterAccess{view: view, api: &clients{Interface: client}}) {
				if err := m.Run(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			got, err := client.CoreV1().Nodes().Get(t.Context(), "n", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if cpu := got.Status.Capacity[ensurancev1alpha1.ResourceReclaimedCPU]; (len(got.Spec.Taints) == 0) != test.removes || (len(got.Status.Conditions) == 0) != test.removes || cpu.Value() != test.cpu {
				t.Errorf("%+v, %+v, %s", got.Spec.Taints, got.Status.Conditions, cpu.String())
			}
			if !slices.ContainsFunc(log, func(line string) bool { return strings.Contains(line, "interference.crane.io") }) {
				t.Errorf("%q", log)
			}
		})
	}
}
