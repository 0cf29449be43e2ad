// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"strings"
	"testing"
)

// TestKernelFaults checks that missing kernel files are reported and that rules on them do nothing.
func TestKernelFaults(t *testing.T) {
	rules := []string{"--rules", "testdata/rules.yaml", "--pods", "testdata/pods.yaml", "--node-labels", "pool=mixed"}
	for name, c := range map[string]struct {
		recording string
		without   []string
		flags     []string
		want, not []string
	}{
		"no pressure": {
			"v2-systemd-containerd",
			[]string{"proc/pressure"},
			rules,
			[]string{"node-pressure            unsupported: the kernel was built without PSI, or started with psi=0", "cpu     2.000    ", "unknown"},
			nil,
		},
		"no cgroups": {
			"v2-systemd-containerd",
			[]string{"sys/fs/cgroup"},
			rules,
			[]string{"no cgroup hierarchy with the cpu controller is mounted", "enforce-cpu-throttle     unsupported: there are no cgroups", "enforce-evict            off", "no PodQOS allows this action"},
			[]string{"Would "},
		},
		"no /proc": {
			"v2-systemd-containerd",
			[]string{"proc"},
			rules,
			[]string{"cpu     unknown  unknown", "Not measured: cpu: ", "mixed/cpu: ", "New pods would be kept away: no"},
			[]string{"Would "},
		},
		"no /sys": {
			"v2-systemd-containerd",
			[]string{"sys"},
			rules,
			[]string{"Note: the CPUs are unknown", "numa                     unsupported"},
			[]string{"Would "},
		},
		"hybrid": {
			"debian-hybrid-systemd-containerd", nil, rules,
			[]string{"on: cgroup hybrid, driver systemd", "enforce-memory-throttle  unsupported: cgroup hybrid", "Usable is the part the kubelet leaves to pods, according to /var/lib/kubelet/config.yaml", "and 7 with little or no activity"},
			[]string{"veth"},
		},
		"other containers than the cluster knows": {
			"hybrid-cgroupfs", nil, rules,
			[]string{"0 are throttled by another rule, 2 pods have no known container"},
			[]string{"Would "},
		},
		"rules of another node": {
			"v2-systemd-containerd", nil,
			[]string{"--rules", "testdata/rules.yaml", "--node-labels", "pool=none"},
			[]string{"Note: none of the 2 NodeQOS has a usable rule for this node"},
			[]string{"RULE", "Would "},
		},
		"rules for no pod": {
			"v2-systemd-containerd", nil,
			[]string{"--rules", "testdata/rules.yaml", "--node-labels", "pool=mixed"},
			[]string{"no pod would be throttled or evicted", "mixed/cpu: no PodQOS allows this action on a pod of this node", "New pods would be kept away: yes"},
			[]string{"Would "},
		},
	} {
		out, err := runWithout(t, c.recording, c.without, append([]string{"--dry-run", "--once"}, c.flags...)...)
		if err != nil {
			t.Errorf("running %s: %v", name, err)
		}

		for _, want := range c.want {
			if !strings.Contains(out, want) {
				t.Errorf("%s: the output lacks %q, want it in\n%s", name, want, out)
			}
		}

		for _, not := range c.not {
			if strings.Contains(out, not) {
				t.Errorf("%s: the output has %q, want it without in\n%s", name, not, out)
			}
		}
	}
}
