// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/series"
)

// Workload is the information of a source about a workload, without its usage: identity, desired number of pods, and the requests
// and limits of each container of its pod template.
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
}

// Container is one container of a pod template.
type Container struct {
	Name     string    `json:"name"`
	Role     Role      `json:"role"`
	Requests Resources `json:"requests"`
	Limits   Resources `json:"limits"`
	// JVM has the settings of a Java heap on the command line and in the environment; nil without any.
	JVM *rightsize.JVM `json:"-"`
	// Declared is known only if the Kubernetes API is the source.
	Declared Declared `json:"-"`
}

// Declared lists which parts of its resources a container has, with any content: patches must add missing parts and must not
// remove resources that Crane does not manage, such as storage or claims of devices.
type Declared struct{ Resources, Requests, Limits bool }

// Resources are amounts of the resources that Crane sizes. Zero means unset: Kubernetes treats a request of 0 like a missing one,
// and a limit of 0 as no limit.
type Resources struct {
	CPU    series.MilliCPU `json:"cpuMilli,omitempty"`
	Memory series.Bytes    `json:"memoryBytes,omitempty"`
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
	return rightsize.Subject{Namespace: w.Namespace, Kind: w.Kind, Name: w.Name, Labels: w.Labels, Annotations: w.Annotations}
}

// PodRequests returns the sum of the requests of the containers that run for the life of a pod; unrequested is the name of the
// first of them without a CPU or memory request, empty if all have both.
func (w Workload) PodRequests() (sum Resources, unrequested string) {
	for _, c := range w.Containers {
		if c.Role == Init {
			continue
		}
		sum.CPU += c.Requests.CPU
		sum.Memory += c.Requests.Memory
		if unrequested == "" && (c.Requests.CPU == 0 || c.Requests.Memory == 0) {
			unrequested = c.Name
		}
	}
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
