// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestDisks: pods share a disk in proportion to their demand, wait for the rest, and all I/O is counted in the files of
// each version.
func TestDisks(t *testing.T) {
	for name, v1 := range map[string]bool{"v2": false, "v1": true} {
		t.Run(name, func(t *testing.T) {
			m, clk := newMachine(t, Spec{V1: v1, Disk: 10 * mebi})
			pod := m.PodGroup(hogUID, "BestEffort")
			container := m.ContainerGroup(pod, containerID("2"))

			show := func(group, file string) string {
				return text(filepath.Join(m.tree.hierarchy().root("blkio"), group), file)
			}
			if v1 && show(pod, "blkio.throttle.io_serviced_recursive") != "Total 0" || !v1 && show(pod, "io.stat") != "" {
				t.Error("disk statistics of a new pod: got counts, want none")
			}

			advance(t, m, clk, time.Second)
			for uid, l := range map[string]Load{webUID: {CPU: 1, Read: mebi}, hogUID: {CPU: 1, Read: 3 * mebi, Written: 2 * mebi}} {
				if err := m.SetDemand(uid, map[string]string{webUID: containerID("1"), hogUID: containerID("2")}[uid], l); err != nil {
					t.Fatal(err)
				}
			}

			if got := advance(t, m, clk, 2*time.Second)[containerID("2")]; got.Read != 3*mebi || got.Written != 2*mebi {
				t.Errorf("use on a disk with room = %+v, want 3 MiB read and 2 MiB written per second", got)
			}

			if v1 {
				const want = "254:0 Read 6291456\n254:0 Write 4194304\n254:0 Sync 10485760\n254:0 Async 0\n254:0 Discard 0\n254:0 Total 10485760\nTotal 10485760"
				if got := show(container, "blkio.throttle.io_service_bytes"); got != want {
					t.Errorf("io_service_bytes of the container = %s, want %s", got, want)
				}
				if got := show(pod, "blkio.throttle.io_service_bytes_recursive"); got != want || show(pod, "blkio.throttle.io_service_bytes") != "Total 0" {
					t.Errorf("io_service_bytes_recursive of the pod = %s, want %s, and nothing of its own", got, want)
				}
				if got := show("", "blkio.throttle.io_service_bytes_recursive"); !strings.HasPrefix(got, "254:0 Read 8388608\n") {
					t.Errorf("io_service_bytes_recursive of the root = %s, want 8388608 bytes read", got)
				}

				if got := show(pod, "blkio.throttle.io_serviced_recursive"); !strings.HasPrefix(got, "254:0 Read 96\n254:0 Write 64\n") {
					t.Errorf("io_serviced_recursive of the pod = %s, want 96 reads and 64 writes", got)
				}
			} else if got := show(pod, "io.stat"); got != "254:0 rbytes=6291456 wbytes=4194304 rios=96 wios=64 dbytes=0 dios=0" || got != show(container, "io.stat") {
				t.Errorf("io.stat of the pod = %s, want 6291456 and 4194304 bytes, the same as of the container", got)
			}

			if err := m.SetDemand(hogUID, containerID("2"), Load{CPU: 1, Written: 39 * mebi}); err != nil {
				t.Fatal(err)
			}

			got := advance(t, m, clk, time.Second)
			if got[containerID("1")].Read != mebi/4 || got[containerID("2")].Written != 39*mebi/4 {
				t.Errorf("use on a full disk = %+v, want a quarter of the demand", got)
			}
			if p := m.read(t, "proc/pressure/io"); !strings.Contains(p, "total=750000\n") {
				t.Errorf("proc/pressure/io = %s, want a total of 750000", p)
			}

			if !v1 {
				if p := show(m.PodGroup(webUID, "Burstable"), "io.pressure"); !strings.HasPrefix(p, "some avg10=7.14") || !strings.Contains(p, "total=750000\n") {
					t.Errorf("io.pressure of the pod = %s, want avg10 7.14 and a total of 750000", p)
				}
			}

			if d := m.read(t, "proc/diskstats"); !strings.HasPrefix(strings.TrimSpace(d), "254       0 vda ") || len(strings.Fields(d)) != 14 {
				t.Errorf("proc/diskstats = %s, want 14 fields of vda", d)
			}
		})
	}
}
