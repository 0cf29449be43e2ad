// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ResourceList returns a resource list without the resources whose text is empty.
func ResourceList(cpu, memory string) corev1.ResourceList {
	list := corev1.ResourceList{}
	if cpu != "" {
		list[corev1.ResourceCPU] = resource.MustParse(cpu)
	}
	if memory != "" {
		list[corev1.ResourceMemory] = resource.MustParse(memory)
	}

	return list
}

// PodTemplate returns the template of pods with label app=name and one container "app" that requests one core and 512 MiB.
// They run on simulated nodes with label pool=wide and end without a grace period.
func PodTemplate(name string) corev1.PodTemplateSpec {
	none := int64(0)
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": name}},
		Spec: corev1.PodSpec{
			NodeSelector: map[string]string{"pool": "wide"}, TerminationGracePeriodSeconds: &none,
			Containers: []corev1.Container{{
				Name: "app", Image: "example.com/app:1", Resources: corev1.ResourceRequirements{Requests: ResourceList("1", "512Mi")},
			}},
		},
	}
}

// Deploy creates a Deployment with PodTemplate and waits until its pods are ready.
func (n *Namespace) Deploy(name string, replicas int32, edit ...func(*appsv1.Deployment)) *appsv1.Deployment {
	n.T.Helper()

	template := PodTemplate(name)
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       appsv1.DeploymentSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: template.Labels}, Template: template},
	}

	for _, f := range edit {
		f(d)
	}

	n.CreateAll(d)
	n.AwaitReady(name, int(*d.Spec.Replicas))
	return d
}

// ListPods returns the active pods with label app=name: those that have not finished and are not being deleted.
func (n *Namespace) ListPods(ctx context.Context, name string) ([]corev1.Pod, error) {
	var list corev1.PodList
	if err := n.List(ctx, &list, client.InNamespace(n.Name), client.MatchingLabels{"app": name}); err != nil {
		return nil, err
	}

	var out []corev1.Pod
	for _, p := range list.Items {
		if p.DeletionTimestamp == nil && p.Status.Phase != corev1.PodFailed && p.Status.Phase != corev1.PodSucceeded {
			out = append(out, p)
		}
	}

	return out, nil
}

// Pods is ListPods in a test that fails on an error.
func (n *Namespace) Pods(name string) []corev1.Pod {
	n.T.Helper()

	pods, err := n.ListPods(n.T.Context(), name)
	if err != nil {
		n.T.Fatal(err)
	}

	return pods
}

// AwaitPods waits until a check of the pods of ListPods passes, and returns them.
func (n *Namespace) AwaitPods(name, what string, check func([]corev1.Pod) error) []corev1.Pod {
	n.T.Helper()

	var out []corev1.Pod
	n.Eventually("pods of "+name+" "+what, func(ctx context.Context) (err error) {
		if out, err = n.ListPods(ctx, name); err != nil {
			return err
		}

		return check(out)
	})

	return out
}

// AwaitReady waits until a workload has a number of pods and all are ready, and returns them.
func (n *Namespace) AwaitReady(name string, replicas int) []corev1.Pod {
	n.T.Helper()
	return n.AwaitPods(name, "are ready", func(pods []corev1.Pod) error { return CheckReady(pods, replicas) })
}

// CheckReady checks that there are as many pods as replicas and that all are ready.
func CheckReady(pods []corev1.Pod, replicas int) error {
	ready := 0
	for i := range pods {
		for _, c := range pods[i].Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
				ready++
			}
		}
	}

	if ready != replicas || len(pods) != replicas {
		return fmt.Errorf("%d of %d pods are ready, want %d", ready, len(pods), replicas)
	}

	return nil
}
