// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"crane.io/crane/pkg/rightsize"
	"crane.io/crane/pkg/series"
)

// Workload is what a source knows of a workload besides its use: who it is, how many pods it wants, and what each
// container of its pod template asks for.
type Workload struct {
	Ref
	// UID is empty where the source is not the Kubernetes API.
	UID types.UID
	// Labels and Annotations are the workload's own, not its pods'.
	Labels      map[string]string
	Annotations map[string]string
	// Created is the zero time where the source does not know it.
	Created time.Time
	// Deleting tells that the workload is on its way out.
	Deleting bool
	// Owned tells that the object belongs to a larger one, which is the workload: the ReplicaSet of a Deployment, the
	// Job of a CronJob, the pod of anything.
	Owned bool
	// Replicas is the number of pods wanted now: spec.replicas, the scheduled pods of a DaemonSet, the parallelism of
	// a job. It is 0 for a workload that is scaled down and where the source does not know it.
	Replicas int32
	// Available is how many of them are available, by the workload's own status; nil where it does not say.
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
	// JVM is what command line and environment say of a Java heap; nil where they say nothing.
	JVM *rightsize.JVM `json:"-"`
	// Declared is known only where the Kubernetes API is the source.
	Declared Declared `json:"-"`
}

// Declared says which parts of its resources a container spells out, whatever is in them: for patches, which must add
// what is missing and must not take away what Crane does not know, as storage or claims of devices.
type Declared struct{ Resources, Requests, Limits bool }

// Resources are amounts of what Crane sizes. Zero means that none is set: Kubernetes treats a request of 0 and a
// missing request alike, and a limit of 0 as no limit.
type Resources struct {
	CPU    series.MilliCPU `json:"cpuMilli,omitempty"`
	Memory series.Bytes    `json:"memoryBytes,omitempty"`
}

// Role says when a container runs in its pod.
type Role string

// The roles that Kubernetes knows.
const (
	// App containers run for the life of the pod.
	App Role = "app"
	// Init containers run to their end, one by one, before the app containers start.
	Init Role = "init"
	// Sidecar containers are init containers with restartPolicy Always: they start first and run for the life of the
	// pod.
	Sidecar Role = "sidecar"
)

// Subject is what a policy is chosen by.
func (w Workload) Subject() rightsize.Subject {
	return rightsize.Subject{Namespace: w.Namespace, Kind: w.Kind, Name: w.Name, Labels: w.Labels, Annotations: w.Annotations}
}

// PodRequests adds up what the containers that run for the life of a pod request; unrequested names the first of them that
// requests no CPU or no memory, and is empty where all request both.
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
