// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"crane.io/crane/test/hostrecording"
)

// podFiles returns the directory of a pod's group in a recorded tree.
func podFiles(dir, uid string) string {
	matches, _ := filepath.Glob(filepath.Join(dir, "sys/fs/cgroup/kubepods.slice", "*", "*"+strings.ReplaceAll(uid, "-", "_")+".slice"))
	if len(matches) == 0 {
		matches, _ = filepath.Glob(filepath.Join(dir, "sys/fs/cgroup/kubepods.slice", "*"+strings.ReplaceAll(uid, "-", "_")+".slice"))
	}

	return matches[0]
}

// TestStalled checks the stall shares since the previous measurement, which the kernel's averages do not provide.
func TestStalled(t *testing.T) {
	rec := hostrecording.ForTest(t, "v2-systemd-containerd")
	dir := rec.Dir
	o := newObserver(t, dir)
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	pressure := func(total string) {
		for _, resource := range []string{"cpu", "memory", "io"} {
			writeFile(t, filepath.Join(podFiles(dir, burstable), resource+".pressure"),
				"some avg10=0.00 avg60=0.00 avg300=0.00 total="+total+"\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n")
		}
	}

	look := func(after time.Duration) StallShares {
		now = now.Add(after)
		return findPod(o.Collect(now), burstable).StallShares
	}
	pressure("1000000")

	if s := look(0); s.CPU.OK || s.Memory.OK || s.IO.OK {
		t.Errorf("in the first measurement shares are %+v, want unknown", s)
	}

	pressure("1500000")
	if s := look(2 * time.Second); !isNear(float64(s.CPU.Value), 0.25) || !isNear(float64(s.Memory.Value), 0.25) || !s.IO.OK {
		t.Errorf("shares are %+v, want a quarter", s)
	}

	pressure("9500000")
	if s := look(time.Second); s.CPU.Value != 1 {
		t.Errorf("shares are %+v, want at most all of the time", s)
	}

	pressure("10")
	if s := look(time.Second); s.CPU.OK {
		t.Errorf("after a decreased counter shares are %+v, want unknown", s)
	}

	pressure("20")
	if s := look(-time.Hour); s.CPU.OK {
		t.Errorf("after the clock was set back shares are %+v, want unknown", s)
	}

	pressure("500020")
	if s := look(time.Second); !isNear(float64(s.CPU.Value), 0.5) {
		t.Errorf("one measurement after the clock was set back shares are %+v, want a half", s)
	}
	// Without one of the pressure files the stall shares are unknown, the rest of the pod is not.
	if err := os.Remove(filepath.Join(podFiles(dir, burstable), "io.pressure")); err != nil {
		t.Fatal(err)
	}

	o.tree.Close() // Open plain files stay readable.
	look(time.Second)

	if s := look(time.Second); s.CPU.OK {
		t.Errorf("without pressure of disks shares are %+v, want unknown", s)
	}
	if p := findPod(&o.snapshot, burstable); !p.UsedCPU.OK || !p.Memory.OK {
		t.Errorf("without pressure the pod is %+v, want its CPU and memory", p)
	}

	rec.To(1)
	look(time.Second)

	if len(o.stallTimes) != 4 {
		t.Errorf("%d pods are remembered, want 4", len(o.stallTimes))
	}
}

// TestCannotRead checks that an unreadable file (here a directory) affects only its pod.
func TestCannotRead(t *testing.T) {
	dir := hostrecording.ForTest(t, "v2-systemd-containerd").Dir
	file := filepath.Join(podFiles(dir, burstable), "cpu.stat")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}

	if err := os.Mkdir(file, 0o755); err != nil {
		t.Fatal(err)
	}

	o := newObserver(t, dir)
	now := time.Now()
	o.Collect(now)

	s := o.Collect(now.Add(time.Second))
	if p := findPod(s, burstable); p.UsedCPU.OK || p.Throttled.OK || !p.Memory.OK || !p.Limit.OK {
		t.Errorf("with half a cpu.stat the pod is %+v, want memory and limit only", p)
	}
	if p := findPod(s, guaranteed); !p.UsedCPU.OK {
		t.Errorf("another pod is %+v, want its CPU", p)
	}
	if !strings.Contains(s.Problems["pods"], "cpu.stat") {
		t.Errorf("problems are %v, want cpu.stat", s.Problems)
	}
}

// TestVanished checks that a pod that vanishes between measurements is dropped completely, and that one that vanishes during a measurement is unknown
// without a problem.
func TestVanished(t *testing.T) {
	dir := hostrecording.ForTest(t, "v2-systemd-containerd").Dir
	o := newObserver(t, dir)
	o.SetRunQueueSampling(Always)
	now := time.Now()
	o.Collect(now)

	group := podFiles(dir, burstable)
	files, err := filepath.Glob(filepath.Join(group, "*.*"))
	if err != nil {
		t.Fatal(err)
	}

	for _, f := range files {
		if info, err := os.Stat(f); err == nil && !info.IsDir() {
			if err := os.Remove(f); err != nil {
				t.Fatal(err)
			}
		}
	}

	o.tree.Close()
	s := o.Collect(now.Add(time.Second))
	if p := findPod(s, burstable); p == nil || p.UsedCPU.OK || p.Memory.OK || p.Pressure.Supported() || len(s.Problems) > 0 {
		t.Errorf("while its cgroup is removed the pod is %+v, problems %v; want no values and no problem", p, s.Problems)
	}
	if err := os.RemoveAll(group); err != nil {
		t.Fatal(err)
	}

	s = o.Collect(now.Add(2 * time.Second))
	if findPod(s, burstable) != nil || len(s.Problems) > 0 {
		t.Errorf("after its cgroup was removed pods are %+v, problems %v; want the pod gone without a problem", s.Pods, s.Problems)
	}

	for path := range o.counters {
		if strings.Contains(path, strings.ReplaceAll(burstable, "-", "_")) {
			t.Errorf("counters of %s are kept, want none of a removed cgroup", path)
		}
	}

	if len(o.stallTimes) != 3 || len(o.runQueues.groups) != 4 {
		t.Errorf("%d pods and %d containers are remembered, want 3 and 4", len(o.stallTimes), len(o.runQueues.groups))
	}
}

// TestWrongRuntime checks that containers are identified by cgroup, whatever runtime sockets exist.
func TestWrongRuntime(t *testing.T) {
	for recording, socket := range map[string]string{"v2-systemd-crio": "run/containerd/containerd.sock", "v2-systemd-containerd": "run/crio/crio.sock"} {
		dir := hostrecording.ForTest(t, recording).Dir
		writeFile(t, filepath.Join(dir, socket), "")

		s := newObserver(t, dir).Collect(time.Now())
		if p := findPod(s, guaranteed); p == nil || len(p.Containers) != 2 || len(s.Problems) > 0 {
			t.Errorf("%s: the pod is %+v, problems %v; want 2 containers and no problem", recording, p, s.Problems)
		}
	}
}

// TestPressureDisabled checks a kernel with psi=0, whose pressure files exist and cannot be read: pressure is not supported, which is no
// problem, and everything else is measured.
func TestPressureDisabled(t *testing.T) {
	dir := hostrecording.ForTest(t, "v2-systemd-containerd").Dir
	unreadable := 0
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		isPressure := filepath.Ext(path) == ".pressure" || filepath.Base(filepath.Dir(path)) == "pressure"
		if err != nil || entry.IsDir() || !isPressure {
			return err
		}

		// The kernel returns EOPNOTSUPP, a directory EISDIR.
		unreadable++
		return errors.Join(os.Remove(path), os.Mkdir(path, 0o755))
	})
	if err != nil || unreadable == 0 {
		t.Fatalf("%d pressure files, %v", unreadable, err)
	}

	o := newObserver(t, dir)
	now := time.Now()
	o.Collect(now)
	s := o.Collect(now.Add(time.Second))
	if s.Problems["pods"] != "" || s.Problems["pressure cpu"] != "" {
		t.Errorf("problems are %v, want none of pressure", s.Problems)
	}
	if len(s.Pods) == 0 || s.Node.Pressure.Supported() {
		t.Errorf("%d pods, node pressure supported %t, want pods and no pressure", len(s.Pods), s.Node.Pressure.Supported())
	}

	for i := range s.Pods {
		if p := &s.Pods[i]; p.Pressure.Supported() || !p.Memory.OK || !p.Limit.OK {
			t.Errorf("pod %s: pressure %t, memory %t, limit %t, want memory and limit alone", p.UID, p.Pressure.Supported(), p.Memory.OK, p.Limit.OK)
		}
	}
}

// TestUnreadablePressure checks that pressure which is there and cannot be read is a problem: the kernel supports it.
func TestUnreadablePressure(t *testing.T) {
	for file, subject := range map[string]string{"proc/pressure/cpu": "pressure cpu", "": "pods"} {
		dir := hostrecording.ForTest(t, "v2-systemd-containerd").Dir
		path := filepath.Join(dir, file)
		if file == "" {
			path = filepath.Join(podFiles(dir, burstable), "cpu.pressure")
		}

		// A link to itself cannot be opened, whatever the rights of the test.
		if err := errors.Join(os.Remove(path), os.Symlink(path, path)); err != nil {
			t.Fatal(err)
		}

		s := newObserver(t, dir).Collect(time.Now())
		if !strings.Contains(s.Problems[subject], filepath.Base(path)) {
			t.Errorf("problems with an unreadable %s are %v, want one of %s", path, s.Problems, subject)
		}
	}
}
