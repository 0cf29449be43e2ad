// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package webhook gives new pods of adopted workloads their adopted requests, so that a replacement pod need not be resized. It
// reads the state that is stored on the workload and decides nothing.
package webhook

import (
	"fmt"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/adoption/targetsnapshot"
	"crane.io/crane/internal/kube/podwebhook"
	"crane.io/crane/pkg/adoption"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/series"
)

// Workload holds what the webhook needs of a workload and its namespace.
type Workload struct {
	Annotations, Labels map[string]string
	NamespaceLabels     map[string]string
}

// WorkloadFinder returns a workload from memory; ok is false if it is not there.
type WorkloadFinder func(kind, namespace, name string) (Workload, bool)

// Mutator implements podwebhook.Mutator.
type Mutator struct{ FindWorkload WorkloadFinder }

// Name implements podwebhook.Mutator.
func (Mutator) Name() string { return "adoption" }

// Mutate implements podwebhook.Mutator. The chain leaves out pods with the label crane.io/opt-out.
func (m Mutator) Mutate(pod *corev1.Pod) ([]podwebhook.Operation, error) {
	kind, name, ok := owner(pod)
	if !ok {
		return nil, nil
	}

	w, ok := m.FindWorkload(kind, pod.Namespace, name)
	if !ok || targetsnapshot.AdoptionDisabled(w.Labels) || targetsnapshot.AdoptionDisabled(w.NamespaceLabels) {
		return nil, nil
	}

	state, err := adoption.ParseState(w.Annotations[analysisv1alpha1.AnnotationAdoption])
	if err != nil {
		return nil, fmt.Errorf("%s %s/%s: %w", kind, pod.Namespace, name, err)
	}

	return patchOperations(pod, state), nil
}

// cronJobName matches the names that Kubernetes gives to the Jobs of a CronJob.
var cronJobName = regexp.MustCompile(`^(.+)-[0-9]+$`)

// owner returns the workload of a new pod, from its controller and the naming rules of Kubernetes for ReplicaSets and Jobs.
func owner(pod *corev1.Pod) (kind, name string, ok bool) {
	of := metav1.GetControllerOfNoCopy(pod)
	if of == nil {
		return "", "", false
	}

	switch of.Kind {
	case "StatefulSet", "DaemonSet":
		return of.Kind, of.Name, true
	case "ReplicaSet":
		name, ok = strings.CutSuffix(of.Name, "-"+pod.Labels["pod-template-hash"])
		return "Deployment", name, ok
	case "Job":
		if m := cronJobName.FindStringSubmatch(of.Name); m != nil {
			return "CronJob", m[1], true
		}
	}

	return "", "", false
}

// patchOperations set the adopted size. A container whose resources differ from the original template is left alone, because its
// owner has changed it since.
func patchOperations(pod *corev1.Pod, state adoption.State) []podwebhook.Operation {
	size, ok := state.NewPodSize()
	if !ok {
		return nil
	}

	changed := pod.DeepCopy()
	var out []podwebhook.Operation
	for _, part := range []struct {
		path string
		list []corev1.Container
	}{{"initContainers", changed.Spec.InitContainers}, {"containers", changed.Spec.Containers}} {
		for i := range part.list {
			c := &part.list[i]
			to, adopted := size.Containers[c.Name]
			if !adopted || !sameResources(targetsnapshot.ConvertResources(c.Resources), state.Original.Containers[c.Name]) || sameResources(targetsnapshot.ConvertResources(c.Resources), to) {
				continue
			}

			setResources(&c.Resources, to)
			out = append(out, podwebhook.Operation{Operation: "add", Path: fmt.Sprintf("/spec/%s/%d/resources", part.path, i), Value: c.Resources})
		}
	}

	// A Guaranteed pod keeps its class; a pod of a lower class may get requests.
	if len(out) > 0 && guaranteed(pod) && !guaranteed(changed) {
		return nil
	}

	return out
}

func guaranteed(pod *corev1.Pod) bool { return targetsnapshot.ConvertPod(pod).Guaranteed() }

// sameResources reports whether both requests and limits are equal.
func sameResources(a, b rightsize.Resources) bool {
	return equalValues(a.CPURequest, b.CPURequest) && equalValues(a.CPULimit, b.CPULimit) &&
		equalValues(a.MemoryRequest, b.MemoryRequest) && equalValues(a.MemoryLimit, b.MemoryLimit)
}

func equalValues[T comparable](a, b *T) bool { return a == b || a != nil && b != nil && *a == *b }

// setResources sets the adopted amounts and keeps all others.
func setResources(to *corev1.ResourceRequirements, size rightsize.Resources) {
	set := func(list *corev1.ResourceList, name corev1.ResourceName, q *apiresource.Quantity) {
		if q == nil {
			return
		}

		if *list == nil {
			*list = corev1.ResourceList{}
		}
		(*list)[name] = *q
	}

	set(&to.Requests, corev1.ResourceCPU, cpuQuantity(size.CPURequest))
	set(&to.Requests, corev1.ResourceMemory, memoryQuantity(size.MemoryRequest))
	set(&to.Limits, corev1.ResourceCPU, cpuQuantity(size.CPULimit))
	set(&to.Limits, corev1.ResourceMemory, memoryQuantity(size.MemoryLimit))
}

func cpuQuantity(v *series.MilliCPU) *apiresource.Quantity {
	if v == nil {
		return nil
	}

	return apiresource.NewMilliQuantity(int64(*v), apiresource.DecimalSI)
}

func memoryQuantity(v *series.Bytes) *apiresource.Quantity {
	if v == nil {
		return nil
	}

	return apiresource.NewQuantity(int64(*v), apiresource.BinarySI)
}
