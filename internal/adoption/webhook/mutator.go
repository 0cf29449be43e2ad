// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package webhook gives new pods of adopted workloads their adopted requests, so that a replacement pod need not be resized. It
// reads the state that is stored on the workload and decides nothing.
package webhook

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/adoption/targetsnapshot"
	"crane.io/crane/internal/kube/podwebhook"
	"crane.io/crane/pkg/adoption"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/units"
)

// Workload holds what the webhook needs of a workload and its namespace.
type Workload struct {
	Annotations, Labels map[string]string
	NamespaceLabels     map[string]string
}

// WorkloadFinder returns a workload from memory; found is false if it does not exist. After an error it is unknown whether it exists.
type WorkloadFinder func(kind, namespace, name string) (w Workload, found bool, err error)

// Mutator implements podwebhook.Mutator and prometheus.Collector.
type Mutator struct {
	findWorkload WorkloadFinder
	readFailures prometheus.Counter
}

// NewMutator returns a mutator that gives new pods the adopted size of the workload that find returns.
func NewMutator(find WorkloadFinder) *Mutator {
	return &Mutator{
		findWorkload: find,
		readFailures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "crane_adoption_pod_read_failures_total",
			Help: "New pods created without an adopted size because their workload or namespace could not be read.",
		}),
	}
}

// Describe implements prometheus.Collector.
func (m *Mutator) Describe(ch chan<- *prometheus.Desc) { m.readFailures.Describe(ch) }

// Collect implements prometheus.Collector.
func (m *Mutator) Collect(ch chan<- prometheus.Metric) { m.readFailures.Collect(ch) }

// Name implements podwebhook.Mutator.
func (*Mutator) Name() string { return "adoption" }

// Mutate implements podwebhook.Mutator. The chain leaves out pods with the label crane.io/opt-out. A pod whose workload cannot be read is
// created with the resources of its template; the adoption controller resizes it later like any running pod.
func (m *Mutator) Mutate(pod *corev1.Pod) ([]podwebhook.Operation, error) {
	kind, name, ok := owner(pod)
	if !ok {
		return nil, nil
	}

	w, ok, err := m.findWorkload(kind, pod.Namespace, name)
	if err != nil {
		m.readFailures.Inc()
		return nil, err
	}

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
	controller := metav1.GetControllerOfNoCopy(pod)
	if controller == nil {
		return "", "", false
	}

	switch controller.Kind {
	case "StatefulSet", "DaemonSet":
		return controller.Kind, controller.Name, true
	case "ReplicaSet":
		name, ok = strings.CutSuffix(controller.Name, "-"+pod.Labels["pod-template-hash"])
		return "Deployment", name, ok
	case "Job":
		if m := cronJobName.FindStringSubmatch(controller.Name); m != nil {
			return "CronJob", m[1], true
		}
	}

	return "", "", false
}

// patchOperations returns the operations that set the adopted size. A container whose resources differ from the original template is left alone, because its
// owner has changed it since.
func patchOperations(pod *corev1.Pod, state adoption.State) []podwebhook.Operation {
	size, ok := state.NewPodSize()
	if !ok {
		return nil
	}

	changed := pod.DeepCopy()
	var out []podwebhook.Operation
	for _, list := range []struct {
		field      string
		containers []corev1.Container
	}{{"initContainers", changed.Spec.InitContainers}, {"containers", changed.Spec.Containers}} {
		for i := range list.containers {
			c := &list.containers[i]
			current := targetsnapshot.ConvertResources(c.Resources)

			adopted, ok := size.Containers[c.Name]
			if !ok || !sameResources(current, state.Original.Containers[c.Name]) || sameResources(current, adopted) {
				continue
			}

			setResources(&c.Resources, adopted)
			out = append(out, podwebhook.Operation{Operation: "add", Path: fmt.Sprintf("/spec/%s/%d/resources", list.field, i), Value: c.Resources})
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
func setResources(resources *corev1.ResourceRequirements, size rightsize.Resources) {
	set := func(list *corev1.ResourceList, name corev1.ResourceName, q *apiresource.Quantity) {
		if q == nil {
			return
		}

		if *list == nil {
			*list = corev1.ResourceList{}
		}
		(*list)[name] = *q
	}

	set(&resources.Requests, corev1.ResourceCPU, cpuQuantity(size.CPURequest))
	set(&resources.Requests, corev1.ResourceMemory, memoryQuantity(size.MemoryRequest))
	set(&resources.Limits, corev1.ResourceCPU, cpuQuantity(size.CPULimit))
	set(&resources.Limits, corev1.ResourceMemory, memoryQuantity(size.MemoryLimit))
}

func cpuQuantity(v *units.MilliCPU) *apiresource.Quantity {
	if v == nil {
		return nil
	}

	return apiresource.NewMilliQuantity(int64(*v), apiresource.DecimalSI)
}

func memoryQuantity(v *units.Bytes) *apiresource.Quantity {
	if v == nil {
		return nil
	}

	return apiresource.NewQuantity(int64(*v), apiresource.BinarySI)
}
