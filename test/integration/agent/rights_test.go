// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"crane.io/crane/test/integration/harness"
)

// TestOwnNodeAlone checks that the agent cannot change another node.
func TestOwnNodeAlone(t *testing.T) {
	c := newClient(t)
	harness.Create(t, c, newNode("own"), newNode("foreign"))
	agent := harness.PodToken(t, control, "own")
	annotate := func(ctx context.Context, node string) error {
		_, err := agent.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, []byte(`{"metadata":{"annotations":{"ensurance.crane.io/agent-features":"`+node+`"}}}`), metav1.PatchOptions{})
		return err
	}

	eventually(t, "the policy is in force", func(ctx context.Context) error {
		err := annotate(ctx, "foreign")
		if !apierrors.IsForbidden(err) {
			return fmt.Errorf("want Forbidden: %w", errors.Join(err, errors.New("the foreign node may be changed")))
		}

		return nil
	})

	if err := annotate(t.Context(), "own"); err != nil {
		t.Errorf("its own node: %v", err)
	}
	if _, err := agent.CoreV1().Secrets("").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("secrets: %v", err)
	}
	if err := agent.CoreV1().Pods("crane-system").Delete(t.Context(), "agent-own", metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("deleting pods without their disruption budgets: %v", err)
	}
}

// TestOwnNodeFields checks that an agent changes of its own Node its annotations, taint, condition and resources, and nothing else.
func TestOwnNodeFields(t *testing.T) {
	c := newClient(t)
	node := newNode("fields")
	node.Spec.Taints = []corev1.Taint{{Key: "dedicated", Effect: corev1.TaintEffectNoSchedule}}
	node.Annotations = map[string]string{"owner": "team-a"}
	harness.Create(t, c, node)
	node.Status.Capacity = harness.ResourceList("4", "8Gi")

	node.Status.Allocatable = harness.ResourceList("4", "8Gi")
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	if err := c.Status().Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}

	agent := harness.PodToken(t, control, "fields")
	patch := func(ctx context.Context, body string, subresources ...string) error {
		_, err := agent.CoreV1().Nodes().Patch(ctx, "fields", types.StrategicMergePatchType, []byte(body), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}, subresources...)
		return err
	}
	const policy = "'crane-agent-node-fields'"

	forbidden := map[string][]string{
		"label":               {`{"metadata":{"labels":{"node-role.kubernetes.io/control-plane":""}}}`},
		"removed label":       {`{"metadata":{"labels":{"pool":null}}}`},
		"finalizer":           {`{"metadata":{"finalizers":["example.com/x"]}}`},
		"foreign annotation":  {`{"metadata":{"annotations":{"example.com/x":"y"}}}`},
		"changed annotation":  {`{"metadata":{"annotations":{"owner":"me"}}}`},
		"removed annotation":  {`{"metadata":{"annotations":{"owner":null}}}`},
		"unschedulable":       {`{"spec":{"unschedulable":true}}`},
		"provider":            {`{"spec":{"providerID":"x"}}`},
		"foreign taint":       {`{"spec":{"taints":[{"key":"x","effect":"NoExecute"}]}}`},
		"removed taint":       {`{"spec":{"taints":null}}`},
		"own taint, evicting": {`{"spec":{"taints":[{"key":"dedicated","effect":"NoSchedule"},{"key":"interference.crane.io","effect":"NoExecute"}]}}`},
		"capacity":            {`{"status":{"capacity":{"cpu":"400"}}}`, "status"},
		"allocatable":         {`{"status":{"allocatable":{"example.com/gpu":"8"}}}`, "status"},
		"removed resource":    {`{"status":{"allocatable":{"memory":null}}}`, "status"},
		"foreign condition":   {`{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`, "status"},
		"address":             {`{"status":{"addresses":[{"type":"InternalIP","address":"10.9.9.9"}]}}`, "status"},
		"volumes":             {`{"status":{"volumesInUse":["x"]}}`, "status"},
	}

	for name, write := range forbidden {
		eventually(t, name, func(ctx context.Context) error {
			if err := patch(ctx, write[0], write[1:]...); err == nil || !strings.Contains(err.Error(), policy) {
				return fmt.Errorf("want a refusal by policy %s: %w", policy, fmt.Errorf("%v", err))
			}

			return nil
		})
	}

	for name, write := range map[string][]string{
		"features":         {`{"metadata":{"annotations":{"ensurance.crane.io/agent-features":"{}"}}}`},
		"record of quotas": {`{"metadata":{"annotations":{"ensurance.crane.io/predecessor":"gocrane"}}}`},
		"taint":            {`{"spec":{"taints":[{"key":"dedicated","effect":"NoSchedule"},{"key":"interference.crane.io","effect":"PreferNoSchedule"}]}}`},
		"condition":        {`{"status":{"conditions":[{"type":"interference-identified","status":"True"}]}}`, "status"},
		"resources":        {`{"status":{"capacity":{"gocrane.io/cpu":"2"},"allocatable":{"gocrane.io/cpu":"2"}}}`, "status"},
		"annotation":       {`{"metadata":{"annotations":{"ensurance.crane.io/elastic-resources":"{}"}}}`, "status"},
	} {
		if err := patch(t.Context(), write[0], write[1:]...); err != nil {
			t.Errorf("patching the %s of the agent's own node: %v", name, err)
		}
	}
}
