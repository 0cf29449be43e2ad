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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	analysisv1alpha1 "crane.io/crane/api/analysis/v1alpha1"
	"crane.io/crane/internal/adoption/targetsnapshot"
	"crane.io/crane/internal/kube/podlimits"
	"crane.io/crane/internal/kube/podwebhook"
	"crane.io/crane/pkg/adoption"
	"crane.io/crane/pkg/rightsize"
)

// Workload holds what the webhook needs of a workload and its namespace.
type Workload struct {
	Annotations, Labels map[string]string
	NamespaceLabels     map[string]string
}

// WorkloadFinder returns a workload from memory; found is false if it does not exist. After an error it is unknown whether it exists.
type WorkloadFinder func(kind, namespace, name string) (w Workload, found bool, err error)

// LimitReader returns the LimitRanges and ResourceQuotas of a namespace from memory.
type LimitReader func(namespace string) (podlimits.Rules, error)

// Mutator implements podwebhook.Mutator and prometheus.Collector.
type Mutator struct {
	findWorkload WorkloadFinder
	readLimits   LimitReader
	readFailures prometheus.Counter
}

// NewMutator returns a mutator that gives new pods the adopted size of the workload that find returns, as far as the rules that limits returns
// allow it.
func NewMutator(find WorkloadFinder, limits LimitReader) *Mutator {
	return &Mutator{
		findWorkload: find,
		readLimits:   limits,
		readFailures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "crane_adoption_pod_read_failures_total",
			Help: "New pods created without an adopted size because their workload, or the bounds of its namespace, could not be read.",
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

	changed, operations := patchOperations(pod, state)
	if len(operations) == 0 {
		return nil, nil
	}

	// The API server checks the changed pod next. A pod that would not be created is left as its template says.
	limits, err := m.readLimits(pod.Namespace)
	if err != nil {
		m.readFailures.Inc()
		return nil, err
	}
	if limits.RefusesChanged(pod, changed) {
		return nil, nil
	}

	return operations, nil
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

// patchOperations returns the pod with the adopted size, and the operations that set it. A container whose resources differ from the original ones is left
// alone, because its owner, or the default of a LimitRange, has changed since.
func patchOperations(pod *corev1.Pod, state adoption.State) (changed *corev1.Pod, out []podwebhook.Operation) {
	size, ok := state.NewPodSize()
	if !ok || pod.Spec.Resources != nil { // Those of the pod as a whole bound those of its containers.
		return pod, nil
	}

	changed = pod.DeepCopy()
	for _, list := range []struct {
		field      string
		containers []corev1.Container
	}{{"initContainers", changed.Spec.InitContainers}, {"containers", changed.Spec.Containers}} {
		for i := range list.containers {
			c := &list.containers[i]
			current := targetsnapshot.ConvertResources(c.Resources)

			adopted, ok := size.Containers[c.Name]
			if !ok || !isOriginal(state, c.Name, current) || sameResources(current, adopted) {
				continue
			}

			targetsnapshot.SetResources(&c.Resources, adopted)
			out = append(out, podwebhook.Operation{Operation: "add", Path: fmt.Sprintf("/spec/%s/%d/resources", list.field, i), Value: c.Resources})
		}
	}

	if len(out) > 0 && !targetsnapshot.ConvertPod(pod).KeepsQOSClass(targetsnapshot.ConvertPod(changed)) {
		return pod, nil
	}

	return changed, out
}

// isOriginal reports whether a new container has the resources of pods before adoption, or those of the template then: other webhooks may
// change them before Crane's or after it.
func isOriginal(state adoption.State, container string, current rightsize.Resources) bool {
	if sameResources(current, state.Original.Containers[container]) {
		return true
	}

	return state.Declared != nil && sameResources(current, state.Declared.Containers[container].WithDefaultRequests())
}

// sameResources reports whether both requests and limits are equal.
func sameResources(a, b rightsize.Resources) bool {
	return equalValues(a.CPURequest, b.CPURequest) && equalValues(a.CPULimit, b.CPULimit) &&
		equalValues(a.MemoryRequest, b.MemoryRequest) && equalValues(a.MemoryLimit, b.MemoryLimit)
}

func equalValues[T comparable](a, b *T) bool { return a == b || a != nil && b != nil && *a == *b }
