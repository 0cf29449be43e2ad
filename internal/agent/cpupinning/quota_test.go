// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cpupinning

import (
	"path"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	topologyv1alpha1 "crane.io/crane/api/topology/v1alpha1"
	"crane.io/crane/internal/agent/host/cgroup"
	"crane.io/crane/pkg/numa"
)

// quotaFile returns the file of a group's quota, and its content without a limit.
func (b *fixture) quotaFile() (file, none string) {
	if b.v1 {
		return cgroup.FileQuotaV1, "-1"
	}

	return cgroup.FileMax, "max"
}

// setQuota sets the quota of a group, as the kubelet and the runtime do.
func (b *fixture) setQuota(group, quota string) {
	b.t.Helper()

	file, _ := b.quotaFile()
	name, err := b.layout.SettingFile(group, file)
	if err != nil {
		b.t.Fatal(err)
	}

	if err := b.tree.Write(name, quota); err != nil {
		b.t.Fatal(err)
	}
}

func (b *fixture) quota(group string) string {
	b.t.Helper()

	file, _ := b.quotaFile()
	name, err := b.layout.SettingFile(group, file)
	if err != nil {
		b.t.Fatal(err)
	}

	quota, _, _ := strings.Cut(b.readFile(name), " ")
	return quota
}

// TestQuotaOfExclusiveCPUs checks that a container with exclusive CPUs and its pod have no CPU quota while it has them, and others keep theirs.
func TestQuotaOfExclusiveCPUs(t *testing.T) {
	forEachVersion(t, func(t *testing.T, b *fixture, _ string) {
		_, none := b.quotaFile()
		web := b.runPod("web", "node0=2", 2, 0)
		b.runPod("zones", "node1=2", 2).Annotations[topologyv1alpha1.AnnotationPodCPUPolicy] = string(numa.PolicyNUMA)
		b.runPod("whole", "node1=2", 2).Spec.Resources = &corev1.ResourceRequirements{Limits: resources(2).Limits}
		for _, pod := range []string{"web", "zones", "whole"} {
			b.setQuota("kubepods/pod"+pod, "300000")
			b.setQuota(containerPath(pod, "a"), "200000")
		}

		b.setQuota(containerPath("web", "b"), "100000")
		check := func(when string, want map[string]string) {
			t.Helper()

			for group, quota := range want {
				if got := b.quota(group); got != quota {
					t.Errorf("%s: quota of %s = %s, want %s\n%s", when, group, got, quota, strings.Join(b.log, "\n"))
				}
			}
		}

		pod := path.Dir(containerPath("web", "a"))
		original := map[string]string{pod: "300000", containerPath("web", "a"): "200000", containerPath("web", "b"): "100000"}
		for range 3 {
			b.advance()
		}

		check("with exclusive CPUs", map[string]string{
			pod: none, containerPath("web", "a"): none, containerPath("web", "b"): "100000",
			"kubepods/podzones": "300000", containerPath("zones", "a"): "200000", // shares its zones
			"kubepods/podwhole": "300000", containerPath("whole", "a"): none, // limited as a whole
		})

		// The kubelet resizes the other container: the pod's quota of the kubelet becomes the one to restore.
		metav1.SetMetaDataAnnotation(&web.ObjectMeta, topologyv1alpha1.AnnotationPodCPUPolicy, string(numa.PolicyNone))
		b.invalidateState()
		b.advance()
		check("policy none", original)

		delete(web.Annotations, topologyv1alpha1.AnnotationPodCPUPolicy)
		b.invalidateState()
		b.advance()
		check("exclusive again", map[string]string{pod: none, containerPath("web", "a"): none})

		b.setKubeletConfig("cpuManagerPolicy: static\n")
		b.advance()
		check("the kubelet's CPUs", original)
	})
}

// TestIsolatedCPUs checks that no container shares isolated CPUs, unless there are no others.
func TestIsolatedCPUs(t *testing.T) {
	for isolated, want := range map[string][]string{
		"":      {"web/a=0-1", "other/a=2-7"},
		"6-7":   {"web/a=0-1", "other/a=2-5"},
		"0-1,7": {"web/a=0-1", "other/a=2-6"},
		"0-7":   {"web/a=0-1", "other/a=2-7"},
	} {
		b := newFixture(t, false)
		b.writeFile("sys/devices/system/cpu/isolated", isolated+"\n")
		b.setKubeletConfig("")
		b.runPod("web", "node0=2", 2)
		b.runPod("other", "", 0)
		b.advance()
		b.expectCPUs("isolated "+isolated, want...)
	}
}

// TestOptedOut checks that nothing of a pod that has opted out is changed, and that it gets back what was changed before.
func TestOptedOut(t *testing.T) {
	b := newFixture(t, false)
	b.runPod("web", "node0=2", 2)
	quiet := b.runPod("quiet", "", 0)
	zones := b.runPod("zones", "node1=2", 2)
	b.advance()
	b.expectCPUs("opted in", "web/a=0-1", "quiet/a=2-3,6-7", "zones/a=4-5")

	for _, p := range []*corev1.Pod{quiet, zones} {
		p.Labels = map[string]string{"crane.io/opt-out": "true"}
	}

	b.invalidateState()
	b.advance()
	b.expectCPUs("opted out", "web/a=0-1", "quiet/a=0-7", "zones/a=0-7")

	later := newFixture(t, false)
	later.runPod("web", "node0=2", 2)
	later.runPod("quiet", "", 0).Labels = map[string]string{"crane.io/opt-out": "true"}
	later.advance()
	later.expectCPUs("opted out from the start", "web/a=0-1", "quiet/a=")
}
