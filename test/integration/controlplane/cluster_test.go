// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"crane.io/crane/internal/testbed/controlplane"
)

// bound limits waits for controllers, which take well under a second on an idle machine.
const bound = 2 * time.Minute

func clientFor(t testing.TB, config *rest.Config) *kubernetes.Clientset {
	t.Helper()

	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}

	return client
}

// eventually polls until check returns nil, and fails the test with its last error after the bound.
func eventually(t testing.TB, what string, check func(context.Context) error) {
	t.Helper()

	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, bound, true, func(ctx context.Context) (bool, error) {
		last = check(ctx)
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("%s: %v (last: %v)", what, err, last)
	}
}

// newNamespace creates a namespace and waits until pods can be created in it.
func newNamespace(t *testing.T, client kubernetes.Interface) string {
	t.Helper()

	ns, err := client.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), bound)
		defer cancel()

		if err := client.CoreV1().Namespaces().Delete(ctx, ns.Name, metav1.DeleteOptions{}); err != nil {
			t.Errorf("deleting namespace %s: %v", ns.Name, err)
		}
	})

	eventually(t, "service account of "+ns.Name, func(ctx context.Context) error {
		_, err := client.CoreV1().ServiceAccounts(ns.Name).Get(ctx, "default", metav1.GetOptions{})
		return err
	})

	return ns.Name
}

func deployment(name string, replicas int32) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{
					Name: "app", Image: "app:1",
					Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
						corev1.ResourceCPU: resource.MustParse("100m"),
					}},
				}}},
			},
		},
	}
}

// readyNode creates a ready node and removes it after the test.
func readyNode(t testing.TB, client kubernetes.Interface, name string) {
	t.Helper()

	registerNode(t, client, name)
	t.Cleanup(func() {
		if err := client.CoreV1().Nodes().Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{}); err != nil {
			t.Errorf("deleting node %s: %v", name, err)
		}
	})
}

// registerNode creates a node with its status like a kubelet.
func registerNode(t testing.TB, client kubernetes.Interface, name string) {
	t.Helper()

	_, err := client.CoreV1().Nodes().Create(t.Context(),
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}

	room := corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("4"),
		corev1.ResourceMemory: resource.MustParse("8Gi"),
		corev1.ResourcePods:   resource.MustParse("110"),
	}

	// A patch, because controllers change the new node at the same time.
	patch, err := json.Marshal(corev1.Node{Status: corev1.NodeStatus{
		Capacity: room, Allocatable: room,
		Conditions: []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady",
			LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now(),
		}},
	}})
	if err != nil {
		t.Fatal(err)
	}

	_, err = client.CoreV1().Nodes().Patch(t.Context(), name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		t.Fatal(err)
	}
}

// podsOn returns an error unless there are want pods that are bound to a node if and only if bound is set.
func podsOn(ctx context.Context, client kubernetes.Interface, namespace string, want int, onNode bool) error {
	pods, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}

	if len(pods.Items) != want {
		return fmt.Errorf("%d pods, want %d", len(pods.Items), want)
	}

	for i := range pods.Items {
		pod := &pods.Items[i]
		if (pod.Spec.NodeName != "") != onNode {
			return fmt.Errorf("pod %s is on node %q", pod.Name, pod.Spec.NodeName)
		}
		if !onNode && !unschedulable(pod) {
			return fmt.Errorf("pod %s: the scheduler has not looked at it", pod.Name)
		}
	}

	return nil
}

func unschedulable(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable {
			return true
		}
	}

	return false
}

// runPods sets the status of every pod like a kubelet whose containers have been ready for a while, and returns their
// names.
func runPods(t testing.TB, client kubernetes.Interface, namespace string) []string {
	t.Helper()

	pods, err := client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}

	since := metav1.NewTime(time.Now().Add(-time.Hour))
	patch, err := json.Marshal(corev1.Pod{Status: corev1.PodStatus{
		Phase: corev1.PodRunning, StartTime: &since,
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: since}},
	}})
	if err != nil {
		t.Fatal(err)
	}

	var names []string
	for i := range pods.Items {
		name := pods.Items[i].Name
		names = append(names, name)

		_, err := client.CoreV1().Pods(namespace).Patch(t.Context(), name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
		if err != nil {
			t.Fatal(err)
		}
	}

	return names
}

func TestDeploymentToBoundPods(t *testing.T) {
	client := clientFor(t, shared.Config())
	namespace := newNamespace(t, client)
	if _, err := client.AppsV1().Deployments(namespace).Create(t.Context(), deployment("web", 3), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	eventually(t, "replica set of the deployment", func(ctx context.Context) error {
		sets, err := client.AppsV1().ReplicaSets(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}

		if len(sets.Items) != 1 || !metav1.IsControlledBy(&sets.Items[0], mustGet(ctx, t, client, namespace, "web")) {
			return fmt.Errorf("%d replica sets", len(sets.Items))
		}

		return nil
	})

	eventually(t, "pods that wait for a node", func(ctx context.Context) error {
		return podsOn(ctx, client, namespace, 3, false)
	})
	readyNode(t, client, "bound-pods")
	eventually(t, "pods on the node", func(ctx context.Context) error {
		return podsOn(ctx, client, namespace, 3, true)
	})
}

func mustGet(ctx context.Context, t *testing.T, client kubernetes.Interface, namespace, name string) *appsv1.Deployment {
	t.Helper()

	d, err := client.AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}

	return d
}

func TestServiceAccountRights(t *testing.T) {
	admin := clientFor(t, shared.Config())
	namespace := newNamespace(t, admin)
	path, err := shared.KubeconfigFor(t.Context(), "rights", controlplane.ServiceAccount(namespace, "default"))
	if err != nil {
		t.Fatal(err)
	}

	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}

	client := clientFor(t, config)
	list := func(ctx context.Context) error {
		_, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		return err
	}

	if err := list(t.Context()); !apierrors.IsForbidden(err) {
		t.Fatalf("list without rights: %v, want Forbidden", err)
	}

	_, err = admin.RbacV1().RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "view"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: "default", Namespace: namespace}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}

	eventually(t, "list with rights", list)
}

func TestCertificateUsers(t *testing.T) {
	node, err := shared.ConfigFor(t.Context(), controlplane.CertificateUser("system:node:n1", "system:nodes"))
	if err != nil {
		t.Fatal(err)
	}

	client := clientFor(t, node)
	make := func(name string) error {
		_, err := client.CoreV1().Nodes().Create(t.Context(),
			&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		return err
	}

	// NodeRestriction: a kubelet may register only itself.
	if err := make("n2"); !apierrors.IsForbidden(err) {
		t.Errorf("node n1 registers n2: %v, want Forbidden", err)
	}
	if err := make("n1"); err != nil {
		t.Errorf("node n1 registers itself: %v", err)
	}

	admin := clientFor(t, shared.Config())
	if err := admin.CoreV1().Nodes().Delete(t.Context(), "n1", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := client.CoreV1().Secrets("kube-system").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a node lists all secrets: %v, want Forbidden", err)
	}

	noRights, err := shared.ConfigFor(t.Context(), controlplane.CertificateUser("no-rights"))
	if err != nil {
		t.Fatal(err)
	}

	if _, err := clientFor(t, noRights).CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a user without rights lists pods: %v, want Forbidden", err)
	}
}

func TestKubeconfigForRefusesPaths(t *testing.T) {
	for _, name := range []string{"", "..", "a/b", "../admin"} {
		if _, err := shared.KubeconfigFor(t.Context(), name, controlplane.CertificateUser("u")); err == nil {
			t.Errorf("KubeconfigFor(%q) returned no error, want one", name)
		}
	}

	if _, err := shared.KubeconfigFor(t.Context(), "none", controlplane.ServiceAccount("default", "not-there")); !apierrors.IsNotFound(err) {
		t.Errorf("missing service account: %v, want NotFound", err)
	}
}
