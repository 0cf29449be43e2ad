// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package workload models a workload: its identity, its pods, its containers and its scale. It reads them from the Kubernetes
// API; internal/metrics reads the same identities from Prometheus.
package workload

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
