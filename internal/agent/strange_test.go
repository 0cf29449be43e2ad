// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	clocktesting "k8s.io/utils/clock/testing"

	"crane.io/crane/internal/simnode/kernel"
)

// lookAt prints a look at a host of whose files some are taken away.
func lookAt(t *testing.T, recording string, without []string, flags ...string) string {
	t.Helper()
	rec := kernel.ForTest(t, recording)
	strip := func() {
		for _, name := range without {
			if err := os.RemoveAll(filepath.Join(rec.Dir, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	strip()
	clk := recordedClock{clocktesting.NewFakeClock(time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC)), func() time.Duration {
		rec.To(1)
		strip()
		return rec.Moments[1].At
	}}
	o := NewOptions()
	fs := pflag.NewFlagSet("crane-agent", pflag.ContinueOnError)
	o.AddFlags(fs)
	if err := fs.Parse(append([]string{"--host-root", rec.Dir, "--dry-run", "--once", "--hostname-override", "node-1", "--collect-interval", "10s"}, flags...)); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := Run(t.Context(), o, clk, &out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// TestStrangeHosts: what a host has not is said with the reason, and rules on it do nothing and say why.
func TestStrangeHosts(t *testing.T) {
	rules := []string{"--rules", "testdata/rules.yaml", "--pods", "testdata/pods.yaml", "--node-labels", "pool=mixed"}
	for name, c := range map[string]struct {
		recording string
		without   []string
		flags     []string
		want, not []string
	}{
		"no pressure": {"v2-systemd-containerd", []string{"proc/pressure"}, rules,
			[]string{"node-pressure            unsupported: the kernel was built without PSI, or started with psi=0", "cpu     2.000    ", "unknown"}, nil},
		"no cgroups": {"v2-systemd-containerd", []string{"sys/fs/cgroup"}, rules,
			[]string{"no cgroup hierarchy with the cpu controller is mounted", "enforce-cpu-throttle     unsupported: there are no cgroups", "enforce-evict            off", "no PodQOS allows this action"}, []string{"Would "}},
		"no /proc": {"v2-systemd-containerd", []string{"proc"}, rules,
			[]string{"cpu     unknown  unknown", "Not measured: cpu: ", "mixed/cpu: ", "New pods would be kept away: no"}, []string{"Would "}},
		"no /sys": {"v2-systemd-containerd", []string{"sys"}, rules,
			[]string{"Note: which CPUs there are is not known", "numa                     unsupported"}, []string{"Would "}},
		"hybrid": {"debian-hybrid-systemd-containerd", nil, rules,
			[]string{"on: cgroup hybrid, driver systemd", "enforce-memory-throttle  unsupported: cgroup hybrid", "Usable is what the kubelet leaves to pods, by /var/lib/kubelet/config.yaml", "and 7 on which less happened"}, []string{"veth"}},
		"rules of another node": {"v2-systemd-containerd", nil, []string{"--rules", "testdata/rules.yaml", "--node-labels", "pool=none"},
			[]string{"Note: no rule of the 2 NodeQOS is for this node"}, []string{"RULE", "Would "}},
		"rules for no pod": {"v2-systemd-containerd", nil, []string{"--rules", "testdata/rules.yaml", "--node-labels", "pool=mixed"},
			[]string{"nobody would be throttled or evicted", "mixed/cpu: no PodQOS allows this action on a pod of this node", "New pods would be kept away: yes"}, []string{"Would "}},
	} {
		out := lookAt(t, c.recording, c.without, c.flags...)
		for _, want := range c.want {
			if !strings.Contains(out, want) {
				t.Errorf("%s: no %q in\n%s", name, want, out)
			}
		}
		for _, not := range c.not {
			if strings.Contains(out, not) {
				t.Errorf("%s: %q in\n%s", name, not, out)
			}
		}
	}
}
