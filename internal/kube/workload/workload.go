// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package workload models a workload: its identity, its pods, its containers and its scale. It reads them from the Kubernetes
// API; internal/metrics reads the same identities from Prometheus.
package workload

import (
	"cmp"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/units"
)

// Workload is the information of a source about a workload, without its usage: identity, desired number of pods, and the requests
// and limits that each container of its pod template has in pods, see package effectiveresources.
type Workload struct {
	Ref
	// UID is empty if the source is not the Kubernetes API.
	UID types.UID
	// Labels and Annotations are the workload's own, not its pods'.
	Labels      map[string]string
	Annotations map[string]string
	// Created is the zero time if the source does not know it.
	Created time.Time
	// Deleting reports whether the workload is being deleted.
	Deleting bool
	// Owned reports whether the object belongs to a larger one, which is the workload: the ReplicaSet of a Deployment, the Job of
	// a CronJob, the pod of anything.
	Owned bool
	// Replicas is the desired number of pods: spec.replicas, the scheduled pods of a DaemonSet, the parallelism of a job. It is 0
	// for a workload that is scaled down and if the source does not know it.
	Replicas int32
	// Available is the number of available pods in the workload's status; nil if it has none.
	Available *int32
	// Containers are those of the pod template, init containers first, in the order of the template.
	Containers []Container
	// PodLevel are the requests of pods as a whole, which stand for those of their containers; 0 without any.
	PodLevel Resources
	// Injected are the requests of containers that other webhooks add to pods and that run for the life of the pod; known only where pods were
	// read.
	Injected Resources
}

// Container is one container of a pod template, with the resources that it has in pods.
type Container struct {
	Name     string    `json:"name"`
	Role     Role      `json:"role"`
	Requests Resources `json:"requests"`
	Limits   Resources `json:"limits"`
	// JVM has the settings of a Java heap on the command line and in the environment; nil without any.
	JVM *rightsize.JVM `json:"-"`
	// Declared is known only if the Kubernetes API is the source.
	Declared Declared `json:"-"`
	// RestartsForCPU is set if a change of CPU in place restarts the container; known only if the Kubernetes API is the source.
	RestartsForCPU bool `json:"-"`
}

// Declared lists which parts of its resources the template of a container has, with any content: patches must add missing parts and
// must not remove resources that Crane does not manage, such as storage or claims of devices.
type Declared struct {
	Resources, Requests, Limits bool
	// The amounts that the template has, 0 included: a limit does not replace a request of 0.
	CPURequest, MemoryRequest, CPULimit, MemoryLimit bool
}

// Resources are amounts of the resources that Crane sizes. Zero means unset: Kubernetes treats a request of 0 like a missing one,
// and a limit of 0 as no limit.
type Resources struct {
	CPU    units.MilliCPU `json:"cpuMilli,omitempty"`
	Memory units.Bytes    `json:"memoryBytes,omitempty"`
}

// Role is when a container runs in its pod.
type Role string

// The roles of Kubernetes.
const (
	// App containers run for the life of the pod.
	App Role = "app"
	// Init containers run to completion, one by one, before the app containers start.
	Init Role = "init"
	// Sidecar containers are init containers with restartPolicy Always: they start first and run for the life of the pod.
	Sidecar Role = "sidecar"
)

// Subject returns the attributes by which a policy is selected.
func (w Workload) Subject() rightsize.Subject {
	return rightsize.Subject{
		Namespace:   w.Namespace,
		Kind:        w.Kind,
		Name:        w.Name,
		Labels:      w.Labels,
		Annotations: w.Annotations,
	}
}

// PodRequests returns the requests of a pod: of the pod level where it has them, else the sum of the containers that run for the life of
// the pod, injected ones included; unrequested is the name of the first of these without a CPU or memory request that no pod level replaces, empty for none.
func (w Workload) PodRequests() (sum Resources, unrequested string) {
	sum = w.Injected
	for _, c := range w.Containers {
		if c.Role == Init {
			continue
		}

		sum.CPU += c.Requests.CPU
		sum.Memory += c.Requests.Memory

		if unrequested == "" && (c.Requests.CPU == 0 && w.PodLevel.CPU == 0 || c.Requests.Memory == 0 && w.PodLevel.Memory == 0) {
			unrequested = c.Name
		}
	}

	sum.CPU = cmp.Or(w.PodLevel.CPU, sum.CPU)
	sum.Memory = cmp.Or(w.PodLevel.Memory, sum.Memory)

	return sum, unrequested
}

// Container returns the container of that name.
func (w Workload) Container(name string) (Container, bool) {
	for _, c := range w.Containers {
		if c.Name == name {
			return c, true
		}
	}

	return Container{}, false
}

// Owners resolves a pod to the workload that it belongs to: the controller of the pod, and where that is a ReplicaSet, a Job or a
// ReplicationController, the controller of that one (Deployment, CronJob, or a custom kind). The walk ends there, because this is the object whose pod
// template created the pod, and because Prometheus has no more (kube_pod_owner, kube_replicaset_owner, kube_job_owner,
// kube_replicationcontroller_owner), so that
// both sources agree on the workload.
//
// The zero value is ready; it is not safe for concurrent use while Add is called.
type Owners struct {
	owners map[Ref]Ref
}

// Add records the controller of a ReplicaSet, a Job or a ReplicationController. Objects of other kinds and those without a controller need not be added.
func (o *Owners) Add(kind string, obj metav1.Object) {
	ref := metav1.GetControllerOfNoCopy(obj)
	if ref == nil {
		return
	}

	if o.owners == nil {
		o.owners = map[Ref]Ref{}
	}
	o.owners[Ref{Namespace: obj.GetNamespace(), Kind: kind, Name: obj.GetName()}] = fromOwner(obj.GetNamespace(), ref)
}

// Of returns the workload of a pod; a pod without a controller is its own workload. ok is false for the mirror of a static pod,
// which belongs to its node's files and cannot be changed through the API.
func (o *Owners) Of(pod metav1.Object) (ref Ref, ok bool) {
	controller := metav1.GetControllerOfNoCopy(pod)
	if controller == nil {
		return Ref{
			Namespace:  pod.GetNamespace(),
			APIVersion: "v1",
			Kind:       "Pod",
			Name:       pod.GetName(),
		}, true
	}

	if controller.Kind == "Node" && controller.APIVersion == "v1" {
		return Ref{}, false
	}

	owner := fromOwner(pod.GetNamespace(), controller)
	if top, found := o.owners[Ref{Namespace: owner.Namespace, Kind: owner.Kind, Name: owner.Name}]; found {
		return top, true
	}

	return owner, true
}

func fromOwner(namespace string, ref *metav1.OwnerReference) Ref {
	return Ref{
		Namespace:  namespace,
		APIVersion: ref.APIVersion,
		Kind:       ref.Kind,
		Name:       ref.Name,
	}
}

// Ref identifies a workload: the topmost owner of a pod that Crane sizes or scales (Deployment, StatefulSet, DaemonSet, CronJob,
// Job, a custom kind with a scale subresource, or a bare Pod).
type Ref struct {
	Namespace  string `json:"namespace,omitempty"`
	APIVersion string `json:"apiVersion,omitempty"`
	Kind       string `json:"kind"`
	Name       string `json:"name"`
}

// String returns namespace/Kind/name, for messages.
func (r Ref) String() string {
	if r.Namespace == "" {
		return r.Kind + "/" + r.Name
	}

	return r.Namespace + "/" + r.Kind + "/" + r.Name
}

// WatchedKind is a kind of workload that craned keeps in its cache, because each evaluation of a rule lists it.
type WatchedKind struct {
	GVK schema.GroupVersionKind
	// Object is a new object of the kind.
	Object client.Object
}

// WatchedKinds returns them with new objects.
func WatchedKinds() []WatchedKind {
	return []WatchedKind{
		{appsv1.SchemeGroupVersion.WithKind("Deployment"), &appsv1.Deployment{}},
		{appsv1.SchemeGroupVersion.WithKind("StatefulSet"), &appsv1.StatefulSet{}},
		{appsv1.SchemeGroupVersion.WithKind("DaemonSet"), &appsv1.DaemonSet{}},
		{batchv1.SchemeGroupVersion.WithKind("CronJob"), &batchv1.CronJob{}},
	}
}
