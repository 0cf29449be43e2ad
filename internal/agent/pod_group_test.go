// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

// TestPodGroupAppears checks that an agent that started before the kubelet made its groups, or beside a left-over group, ends to start again
// with the right one, and that one whose group is empty for a while does not.
func TestPodGroupAppears(t *testing.T) {
	for name, test := range map[string]struct {
		before, after string
		want          string
	}{
		"before the kubelet":           {"system.slice", "kubepods.slice/kubepods-pod1.slice", "kubepods.slice"},
		"left-over group":              {"kubepods.slice", "kubepods/burstable/pod1", "kubepods"},
		"root of the kubelet":          {"system.slice", "kube/kubepods/pod1", "kube/kubepods"},
		"no pods anywhere":             {"kubepods.slice", "kubepods/burstable", ""},
		"pods in the group, and a new": {"kubepods.slice/kubepods-pod2.slice", "kubepods/burstable/pod1", ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			base := filepath.Join(dir, "sys/fs/cgroup")
			makeGroup := func(group string) {
				t.Helper()

				if err := os.MkdirAll(filepath.Join(base, group), 0o755); err != nil {
					t.Fatal(err)
				}
			}

			makeGroup(test.before)
			if err := os.WriteFile(filepath.Join(base, "cgroup.controllers"), []byte("cpu memory\n"), 0o600); err != nil {
				t.Fatal(err)
			}

			o := NewOptions()
			o.HostRoot = dir
			o.StateDir = t.TempDir()
			config := filepath.Join(dir, o.KubeletRoot, "config.yaml")
			if err := os.MkdirAll(filepath.Dir(config), 0o755); err != nil {
				t.Fatal(err)
			}

			if err := os.WriteFile(config, []byte("kind: KubeletConfiguration\ncgroupRoot: /kube\n"), 0o600); err != nil {
				t.Fatal(err)
			}

			layout, err := o.detectCgroups()
			if err != nil {
				t.Fatal(err)
			}

			clk := clocktesting.NewFakeClock(time.Unix(1000, 0))
			ctx, end := context.WithCancelCause(t.Context())
			defer end(nil)

			m := podGroupManager{environment{Options: o, clock: clk, layout: layout}, end}
			makeGroup(test.after)
			if test.want == "" {
				m.check()
				if ctx.Err() != nil {
					t.Errorf("check ended the agent: %v, want it to continue", context.Cause(ctx))
				}

				return
			}

			m.check()
			if cause := context.Cause(ctx); cause == nil || !strings.Contains(cause.Error(), "in group "+test.want) {
				t.Errorf("check: cause %v, want one with group %s", cause, test.want)
			}
		})
	}
}
