// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"crane.io/crane/internal/agent/host"
	"crane.io/crane/internal/agent/host/cgroup"
	"crane.io/crane/test/hostrecording"
)

const (
	guaranteed = "6f1c2b1a-0d6e-4a9e-9d53-5a7f0f6f1a01"
	burstable  = "9b8de3f4-3c1b-4a57-8f4e-2f6a1a3f7c02"
)

func newObserver(t testing.TB, dir string) *Observer {
	t.Helper()

	layout, err := cgroup.Detect(host.Root(dir))
	if err != nil {
		t.Fatal(err)
	}

	o := New(host.Root(dir), layout)
	t.Cleanup(o.Close)
	return o
}

func findPod(s *Snapshot, uid string) *Pod {
	for i := range s.Pods {
		if s.Pods[i].UID == uid {
			return &s.Pods[i]
		}
	}

	return nil
}

func isNear(a, b float64) bool { return math.Abs(a-b) < 1e-6*math.Max(1, math.Abs(b)) }

// TestRates checks all rates of a recording made with known rates.
func TestRates(t *testing.T) {
	rec := hostrecording.ForTest(t, "v2-systemd-containerd")
	dir := rec.Dir
	o := newObserver(t, dir)
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

	s := o.Collect(now)
	if s.Node.UsedCPU.OK || findPod(s, guaranteed).UsedCPU.OK || s.Disks[0].Rate.OK || s.Interfaces[0].Rate.OK {
		t.Error("the first Collect has rates, want none")
	}
	if !s.Node.Memory.OK || !findPod(s, guaranteed).Memory.OK {
		t.Error("the first Collect has no memory, want it")
	}

	rec.To(1)
	s = o.Collect(now.Add(rec.Moments[1].At))
	if len(s.Problems) > 0 {
		t.Errorf("problems are %v, want none", s.Problems)
	}
	// 1600 user and 400 system of 4000 ticks, on 4 CPUs.
	if n := s.Node; !isNear(float64(n.UsedCPU.Value), 2000) || n.CPUs.Value != 4 || n.Memory.Value.Total != 16384000<<10 || n.Load.Value[0] != 1.2 {
		t.Errorf("the node is %+v, want 2000m of 4 CPUs", n)
	}

	if p := s.Node.Pressure; !p.CPU.OK || p.CPU.Value.Some.Avg10 != 1.5 || p.IO.Value.Full.Avg60 != 0.1 {
		t.Errorf("pressure is %+v, want the recorded averages", p)
	}

	p := findPod(s, guaranteed)
	if p.UsedCPU.Value != 500 || !isNear(float64(p.Throttled.Value), 0.5) || p.Memory.Value.WorkingSet != (512-64)<<20 || p.Limit.Value.Cores() != 0.5 {
		t.Errorf("the pod is %+v, want 500m, throttled half of the time, 448 MiB and a limit of half a core", p)
	}
	if c := p.Containers[0]; c.UsedCPU.Value != 500 || !c.Limit.OK {
		t.Errorf("the container is %+v, want 500m and a limit", c)
	}
	if p := findPod(s, burstable); p.UsedCPU.Value != 900 || !p.Limit.Value.Unlimited() {
		t.Errorf("the pod is %+v, want 900m and no limit", p)
	}

	// Whole disks only; 100 reads of 8 sectors, 600 writes of 16 in ten seconds.
	if len(s.Disks) != 1 {
		t.Fatalf("disks are %+v, want one", s.Disks)
	}

	if d := s.Disks[0]; d.Name != "nvme0n1" || d.Rate.Value.Reads != 10 || d.Rate.Value.Writes != 60 || d.Rate.Value.ReadBytes != 10*8*512 ||
		d.Rate.Value.WriteBytes != 60*16*512 || !isNear(float64(d.Rate.Value.Busy), 0.12) {
		t.Errorf("the disk is %+v, want nvme0n1 with 10 reads and 60 writes per second", d)
	}
	if i := s.Interfaces[0]; len(s.Interfaces) != 1 || i.Name != "eth0" || i.Rate.Value.ReceivedBytes != 1.25e6 || i.Rate.Value.SentBytes != 125e3 {
		t.Errorf("interfaces are %+v, want eth0 with 1.25 MB received and 125 kB sent per second", s.Interfaces)
	}
}

// TestBack checks that decreased, unchanged and new counters have no rate until the next measurement.
func TestBack(t *testing.T) {
	rec := hostrecording.ForTest(t, "v2-systemd-containerd")
	dir := rec.Dir
	o := newObserver(t, dir)
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	rec.To(1)
	o.Collect(now)
	rec.To(0)

	s := o.Collect(now.Add(10 * time.Second))
	if p := findPod(s, guaranteed); s.Node.UsedCPU.OK || p.UsedCPU.OK || p.Throttled.OK || s.Disks[0].Rate.OK || s.Interfaces[0].Rate.OK {
		t.Errorf("after decreased counters node %+v and pod %+v, want no rates", s.Node, p)
	}

	rec.To(1)
	if s = o.Collect(now.Add(20 * time.Second)); findPod(s, guaranteed).UsedCPU.Value != 500 || !s.Node.UsedCPU.OK {
		t.Errorf("one measurement after decreased counters the node is %+v, want rates", s.Node)
	}
	// A clock set back yields no rates.
	if s = o.Collect(now); s.Span != 0 || findPod(s, guaranteed).UsedCPU.OK {
		t.Errorf("after the clock was set back the span is %s, want 0 and no rates", s.Span)
	}
}

// TestLacks checks that missing files affect only their own values.
func TestLacks(t *testing.T) {
	dir := hostrecording.ForTest(t, "v2-systemd-containerd").Dir
	for _, path := range []string{"proc/pressure", "proc/1", "sys/block", "proc/meminfo"} {
		if err := os.RemoveAll(filepath.Join(dir, path)); err != nil {
			t.Fatal(err)
		}
	}

	if err := os.WriteFile(filepath.Join(dir, "proc/loadavg"), []byte("0.5 0."), 0o600); err != nil {
		t.Fatal(err)
	}

	s := newObserver(t, dir).Collect(time.Now())
	if s.Node.Pressure.Supported() || s.Node.Memory.OK || s.Node.Load.OK || len(s.Disks)+len(s.Interfaces) > 0 || !s.Node.CPUs.OK || len(s.Pods) != 4 {
		t.Errorf("Collect with missing files = %+v, want the CPUs and pods only", s)
	}

	for _, subject := range []string{"memory", "load", "disks", "network"} {
		if s.Problems[subject] == "" {
			t.Errorf("problems are %v, want one of %s", s.Problems, subject)
		}
	}

	if problem := s.Problems["pressure cpu"]; problem != "" {
		t.Errorf("problem of pressure is %q, want none: the kernel has none", problem)
	}
}

// TestThisHost measures the machine that runs the test.
func TestThisHost(t *testing.T) {
	layout, err := cgroup.Detect("/")
	if err != nil {
		t.Skip("no cgroups: ", err)
	}

	o := New("/", layout)
	defer o.Close()

	if s := o.Collect(time.Now()); !s.Node.CPUs.OK || !s.Node.Memory.OK {
		t.Errorf("this host's node is %+v, want its CPUs and memory", s.Node)
	}
}

// recordManyPods writes a tree with pods of one container and a sandbox each.
func recordManyPods(t testing.TB, pods int) string {
	t.Helper()

	rec := hostrecording.ForTest(t, "v2-systemd-containerd")
	dir := rec.Dir
	rec.Multiply(burstable, pods)

	return dir
}

// TestCollectAllocatesLittle checks that a measurement allocates only for the paths of the directories that it lists, a fifth of the pods.
func TestCollectAllocatesLittle(t *testing.T) {
	o := newObserver(t, recordManyPods(t, 8))
	now := time.Now()
	look := func() { now = now.Add(time.Second); o.Collect(now) }
	look()
	look()

	if allocations := testing.AllocsPerRun(20, look); allocations > 40 {
		t.Errorf("Collect allocates %g times, want at most 40", allocations)
	}
}

// TestBound reads 500 pods.
func TestBound(t *testing.T) {
	dir := hostrecording.ForTest(t, "v2-systemd-containerd").Dir
	for i := range 500 {
		pod := filepath.Join(dir, fmt.Sprintf("sys/fs/cgroup/kubepods.slice/kubepods-pod%032d.slice", i))
		if err := os.Mkdir(pod, 0o755); err != nil {
			t.Fatal(err)
		}

		if err := os.WriteFile(filepath.Join(pod, "cpu.stat"), []byte("usage_usec 1\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	if s := newObserver(t, dir).Collect(time.Now()); len(s.Pods) != 504 || len(s.Problems) > 0 {
		t.Errorf("Collect has %d pods, problems %v; want 504 and none", len(s.Pods), s.Problems)
	}
}

// BenchmarkCollect110 measures a measurement with 110 pods of a container and a sandbox each.
func BenchmarkCollect110(b *testing.B) {
	o := newObserver(b, recordManyPods(b, 106))
	now := time.Now()
	for b.Loop() {
		now = now.Add(time.Second)
		o.Collect(now)
	}
}
