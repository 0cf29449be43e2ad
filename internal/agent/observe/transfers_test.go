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

	"crane.io/crane/internal/testbed/simnode/kernel"
)

// disks is a recorded host whose pod has done something to disks.
type disks struct {
	t   *testing.T
	dir string
	o   *Observer
	now time.Time
}

func newDisks(t *testing.T, every time.Duration) *disks {
	t.Helper()
	d := &disks{t: t, dir: kernel.ForTest(t, "v2-systemd-containerd").Dir, now: time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC)}
	d.write("sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory pids\n")
	d.o = open(t, d.dir)
	d.o.SampleTransfers(every)
	return d
}

func (d *disks) write(path, content string) {
	d.t.Helper()
	path = filepath.Join(d.dir, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		d.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		d.t.Fatal(err)
	}
}

// did sets what the pod has done to a disk since it was made.
func (d *disks) did(device string, reads, writes, readBytes, writeBytes int) {
	d.t.Helper()
	file := filepath.Join(podFiles(d.dir, burstable), "io.stat")
	if err := os.WriteFile(file, fmt.Appendf(nil, "%s rbytes=%d wbytes=%d rios=%d wios=%d dbytes=0 dios=0\n", device, readBytes, writeBytes, reads, writes), 0o600); err != nil {
		d.t.Fatal(err)
	}
}

func (d *disks) look(after time.Duration) *Snapshot {
	d.now = d.now.Add(after)
	return d.o.Look(d.now)
}

// TestTransfers: rates are of the time between two samples, a sample is shown until the next, and nothing is made up.
func TestTransfers(t *testing.T) {
	d := newDisks(t, 5*time.Second)
	d.did("259:0", 100, 200, 4096000, 0)
	if s := d.look(0); find(s, burstable).Transfer.OK || len(s.Problems) > 0 {
		t.Errorf("the first look has rates, or problems: %v", s.Problems)
	}
	d.did("259:0", 150, 300, 4096000+51200, 1<<20)
	for range 4 {
		if s := d.look(time.Second); find(s, burstable).Transfer.OK {
			t.Fatal("it was read before it was due")
		}
	}
	sampled := d.now.Add(time.Second)
	want := Transfer{At: sampled, Reads: 10, Writes: 20, ReadBytes: 10240, WriteBytes: (1 << 20) / 5.0}
	for range 5 {
		if s := d.look(time.Second); !find(s, burstable).Transfer.OK || find(s, burstable).Transfer.Value != want {
			t.Fatalf("%+v, want %+v", find(s, burstable).Transfer, want)
		}
	}
	if s := d.o.Look(d.now); find(s, guaranteed).Transfer.OK {
		t.Error("a pod without the file has a rate")
	}
	// A counter that goes back has no rate, and has one again.
	d.did("259:0", 1, 300, 4096000+51200, 1<<20)
	if s := d.look(5 * time.Second); find(s, burstable).Transfer.OK {
		t.Errorf("%+v", find(s, burstable).Transfer)
	}
	d.did("259:0", 11, 300, 4096000+51200, 1<<20)
	if s := d.look(5 * time.Second); find(s, burstable).Transfer.Value.Reads != 2 {
		t.Errorf("%+v", find(s, burstable).Transfer)
	}
	// The clock is set back: nothing is said of a time below zero, and then all goes on.
	if s := d.look(-time.Hour); find(s, burstable).Transfer.OK {
		t.Errorf("%+v", find(s, burstable).Transfer)
	}
	d.did("259:0", 21, 300, 4096000+51200, 1<<20)
	if s := d.look(5 * time.Second); find(s, burstable).Transfer.Value.Reads != 2 {
		t.Errorf("after the clock was set back: %+v", find(s, burstable).Transfer)
	}
	// A file that cannot be read is a problem of its own.
	if err := os.WriteFile(filepath.Join(podFiles(d.dir, burstable), "io.stat"), []byte("259:0 rbytes=4"), 0o600); err != nil {
		t.Fatal(err)
	}
	if s := d.look(5 * time.Second); find(s, burstable).Transfer.OK || !strings.Contains(s.Problems["pod disks"], "io.stat") || !find(s, burstable).UsedCPU.OK {
		t.Errorf("%+v, %v", find(s, burstable).Transfer, s.Problems)
	}
	if s := d.look(time.Second); !strings.Contains(s.Problems["pod disks"], "io.stat") {
		t.Errorf("a problem that was there before the next sample is not told any more: %v", s.Problems)
	}
	d.o.SampleTransfers(0)
	if d.look(time.Second); d.o.transfers.groups != nil {
		t.Error("something is remembered that nobody asks for")
	}
}

// TestTransfersWithout: a host that does not count has no rates; the features say why.
func TestTransfersWithout(t *testing.T) {
	d := newDisks(t, time.Second)
	d.write("sys/fs/cgroup/cgroup.controllers", "cpu memory\n")
	d.did("259:0", 1, 1, 1, 1)
	d.look(0)
	if s := d.look(time.Second); find(s, burstable).Transfer.OK || len(s.Problems) > 0 || !strings.Contains(s.Node.DisksUncounted, "no controller io") || s.Node.DisksInPart {
		t.Errorf("%+v, %v, %+v", find(s, burstable).Transfer, s.Problems, s.Node)
	}
	d.write("sys/fs/cgroup/cgroup.controllers", "cpu io memory\n")
	if s := d.look(time.Second); s.Node.DisksUncounted != "" {
		t.Errorf("it counts now: %+v", s.Node)
	}
	d.write("sys/fs/cgroup/cgroup.controllers", "cpu memory\n")
	d.look(time.Second)
	d.o.SampleTransfers(0)
	if s := d.look(time.Second); s.Node.DisksUncounted != "" {
		t.Errorf("nobody asks: %+v", s.Node)
	}
}

// TestStackedDevices: a loop device counts for nothing, and a logical volume not twice.
func TestStackedDevices(t *testing.T) {
	d := newDisks(t, time.Second)
	for path, content := range map[string]string{
		"sys/block/loop0/dev": "7:0\n", "sys/block/nvme0n1/dev": "259:0\n", "sys/block/dm-0/dev": "253:0\n", "sys/block/dm-0/slaves/nvme0n1/dev": "259:0\n",
		"sys/block/md0/dev": "9:0\n", "sys/block/md0/slaves/sda/dev": "8:0\n", "sys/block/md0/holders/dm-1/dev": "253:1\n",
	} {
		d.write(path, content)
	}
	for device, want := range map[string]float64{"7:0": 0, "259:0": 10, "253:0": 10, "9:0": 0, "8:0": 10, "253:9": 10} {
		d.did(device, 0, 0, 0, 0)
		d.look(time.Second)
		d.did(device, 10, 0, 0, 0)
		if s := d.look(time.Second); find(s, burstable).Transfer.Value.Reads != want {
			t.Errorf("%s: %+v, want %g reads", device, find(s, burstable).Transfer, want)
		}
		d.did(device, 0, 0, 0, 0)
		d.look(time.Second)
	}
}
