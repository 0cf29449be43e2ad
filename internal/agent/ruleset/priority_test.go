// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package ruleset

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestCPUPriority checks that the most specific PodQOS with a priority counts.
func TestCPUPriority(t *testing.T) {
	const of = "---\napiVersion: ensurance.crane.io/v1alpha1\nkind: PodQOS\n"
	set, err := Parse([]byte("apiVersion: ensurance.crane.io/v1alpha1\nkind: NodeQOS\nmetadata: {name: node}\nspec: {}\n" +
		of + "metadata: {name: web}\nspec: {labelSelector: {matchLabels: {app: web}}, resourceQOS: {cpuQOS: {cpuPriority: 0}}}\n" +
		of + "metadata: {name: night}\nspec: {labelSelector: {matchLabels: {app: web, time: night}}, resourceQOS: {cpuQOS: {cpuPriority: 3}}}\n" +
		of + "metadata: {name: silent}\nspec: {labelSelector: {matchLabels: {app: web, time: night, zone: a}}, allowedActions: [a]}\n" +
		of + "metadata: {name: odd}\nspec: {scopeSelector: {matchExpressions: [{scopeName: Weather, operator: In, values: [bad]}]}, resourceQOS: {cpuQOS: {cpuPriority: 7}}}\n"))
	if err != nil {
		t.Fatal(err)
	}

	for _, test := range []struct {
		labels map[string]string
		want   int32
		said   bool
	}{
		{map[string]string{"app": "web"}, 0, true},
		{map[string]string{"app": "web", "time": "night"}, 3, true},
		{map[string]string{"app": "web", "time": "night", "zone": "a"}, 3, true},
		{map[string]string{"app": "batch"}, 0, false},
		{nil, 0, false},
	} {
		if got, said := set.PodRules().CPUPriority(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: test.labels}}); got != test.want || said != test.said {
			t.Errorf("%v: %d, %t; want %d, %t", test.labels, got, said, test.want, test.said)
		}
	}
}
