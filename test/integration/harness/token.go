// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"crane.io/crane/internal/testbed/controlplane"
)

// PodToken creates a pod of crane-agent on a node, until the test ends, and returns a client with the token of this pod, which names the node.
func PodToken(t *testing.T, control *controlplane.ControlPlane, node string) kubernetes.Interface {
	t.Helper()

	const namespace, account = "crane-system", "crane-agent"
	admin, err := kubernetes.NewForConfig(control.Config())
	if err != nil {
		t.Fatal(err)
	}

	pods := admin.CoreV1().Pods(namespace)
	pod, err := pods.Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "agent-" + node},
		Spec: corev1.PodSpec{
			NodeName:                      node,
			ServiceAccountName:            account,
			Containers:                    []corev1.Container{{Name: "main", Image: "none"}},
			TerminationGracePeriodSeconds: new(int64(0)),
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := pods.Delete(context.WithoutCancel(t.Context()), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}); err != nil {
			t.Error(err)
		}
	})

	// A token that is bound to the pod names its node, on which admission policies decide.
	token, err := admin.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), account, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: &authenticationv1.BoundObjectReference{
			Kind:       "Pod",
			APIVersion: "v1",
			Name:       pod.Name,
			UID:        pod.UID,
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}

	config, err := control.ConfigFor(t.Context(), controlplane.ServiceAccount(namespace, account))
	if err != nil {
		t.Fatal(err)
	}

	config.BearerToken = token.Status.Token
	agentClient, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}

	return agentClient
}
