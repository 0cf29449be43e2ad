// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Owners resolves a pod to the workload that it belongs to: the controller of the pod, and where that is a ReplicaSet or a Job,
// the controller of that one (Deployment, CronJob, or a custom kind). The walk ends there, because this is the object whose pod
// template created the pod, and because Prometheus has no more (kube_pod_owner, kube_replicaset_owner, kube_job_owner), so that
// both sources agree on the workload.
//
// The zero value is ready; it is not safe for concurrent use while Add is called.
type Owners struct {
	up map[Ref]Ref
}

// Add records the controller of a ReplicaSet or a Job. Objects of other kinds and those without a controller need not be added.
func (o *Owners) Add(kind string, obj metav1.Object) {
	ref := metav1.GetControllerOfNoCopy(obj)
	if ref == nil {
		return
	}
	if o.up == nil {
		o.up = map[Ref]Ref{}
	}
	o.up[Ref{Namespace: obj.GetNamespace(), Kind: kind, Name: obj.GetName()}] = fromOwner(obj.GetNamespace(), ref)
}

// Of returns the workload of a pod; a pod without a controller is its own workload. ok is false for the mirror of a static pod,
// which belongs to its node's files and cannot be changed through the API.
func (o *Owners) Of(pod metav1.Object) (ref Ref, ok bool) {
	controller := metav1.GetControllerOfNoCopy(pod)
	if controller == nil {
		return Ref{Namespace: pod.GetNamespace(), APIVersion: "v1", Kind: "Pod", Name: pod.GetName()}, true
	}
	if controller.Kind == "Node" && controller.APIVersion == "v1" {
		return Ref{}, false
	}
	owner := fromOwner(pod.GetNamespace(), controller)
	if top, found := o.up[Ref{Namespace: owner.Namespace, Kind: owner.Kind, Name: owner.Name}]; found {
		return top, true
	}
	return owner, true
}

func fromOwner(namespace string, ref *metav1.OwnerReference) Ref {
	return Ref{Namespace: namespace, APIVersion: ref.APIVersion, Kind: ref.Kind, Name: ref.Name}
}
