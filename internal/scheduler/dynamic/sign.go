// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package dynamic

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"crane.io/crane/pkg/nodeload"
)

// signature is everything of a pod that the plugin's answers depend on. Pods with equal signatures may share an
// answer for as long as kube-scheduler allows: half a second, in which a placement changes the answer for its own
// node only.
type signature struct {
	Ask      nodeload.PodRequest
	Workload Workload
	Daemon   bool
	Critical bool
}

// SignPod implements fwk.SignPlugin.
func (*Plugin) SignPod(_ context.Context, pod *corev1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	return []fwk.SignFragment{{Key: "crane.io/v1.Pod.LoadEstimate()", Value: signature{
		Ask:      podRequest(pod),
		Workload: WorkloadOf(pod),
		Daemon:   isDaemon(pod),
		Critical: isCritical(pod),
	}}}, nil
}
