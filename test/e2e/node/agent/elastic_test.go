// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"fmt"
	"math"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	ensurancev1alpha1 "crane.io/crane/api/ensurance/v1alpha1"
	"crane.io/crane/test/e2e/node"
)

// TestElasticPod: a pod on elastic resources, of which the kubelet knows nothing and sets no limit, gets no more than it asks for: also
// after the kubelet was started anew, and no longer than the agent is there.
func TestElasticPod(t *testing.T) {
	s := start(t, node.Options{Restart: true})
	s.bystander(t)
	const mib = 256
	ask := corev1.ResourceList{
		ensurancev1alpha1.ResourceReclaimedCPU:    resource.MustParse("1"),
		ensurancev1alpha1.ResourceReclaimedMemory: *resource.NewQuantity(mib<<20, resource.DecimalSI),
	}
	pod := s.Run(t, s.Pod("elastic", "pause", nil, ask, ask))
	before := s.settings(t)
	d := s.deploy(t, "--enforce=pod-resource", "--collect-interval=250ms")
	await := func() {
		t.Helper()
		cgroups := s.Cgroups(t)
		s.Eventually(t, "the limits that the pod asks for", func() error {
			ofPod, err := cgroups.PodLimits(t, pod)
			if err != nil {
				return err
			}
			of, err := cgroups.ContainerLimits(t, pod)
			if err != nil {
				return err
			}
			if math.Abs(of.Cores-1) > 1e-6 || of.Memory != mib<<20 || math.Abs(ofPod.Cores-1) > 1e-6 {
				return fmt.Errorf("pod %+v, container %+v", ofPod, of)
			}
			return nil
		})
		s.onlyOf(t, pod, before)
	}
	await()
	if err := s.Kill("kubelet"); err != nil {
		t.Fatal(err)
	}
	s.Delete(t, s.Run(t, s.Pod("after-kubelet", "pause", nil, nil, nil)))
	await()
	d.remove(t)
	s.awaitAsBefore(t, before)
}
