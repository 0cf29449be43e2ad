// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"errors"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"crane.io/crane/internal/kube/effectiveresources"
	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/units"
)

// ErrNoTemplate reports that an object has no pod template at a known path.
var ErrNoTemplate = errors.New("no pod template")

// FromObject converts an object of a built-in kind, or an unstructured one whose pod template is at spec.template or
// spec.jobTemplate.spec.template. gvk is its kind, because objects out of a typed list have none. ranges are the LimitRanges of its
// namespace. The error wraps ErrNoTemplate if the object has no template.
func FromObject(obj client.Object, gvk schema.GroupVersionKind, ranges []corev1.LimitRange) (Workload, error) {
	w := fromMeta(obj, gvk)
	spec, replicas, err := podSpec(obj)
	if err != nil {
		return Workload{}, fmt.Errorf("reading %s: %w", w.Ref, err)
	}

	w.Replicas = replicas
	w.Available = available(obj)
	if _, isPod := obj.(*corev1.Pod); isPod {
		return w.withPod(spec, spec), nil // A LimitRange does not change a pod that exists.
	}

	return w.withPod(spec, effectiveresources.NewPod(spec, ranges)), nil
}

// available returns the number of available pods in the workload's status, nil if it has none.
func available(obj client.Object) *int32 {
	switch o := obj.(type) {
	case *appsv1.Deployment:
		return new(o.Status.AvailableReplicas)
	case *appsv1.StatefulSet:
		return new(o.Status.AvailableReplicas)
	case *appsv1.ReplicaSet:
		return new(o.Status.AvailableReplicas)
	case *appsv1.DaemonSet:
		return new(o.Status.NumberAvailable)

	case *corev1.ReplicationController:
		return new(o.Status.AvailableReplicas)
	case *unstructured.Unstructured:
		for _, field := range []string{"availableReplicas", "readyReplicas"} {
			if n, found, err := unstructured.NestedInt64(o.Object, "status", field); found && err == nil {
				return new(clampInt32(n))
			}
		}
	}

	return nil
}

func fromMeta(obj metav1.Object, gvk schema.GroupVersionKind) Workload {
	return Workload{
		Ref: Ref{
			Namespace:  obj.GetNamespace(),
			APIVersion: gvk.GroupVersion().String(),
			Kind:       gvk.Kind,
			Name:       obj.GetName(),
		},
		UID:         obj.GetUID(),
		Labels:      obj.GetLabels(),
		Annotations: obj.GetAnnotations(),
		Created:     obj.GetCreationTimestamp().Time,
		Deleting:    obj.GetDeletionTimestamp() != nil,
		Owned:       isOwned(obj, gvk.Kind),
	}
}

// isOwned reports whether a kind that other kinds create has a controller. A StatefulSet that an operator controls is still the
// workload of its pods.
func isOwned(obj metav1.Object, kind string) bool {
	switch kind {
	case "ReplicaSet", "Job", "Pod", "ReplicationController":
		return metav1.GetControllerOfNoCopy(obj) != nil
	}

	return false
}

// podSpec returns the pod template and the desired number of pods.
func podSpec(obj client.Object) (*corev1.PodSpec, int32, error) {
	switch o := obj.(type) {
	case *appsv1.Deployment:
		return &o.Spec.Template.Spec, ptr.Deref(o.Spec.Replicas, 1), nil
	case *appsv1.StatefulSet:
		return &o.Spec.Template.Spec, ptr.Deref(o.Spec.Replicas, 1), nil
	case *appsv1.ReplicaSet:
		return &o.Spec.Template.Spec, ptr.Deref(o.Spec.Replicas, 1), nil
	case *appsv1.DaemonSet: // It has no field of replicas: it has a pod on each matching node.
		return &o.Spec.Template.Spec, o.Status.DesiredNumberScheduled, nil

	case *batchv1.Job:
		return &o.Spec.Template.Spec, ptr.Deref(o.Spec.Parallelism, 1), nil
	case *batchv1.CronJob:
		return &o.Spec.JobTemplate.Spec.Template.Spec, ptr.Deref(o.Spec.JobTemplate.Spec.Parallelism, 1), nil
	case *corev1.ReplicationController:
		if o.Spec.Template == nil {
			return nil, 0, ErrNoTemplate
		}

		return &o.Spec.Template.Spec, ptr.Deref(o.Spec.Replicas, 1), nil

	case *corev1.Pod:
		return &o.Spec, 1, nil
	case *unstructured.Unstructured:
		template, replicas, err := CustomTemplate(o)
		if err != nil {
			return nil, 0, err
		}

		return &template.Spec, replicas, nil
	}

	return nil, 0, fmt.Errorf("%w in a %T", ErrNoTemplate, obj)
}

// CustomTemplate returns the pod template of an object of a custom kind and its number of pods. The error wraps ErrNoTemplate if it has none at a
// known path.
func CustomTemplate(obj *unstructured.Unstructured) (*corev1.PodTemplateSpec, int32, error) {
	for _, path := range [][]string{{"spec", "template"}, {"spec", "jobTemplate", "spec", "template"}} {
		raw, found, err := unstructured.NestedMap(obj.Object, path...)
		if err != nil {
			return nil, 0, fmt.Errorf("pod template: %w", err)
		}

		if _, hasSpec := raw["spec"]; !found || !hasSpec {
			continue
		}

		var template corev1.PodTemplateSpec
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw, &template); err != nil {
			return nil, 0, fmt.Errorf("pod template: %w", err)
		}

		if len(template.Spec.Containers) == 0 {
			continue
		}

		// A kind without the usual field of replicas counts as one pod.
		replicas, found, err := unstructured.NestedInt64(obj.Object, "spec", "replicas")
		if err != nil {
			return nil, 0, fmt.Errorf("replicas: %w", err)
		}

		if !found {
			replicas = 1
		}

		return &template, clampInt32(replicas), nil
	}

	return nil, 0, ErrNoTemplate
}

// withPod returns the workload with the resources of its pods, and the containers of its template.
func (w Workload) withPod(template, pod *corev1.PodSpec) Workload {
	w.Containers = containers(template, pod)
	w.Injected = injected(template, pod)
	if pod.Resources != nil {
		w.PodLevel = resources(pod.Resources.Requests)
	}

	return w
}

// containers returns init and sidecar containers first, in start order, with the resources that they have in pods.
func containers(spec, pod *corev1.PodSpec) []Container {
	out := make([]Container, 0, len(spec.InitContainers)+len(spec.Containers))
	for i := range spec.InitContainers {
		role := Init
		if p := spec.InitContainers[i].RestartPolicy; p != nil && *p == corev1.ContainerRestartPolicyAlways {
			role = Sidecar
		}

		out = append(out, container(&spec.InitContainers[i], &pod.InitContainers[i], role))
	}

	for i := range spec.Containers {
		out = append(out, container(&spec.Containers[i], &pod.Containers[i], App))
	}

	return out
}

// injected returns the requests of the containers of a pod that its template lacks, without init containers that end before the others start.
func injected(template, pod *corev1.PodSpec) Resources {
	var sum Resources
	for i := len(template.InitContainers); i < len(pod.InitContainers); i++ {
		if p := pod.InitContainers[i].RestartPolicy; p != nil && *p == corev1.ContainerRestartPolicyAlways {
			sum = sum.plus(resources(pod.InitContainers[i].Resources.Requests))
		}
	}

	for i := len(template.Containers); i < len(pod.Containers); i++ {
		sum = sum.plus(resources(pod.Containers[i].Resources.Requests))
	}

	return sum
}

func (r Resources) plus(other Resources) Resources {
	return Resources{CPU: r.CPU + other.CPU, Memory: r.Memory + other.Memory}
}

func container(c, inPod *corev1.Container, role Role) Container {
	restarts := slices.ContainsFunc(c.ResizePolicy, func(p corev1.ContainerResizePolicy) bool {
		return p.ResourceName == corev1.ResourceCPU && p.RestartPolicy == corev1.RestartContainer
	})

	return Container{
		Name:           c.Name,
		Role:           role,
		JVM:            jvm(c),
		RestartsForCPU: restarts,
		Requests:       resources(inPod.Resources.Requests),
		Limits:         resources(inPod.Resources.Limits),
		Declared:       declared(c.Resources),
	}
}

// declared treats an empty part as missing: the API server omits empty parts.
func declared(r corev1.ResourceRequirements) Declared {
	d := Declared{Requests: len(r.Requests) > 0, Limits: len(r.Limits) > 0}
	d.Resources = d.Requests || d.Limits || len(r.Claims) > 0
	_, d.CPURequest = r.Requests[corev1.ResourceCPU]
	_, d.MemoryRequest = r.Requests[corev1.ResourceMemory]
	_, d.CPULimit = r.Limits[corev1.ResourceCPU]
	_, d.MemoryLimit = r.Limits[corev1.ResourceMemory]

	return d
}

// jvm returns the settings of a Java heap. Values from ConfigMaps and Secrets are not read.
func jvm(c *corev1.Container) *rightsize.JVM {
	env := make(map[string]string, len(c.Env))
	for _, e := range c.Env {
		env[e.Name] = e.Value
	}

	return rightsize.FindJVM(append(slices.Clone(c.Command), c.Args...), env)
}

func resources(list corev1.ResourceList) Resources {
	return Resources{
		CPU:    units.MilliCPU(max(0, list.Cpu().MilliValue())),
		Memory: units.Bytes(max(0, list.Memory().Value())),
	}
}

func clampInt32(n int64) int32 {
	return int32(min(max(n, 0), 1<<31-1))
}
