// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"os"
	"path/filepath"
	"testing"

	"crane.io/crane/internal/agent/host"
)

// TestDetectPods checks in which group pods are found: by default, below another root, beside a left-over group, and by a hint.
func TestDetectPods(t *testing.T) {
	const pod = "pod11111111-1111-1111-1111-111111111111"
	const slice = "kubepods-burstable.slice/kubepods-burstable-pod11111111_1111_1111_1111_111111111111.slice"

	for _, test := range []struct {
		name   string
		groups []string
		hint   Hint
		want   string
		driver Driver
	}{
		{"systemd", []string{"kubepods.slice/kubepods-burstable.slice"}, Hint{}, "kubepods.slice", Systemd},
		{"cgroupfs", []string{"kubepods/burstable"}, Hint{}, "kubepods", CgroupFS},
		{"kind", []string{"kubelet.slice/kubelet-kubepods.slice"}, Hint{}, "kubelet.slice/kubelet-kubepods.slice", Systemd},
		{"root /kubelet", []string{"kubelet/kubepods/burstable"}, Hint{}, "kubelet/kubepods", CgroupFS},
		{"root /kube", []string{"kube/kubepods/burstable"}, Hint{}, "kube/kubepods", CgroupFS},
		{"root /k8s.slice", []string{"k8s.slice/k8s-kubepods.slice/k8s-kubepods-burstable.slice"}, Hint{}, "k8s.slice/k8s-kubepods.slice", Systemd},
		{"root /a-b.slice, by the hint", []string{"a.slice/a-b.slice/a-b-kubepods.slice"}, Hint{Root: "/a-b.slice", Driver: Systemd}, "a.slice/a-b.slice/a-b-kubepods.slice", Systemd},
		{"node in a container", []string{"docker/abc/kubelet/kubepods/burstable"}, Hint{}, "docker/abc/kubelet/kubepods", CgroupFS},
		{"left-over slice beside a used group", []string{"kubepods.slice", "kubepods/burstable/" + pod}, Hint{}, "kubepods", CgroupFS},
		{"left-over group beside a used slice", []string{"kubepods", "kubepods.slice/" + slice}, Hint{Driver: CgroupFS}, "kubepods.slice", Systemd},
		{"left-over group beside a used one below the root", []string{"kubepods", "kube/kubepods/" + pod}, Hint{Root: "/kube"}, "kube/kubepods", CgroupFS},
		{"both without pods: the kubelet's driver", []string{"kubepods", "kubepods.slice"}, Hint{Driver: CgroupFS}, "kubepods", CgroupFS},
		{"configuration without what flags set", []string{"kubepods/" + pod}, Hint{Root: "/elsewhere", Driver: Systemd}, "kubepods", CgroupFS},
		{"flag", []string{"kubepods/" + pod, "own/pods"}, Hint{Pods: "/own/pods"}, "own/pods", CgroupFS},
		{"flag that names nothing", []string{"kubepods/" + pod}, Hint{Pods: "own/pods"}, "", ""},
		{"no kubelet", []string{"system.slice/a.service"}, Hint{}, "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			base := filepath.Join(dir, mountPoint)
			for _, g := range test.groups {
				if err := os.MkdirAll(filepath.Join(base, g), 0o755); err != nil {
					t.Fatal(err)
				}
			}

			if err := os.WriteFile(filepath.Join(base, "cgroup.controllers"), []byte("cpuset cpu io memory pids\n"), 0o600); err != nil {
				t.Fatal(err)
			}

			l, err := DetectWith(host.Root(dir), test.hint)
			if err != nil || l.Pods != test.want || l.Driver != test.driver {
				t.Errorf("DetectWith(%+v) = pods %q, driver %q, %v, want %q and %q", test.hint, l.Pods, l.Driver, err, test.want, test.driver)
			}
		})
	}
}
