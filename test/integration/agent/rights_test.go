// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"crane.io/crane/internal/testbed/controlplane"
	"crane.io/crane/test/integration/harness"
)

// podToken returns a client with the token of the agent's pod on a node.
func podToken(t *testing.T, c client.Client, node string) kubernetes.Interface {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "crane-system", Name: "agent-" + node},
		Spec: corev1.PodSpec{
			NodeName: node, ServiceAccountName: "crane-agent", Containers: []corev1.Container{{Name: "main", Image: "none"}}, TerminationGracePeriodSeconds: new(int64(0)),
		},
	}
	harness.Create(t, c, pod)
	admin, err := kubernetes.NewForConfig(control.Config())
	if err != nil {
		t.Fatal(err)
	}
	token, err := admin.CoreV1().ServiceAccounts(pod.Namespace).CreateToken(t.Context(), "crane-agent", &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config, err := control.ConfigFor(t.Context(), controlplane.ServiceAccount(pod.Namespace, "crane-agent"))
	if err != nil {
		t.Fatal(err)
	}
	config.BearerToken = token.Status.Token
	own, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return own
}

// TestOwnNodeAlone checks that the agent cannot change another node.
func TestOwnNodeAlone(t *testing.T) {
	c := newClient(t)
	harness.Create(t, c, newNode("own"), newNode("foreign"))
	agent := podToken(t, c, "own")
	annotate := func(ctx context.Context, node string) error {
		_, err := agent.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, []byte(`{"metadata":{"annotations":{"probe":"`+node+`"}}}`), metav1.PatchOptions{})
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
