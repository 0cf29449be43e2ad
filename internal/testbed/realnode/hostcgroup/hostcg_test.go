// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package hostcgroup

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	for name, test := range map[string]struct {
		mounts, membership string
		want               Host
	}{
		"version 2 alone": {
			mounts:     "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate",
			membership: "0::/user.slice/session-1.scope",
			want:       Host{Unified: &Hierarchy{Root: "/sys/fs/cgroup", Own: "/sys/fs/cgroup/user.slice/session-1.scope"}},
		},
		"hybrid, controllers together": {
			mounts: `31 23 0:28 / /sys/fs/cgroup ro - tmpfs tmpfs ro,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
33 31 0:30 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset
34 31 0:31 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd
35 31 0:32 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw`,
			membership: "5:name=systemd:/a\n4:cpuset:/\n3:cpuacct,cpu:/b/c\n2:memory:/not/mounted\n0::/",
			want: Host{
				V1: []Hierarchy{
					{Name: "cpuacct,cpu", Root: "/sys/fs/cgroup/cpu,cpuacct", Own: "/sys/fs/cgroup/cpu,cpuacct/b/c"},
					{Name: "cpuset", Root: "/sys/fs/cgroup/cpuset", Own: "/sys/fs/cgroup/cpuset"},
					{Name: "name=systemd", Root: "/sys/fs/cgroup/systemd", Own: "/sys/fs/cgroup/systemd/a"},
				},
				Unified: &Hierarchy{Root: "/sys/fs/cgroup/unified", Own: "/sys/fs/cgroup/unified"},
			},
		},
		"in a container that sees a part of the hierarchy": {
			mounts:     "40 31 0:29 /docker/abc /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu",
			membership: "3:cpu:/docker/abc/x",
			want:       Host{V1: []Hierarchy{{Name: "cpu", Root: "/sys/fs/cgroup/cpu", Own: "/sys/fs/cgroup/cpu/x"}}},
		},
		"none": {mounts: "22 27 0:21 / /proc rw - proc proc rw", membership: "0::/"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parse(strings.NewReader(test.mounts), strings.NewReader(test.membership))
			if err != nil {
				t.Fatal(err)
			}

			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("parse: hierarchies differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMissing(t *testing.T) {
	host := Host{V1: []Hierarchy{{Name: "cpu,cpuacct"}, {Name: "memory"}}}
	if got := host.Missing("cpu", "cpuset", "memory", "pids"); !slices.Equal(got, []string{"cpuset", "pids"}) {
		t.Errorf("Missing() = %v, want cpuset and pids", got)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu", "3:cpu:/x")
	f.Add("- - -", "::")
	f.Fuzz(func(t *testing.T, mounts, membership string) {
		host, err := parse(strings.NewReader(mounts), strings.NewReader(membership))
		if err != nil {
			return
		}

		for _, v := range host.V1 {
			if v.Name == "" {
				t.Errorf("parse returned hierarchy %+v, want a name", v)
			}
		}
	})
}
