// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"crane.io/crane/test/hostrecording"
)

// diskFixture is a recorded host with a pod that uses disks.
type diskFixture struct {
	t   *testing.T
	dir string
	o   *Observer
	now time.Time
}

func newDiskFixture(t *testing.T, every time.Duration) *diskFixture {
	t.Helper()

	d := &diskFixture{t: t, dir: hostrecording.ForTest(t, "v2-systemd-containerd").Dir, now: time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC)}
	d.write("sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory pids\n")
	d.o = newObserver(t, d.dir)
	d.o.SetDiskIOInterval(every)

	return d
}

func (d *diskFixture) write(path, content string) {
	d.t.Helper()

	path = filepath.Join(d.dir, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		d.t.Fatal(err)
	}

	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		d.t.Fatal(err)
	}
}

// setCounters sets the pod's disk I/O since its creation.
func (d *diskFixture) setCounters(device string, reads, writes, readBytes, writeBytes int) {
	d.t.Helper()

	file := filepath.Join(podFiles(d.dir, burstable), "io.stat")
	if err := os.WriteFile(file, fmt.Appendf(nil, "%s rbytes=%d wbytes=%d rios=%d wios=%d dbytes=0 dios=0\n", device, readBytes, writeBytes, reads, writes), 0o600); err != nil {
		d.t.Fatal(err)
	}
}

func (d *diskFixture) collect(after time.Duration) *Snapshot {
	d.now = d.now.Add(after)
	return d.o.Collect(d.now)
}

// TestDiskIO checks that rates cover the time between samples and that a sample is reported until the next.
func TestDiskIO(t *testing.T) {
	d := newDiskFixture(t, 5*time.Second)
	d.setCounters("259:0", 100, 200, 4096000, 0)

	if s := d.collect(0); findPod(s, burstable).DiskIO.OK || len(s.Problems) > 0 {
		t.Errorf("the first Collect has rates or problems %v, want neither", s.Problems)
	}

	d.setCounters("259:0", 150, 300, 4096000+51200, 1<<20)
	for range 4 {
		if s := d.collect(time.Second); findPod(s, burstable).DiskIO.OK {
			t.Fatal("Collect before the interval has a rate, want none")
		}
	}

	sampled := d.now.Add(time.Second)
	want := DiskIORate{At: sampled, Reads: 10, Writes: 20, ReadBytes: 10240, WriteBytes: (1 << 20) / 5.0}
	for range 5 {
		if s := d.collect(time.Second); !findPod(s, burstable).DiskIO.OK || findPod(s, burstable).DiskIO.Value != want {
			t.Fatalf("DiskIO is %+v, want %+v", findPod(s, burstable).DiskIO, want)
		}
	}

	if s := d.o.Collect(d.now); findPod(s, guaranteed).DiskIO.OK {
		t.Error("a pod without io.stat has a rate, want none")
	}

	// A decreased counter yields no rate until the next sample.
	d.setCounters("259:0", 1, 300, 4096000+51200, 1<<20)

	if s := d.collect(5 * time.Second); findPod(s, burstable).DiskIO.OK {
		t.Errorf("after a decreased counter DiskIO is %+v, want none", findPod(s, burstable).DiskIO)
	}

	d.setCounters("259:0", 11, 300, 4096000+51200, 1<<20)
	if s := d.collect(5 * time.Second); findPod(s, burstable).DiskIO.Value.Reads != 2 {
		t.Errorf("DiskIO is %+v, want 2 reads per second", findPod(s, burstable).DiskIO)
	}
	// A clock set back yields no rate until the next sample.
	if s := d.collect(-time.Hour); findPod(s, burstable).DiskIO.OK {
		t.Errorf("after the clock was set back DiskIO is %+v, want none", findPod(s, burstable).DiskIO)
	}

	d.setCounters("259:0", 21, 300, 4096000+51200, 1<<20)
	if s := d.collect(5 * time.Second); findPod(s, burstable).DiskIO.Value.Reads != 2 {
		t.Errorf("one sample after the clock was set back DiskIO is %+v, want 2 reads per second", findPod(s, burstable).DiskIO)
	}
	// An unreadable file is reported as a problem.
	if err := os.WriteFile(filepath.Join(podFiles(d.dir, burstable), "io.stat"), []byte("259:0 rbytes=4"), 0o600); err != nil {
		t.Fatal(err)
	}

	if s := d.collect(5 * time.Second); findPod(s, burstable).DiskIO.OK || !strings.Contains(s.Problems["pod disks"], "io.stat") || !findPod(s, burstable).UsedCPU.OK {
		t.Errorf("with half a file DiskIO is %+v, problems %v; want none and io.stat", findPod(s, burstable).DiskIO, s.Problems)
	}
	if s := d.collect(time.Second); !strings.Contains(s.Problems["pod disks"], "io.stat") {
		t.Errorf("problems are %v, want io.stat until the next sample", s.Problems)
	}

	d.o.SetDiskIOInterval(0)
	d.collect(time.Second)

	if d.o.diskIO.groups != nil {
		t.Error("groups are kept while disabled, want none")
	}
}

// TestDiskIOUnsupported checks that a host without disk statistics reports the reason and no rates.
func TestDiskIOUnsupported(t *testing.T) {
	d := newDiskFixture(t, time.Second)
	d.write("sys/fs/cgroup/cgroup.controllers", "cpu memory\n")
	d.setCounters("259:0", 1, 1, 1, 1)
	d.collect(0)

	if s := d.collect(time.Second); findPod(s, burstable).DiskIO.OK || len(s.Problems) > 0 || !strings.Contains(s.Node.DiskIOUnsupported, "no controller io") || s.Node.DiskIOPartial {
		t.Errorf("without the controller DiskIO is %+v, problems %v, node %+v; want only that it is unsupported", findPod(s, burstable).DiskIO, s.Problems, s.Node)
	}

	d.write("sys/fs/cgroup/cgroup.controllers", "cpu io memory\n")
	if s := d.collect(time.Second); s.Node.DiskIOUnsupported != "" {
		t.Errorf("with the controller the node is %+v, want supported disk I/O", s.Node)
	}

	d.write("sys/fs/cgroup/cgroup.controllers", "cpu memory\n")
	d.collect(time.Second)
	d.o.SetDiskIOInterval(0)

	if s := d.collect(time.Second); s.Node.DiskIOUnsupported != "" {
		t.Errorf("disabled: the node is %+v, want no word about support", s.Node)
	}
}

// TestStackedDevices checks that loop devices are not counted and logical volumes not twice.
func TestStackedDevices(t *testing.T) {
	d := newDiskFixture(t, time.Second)
	for path, content := range map[string]string{
		"sys/block/loop0/dev": "7:0\n", "sys/block/nvme0n1/dev": "259:0\n", "sys/block/dm-0/dev": "253:0\n", "sys/block/dm-0/slaves/nvme0n1/dev": "259:0\n",
		"sys/block/md0/dev": "9:0\n", "sys/block/md0/slaves/sda/dev": "8:0\n", "sys/block/md0/holders/dm-1/dev": "253:1\n",
	} {
		d.write(path, content)
	}

	for device, want := range map[string]float64{"7:0": 0, "259:0": 10, "253:0": 10, "9:0": 0, "8:0": 10, "253:9": 10} {
		d.setCounters(device, 0, 0, 0, 0)
		d.collect(time.Second)
		d.setCounters(device, 10, 0, 0, 0)

		if s := d.collect(time.Second); findPod(s, burstable).DiskIO.Value.Reads != want {
			t.Errorf("%s: %+v, want %g reads", device, findPod(s, burstable).DiskIO, want)
		}

		d.setCounters(device, 0, 0, 0, 0)
		d.collect(time.Second)
	}
}
