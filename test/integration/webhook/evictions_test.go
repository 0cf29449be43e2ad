// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"crane.io/crane/test/integration/harness"
)

// TestAgentEvictions checks with the token of an agent's pod that it evicts pods of its own node alone, none that has opted out, and none
// while craned does not answer, and that evictions by others do not depend on craned.
func TestAgentEvictions(t *testing.T) {
	c := newClientset(t)
	for _, node := range []string{"evict-own", "evict-other"} {
		if _, err := c.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}

		t.Cleanup(func() {
			if err := c.CoreV1().Nodes().Delete(context.WithoutCancel(t.Context()), node, metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		})
	}

	run := func(name, node string, labels map[string]string) {
		t.Helper()

		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
			Spec: corev1.PodSpec{
				NodeName: node, Containers: []corev1.Container{{Name: "main", Image: "none"}}, AutomountServiceAccountToken: new(false),
				TerminationGracePeriodSeconds: new(int64(0)),
			},
		}

		if _, err := c.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}

		t.Cleanup(func() {
			err := c.CoreV1().Pods("default").Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
			if err != nil && !apierrors.IsNotFound(err) {
				t.Error(err)
			}
		})
	}

	run("own", "evict-own", nil)
	run("other", "evict-other", nil)
	run("quiet", "evict-own", map[string]string{"crane.io/opt-out": "true"})
	p := startWebhooks(t)
	agent := harness.PodToken(t, control, "evict-own")
	evict := func(ctx context.Context, by kubernetes.Interface, pod string) error {
		return by.PolicyV1().Evictions("default").Evict(ctx, &policyv1.Eviction{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: pod}, DeleteOptions: &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}},
		})
	}

	refused := func(err error, why string) error {
		if err == nil || !strings.Contains(err.Error(), why) {
			return fmt.Errorf("want a refusal with %q: %w", why, errors.Join(err, errors.New("not refused so")))
		}

		return nil
	}

	for pod, why := range map[string]string{"other": "its own node only", "quiet": "opted out"} {
		eventually(t, "no eviction of "+pod, func(ctx context.Context) error { return refused(evict(ctx, agent, pod), why) })
	}

	if err := evict(t.Context(), agent, "own"); err != nil {
		t.Errorf("a pod of its own node: %v", err)
	}
	if err := evict(t.Context(), agent, "gone"); !apierrors.IsNotFound(err) {
		t.Errorf("a pod that is gone: %v", err)
	}

	p.Kill()
	if err := refused(evict(t.Context(), agent, "own"), "failed calling webhook"); err != nil {
		t.Errorf("craned is killed: %v", err)
	}
	if err := evict(t.Context(), c, "other"); err != nil {
		t.Errorf("craned is killed: an eviction by an administrator: %v", err)
	}
}
