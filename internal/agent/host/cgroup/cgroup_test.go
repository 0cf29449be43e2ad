// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"crane.io/crane/internal/agent/host"
	"crane.io/crane/pkg/units"
	"crane.io/crane/test/hostrecording"
)

const (
	guaranteed = "6f1c2b1a-0d6e-4a9e-9d53-5a7f0f6f1a01"
	burstable  = "9b8de3f4-3c1b-4a57-8f4e-2f6a1a3f7c02"
	bestEffort = "c2b9f6a0-7f43-4f0e-bb65-1f0f2a9d8e03"
	static     = "0d1f2e3c4b5a69788796a5b4c3d2e1f0"
)

// openRecording writes a recorded host to disk and detects its cgroups.
func openRecording(t *testing.T, name string) (*hostrecording.Recorder, string, Layout, *Tree) {
	t.Helper()

	rec := hostrecording.ForTest(t, name)
	layout, err := Detect(host.Root(rec.Dir))
	if err != nil {
		t.Fatal(err)
	}

	tree := NewTree(layout, &host.Reader{})
	t.Cleanup(tree.Close)
	return rec, rec.Dir, layout, tree
}

func readPods(t *testing.T, tree *Tree) map[string]*PodGroup {
	t.Helper()

	if err := tree.Scan(); err != nil {
		t.Fatal(err)
	}

	if err := tree.Read(CPU|Quota|Memory|Pressure, CPU|Quota|Memory); err != nil {
		t.Fatal(err)
	}

	pods := map[string]*PodGroup{}
	for _, p := range tree.Pods() {
		pods[p.UID] = p
	}

	return pods
}

func TestDetect(t *testing.T) {
	for name, want := range map[string]Layout{
		"hybrid-cgroupfs":       {Version: Hybrid, Driver: CgroupFS, Pods: "kubepods"},
		"v2-systemd-containerd": {Version: V2, Driver: Systemd, Pods: "kubepods.slice"},
		"v2-systemd-crio":       {Version: V2, Driver: Systemd, Pods: "kubepods.slice"},

		"v1-cgroupfs-containerd": {Version: V1, Driver: CgroupFS, Pods: "kubepods"},
		"v1-cgroupfs-crio":       {Version: V1, Driver: CgroupFS, Pods: "kubepods"},
		"v1-systemd-containerd":  {Version: V1, Driver: Systemd, Pods: "kubepods.slice"},
		"v1-systemd-crio":        {Version: V1, Driver: Systemd, Pods: "kubepods.slice"},
		"v2-cgroupfs-crio":       {Version: V2, Driver: CgroupFS, Pods: "kubepods"},
	} {
		_, _, got, _ := openRecording(t, name)
		if got.Version != want.Version || got.Driver != want.Driver || got.Pods != want.Pods || got.MissingReason("cpu") != "" || got.MissingReason("memory") != "" {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
}

func TestDetectOthers(t *testing.T) {
	dir := t.TempDir()
	if _, err := Detect(host.Root(dir)); !errors.Is(err, ErrNoCgroups) {
		t.Errorf("an empty host: %v", err)
	}

	for _, d := range []string{"cpu,cpuacct/kubelet/kubepods", "memory"} {
		if err := os.MkdirAll(filepath.Join(dir, mountPoint, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}

	l, err := Detect(host.Root(dir))
	if err != nil || l.Version != V1 || l.cpu != l.cpuacct || l.Pods != "kubelet/kubepods" || l.Driver != CgroupFS || l.unified != "" {
		t.Errorf("Detect with controllers mounted together = %+v, %v, want v1 with kubelet/kubepods", l, err)
	}

	// v2 is mounted, but its controllers are disabled or on v1.
	dir = t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, mountPoint), 0o755); err != nil {
		t.Fatal(err)
	}

	if err := os.WriteFile(filepath.Join(dir, mountPoint, "cgroup.controllers"), []byte("hugetlb\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	if l, err = Detect(host.Root(dir)); err != nil || l.MissingReason("cpu") == "" || l.MissingReason("memory") == "" || l.Pods != "" {
		t.Errorf("Detect of v2 without controllers = %+v, %v, want reasons for missing CPU and memory and no pods", l, err)
	}
}

// TestPods checks the group names of all drivers and runtimes (gocrane found no pods with systemd and no containers of CRI-O).
func TestPods(t *testing.T) {
	for _, name := range hostrecording.Names() {
		runtime := "containerd"
		if strings.HasSuffix(name, "crio") {
			runtime = "cri-o"
		}

		t.Run(name, func(t *testing.T) {
			_, _, _, tree := openRecording(t, name)
			pods := readPods(t, tree)

			want := map[string]Class{guaranteed: Guaranteed, burstable: Burstable, bestEffort: BestEffort}
			if strings.HasPrefix(name, "v2") {
				want[static] = Burstable
			}
			if len(pods) != len(want) {
				t.Errorf("%d pods, want %d", len(pods), len(want))
			}

			containers := map[string]int{guaranteed: 2, burstable: 1, bestEffort: 1, static: 1}
			for uid, class := range want {
				p := pods[uid]
				if p == nil || p.Class != class || len(p.Containers) != containers[uid] {
					t.Fatalf("%s: %+v, want class %s with %d containers", uid, p, class, containers[uid])
				}

				for _, c := range p.Containers {
					if c.Runtime != runtime || len(c.ID) != idLength {
						t.Errorf("container %+v, want one of %s", c, runtime)
					}
				}
			}

			p := pods[guaranteed]
			if p.Stat.Limit.Unlimited() || p.Stat.Limit.Cores() != 0.5 || !pods[bestEffort].Stat.Limit.Unlimited() {
				t.Errorf("limits %+v and %+v, want half a core and none", p.Stat.Limit, pods[bestEffort].Stat.Limit)
			}

			parts := CPU | Quota | Memory | Pressure
			if strings.HasPrefix(name, "v1") {
				parts &^= Pressure // only in a v2 tree
			}
			if p.Stat.Has != parts || p.Stat.Throttled == 0 || p.Stat.ThrottledTime == 0 || p.Stat.WorkingSet <= 0 || p.Stat.WorkingSet > p.Stat.Used {
				t.Errorf("the pod has %+v, want parts %b, throttled time and a working set within the use", p.Stat, parts)
			}
			if p.Stat.Has&Pressure != 0 && p.Stat.Stalled.CPU.Some.Total == 0 {
				t.Errorf("stall times are %+v, want time stalled for CPU", p.Stat.Stalled)
			}
		})
	}
}

// TestHigh checks that only v2 has memory.high, and that invalid content is an error.
func TestHigh(t *testing.T) {
	rec, _, _, tree := openRecording(t, "v2-systemd-containerd")
	readPods(t, tree)

	file := ""
	for path := range rec.Moments[0].Files {
		if strings.Contains(path, "besteffort-pod") && strings.HasSuffix(path, ".scope/memory.high") {
			file = filepath.Join(rec.Dir, path)
		}
	}

	for content, want := range map[string]struct {
		high units.Bytes
		has  bool
	}{"max\n": {math.MaxInt64, true}, "104857600\n": {100 << 20, true}, "104": {0, false}, "-1\n": {0, false}, "\n": {0, false}} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}

		err := tree.Read(0, High)
		s := findPod(tree, bestEffort).Containers[0].Stat
		if (s.Has&High != 0) != want.has || want.has && (s.High != want.high || err != nil) || !want.has && err == nil {
			t.Errorf("memory.high %q: read %+v, %v, want %d, valid %t", content, s, err, want.high, want.has)
		}
	}

	_, _, _, old := openRecording(t, "hybrid-cgroupfs")
	readPods(t, old)

	if err := old.Read(0, High); err != nil || findPod(old, bestEffort).Containers[0].Stat.Has != 0 {
		t.Errorf("v1: %v", err)
	}
}

func findPod(tree *Tree, uid string) *PodGroup {
	for _, p := range tree.Pods() {
		if p.UID == uid {
			return p
		}
	}

	return nil
}

// TestRates checks that v1 (nanoseconds) and v2 (microseconds) yield the same units.
func TestRates(t *testing.T) {
	for name, want := range map[string]struct{ cores, tolerance float64 }{
		"hybrid-cgroupfs": {0.5, 0.05}, "v1-systemd-crio": {0.5, 0.05}, "v2-systemd-containerd": {0.5, 1e-9}, "v2-cgroupfs-crio": {0.5, 1e-9},
	} {
		rec, _, _, tree := openRecording(t, name)
		before := readPods(t, tree)[guaranteed].Stat
		rec.To(1)
		after := readPods(t, tree)[guaranteed].Stat

		cores := float64(after.CPUTime-before.CPUTime) / float64(rec.Moments[1].At)
		if math.Abs(cores-want.cores) > want.tolerance {
			t.Errorf("%s: %g cores, want %g", name, cores, want.cores)
		}
		if after.Periods <= before.Periods || after.Throttled <= before.Throttled {
			t.Errorf("%s: periods %d to %d, throttled %d to %d, want both to grow", name, before.Periods, after.Periods, before.Throttled, after.Throttled)
		}
	}
}

// TestVanish checks that a pod that vanishes between list and read is no error, and that the next scan drops it with its files.
func TestVanish(t *testing.T) {
	_, dir, layout, tree := openRecording(t, "v2-systemd-containerd")
	pods := readPods(t, tree)
	if err := os.RemoveAll(filepath.Join(dir, mountPoint, pods[bestEffort].Path)); err != nil {
		t.Fatal(err)
	}

	gone := pods[bestEffort]
	gone.group.close() // Unlike cgroup files, deleted plain files stay readable while open.

	if err := tree.Read(CPU|Memory, 0); err != nil {
		t.Errorf("reading a pod that vanished: %v", err)
	}
	if gone.Stat.Has != 0 {
		t.Errorf("a removed pod has %+v, want no values", gone.Stat)
	}
	if pods = readPods(t, tree); pods[bestEffort] != nil || len(pods) != 3 {
		t.Errorf("%d pods, want 3", len(pods))
	}

	// A new pod appears.
	path := filepath.Join(dir, mountPoint, layout.Pods, "kubepods-pod11111111_2222_3333_4444_555555555555.slice")
	if err := os.MkdirAll(path, 0o755); err != nil {
		t.Fatal(err)
	}

	if pods = readPods(t, tree); pods["11111111-2222-3333-4444-555555555555"] == nil || pods["11111111-2222-3333-4444-555555555555"].Stat.Has != 0 {
		t.Errorf("pods are %+v, want the new one without values", pods)
	}
}

// TestBadFiles checks that an invalid file affects its own part only.
func TestBadFiles(t *testing.T) {
	_, dir, _, tree := openRecording(t, "v2-systemd-containerd")
	pod := readPods(t, tree)[guaranteed]
	const all = CPU | Quota | Memory | Pressure
	for name, lost := range map[string]Part{"cpu.stat": CPU, "cpu.max": Quota, "memory.current": Memory, "memory.stat": Memory, "io.pressure": Pressure} {
		file := filepath.Join(dir, mountPoint, pod.Path, name)
		good, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}

		for _, content := range []string{"", "usage_usec 12", "nonsense\n", "\x00\xff\n", string(good)} {
			if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}

			want := all &^ lost
			fails := true
			if content == string(good) {
				want = all
				fails = false
			}

			if err := tree.Read(all, 0); (err != nil) != fails || fails && !strings.Contains(err.Error(), name) || pod.Stat.Has != want {
				t.Errorf("%s = %q: has %b, want %b; %v", name, content, pod.Stat.Has, want, err)
			}
		}
	}
}

func TestParseCPUMax(t *testing.T) {
	for text, want := range map[string]Bandwidth{
		"max 100000\n":   {-1, 100 * time.Millisecond},
		"50000 100000\n": {50 * time.Millisecond, 100 * time.Millisecond},
	} {
		if got, err := ParseCPUMax([]byte(text)); err != nil || got != want {
			t.Errorf("ParseCPUMax(%q) = %+v, %v, want %+v", text, got, err, want)
		}
	}

	for _, bad := range []string{"", "max\n", "max 0\n", "-1 100000\n", "50000 max\n", "50000 100000"} {
		if got, err := ParseCPUMax([]byte(bad)); err == nil {
			t.Errorf("ParseCPUMax(%q) = %+v, want an error", bad, got)
		}
	}
}

func FuzzNames(f *testing.F) {
	for _, seed := range []string{
		"pod" + guaranteed, "kubepods-burstable-pod9b8de3f4_3c1b_4a57_8f4e_2f6a1a3f7c02.slice", "kubepods-pod.slice", "-pod-pod.slice",
		"cri-containerd-" + strings.Repeat("a", 64) + ".scope", "crio-conmon-" + strings.Repeat("a", 64) + ".scope", strings.Repeat("0", 64), "pod../../x", ".scope",
	} {
		f.Add(seed)
	}

	f.Fuzz(func(t *testing.T, name string) {
		for _, d := range []Driver{CgroupFS, Systemd} {
			if uid := parsePodUID([]byte(name), d); uid != nil && (len(uid) == 0 || strings.ContainsAny(string(uid), "/_ \n")) {
				t.Errorf("parsePodUID(%q) = %q, want a UID without separators", name, uid)
			}

			runtime, id := parseContainerID([]byte(name), d)
			if (runtime == "") != (id == nil) || id != nil && len(id) != idLength {
				t.Errorf("parseContainerID(%q) = %q, %q, want a runtime with an ID of %d bytes, or neither", name, runtime, id, idLength)
			}
		}
	})
}

// TestSharedMemory checks that shared memory is read of both versions, of v1 including child groups.
func TestSharedMemory(t *testing.T) {
	for version, content := range map[Version]string{
		V1: "shmem 1\ntotal_cache 30\ntotal_rss 20\ntotal_shmem 10\ntotal_inactive_file 5\n",
		V2: "anon 20\nfile 30\nshmem 10\ninactive_file 5\n",
	} {
		var s Stat
		if _, err := parseMemoryStat([]byte(content), version, &s); err != nil || s.Shared != 10 || s.RSS != 20 || s.Cache != 30 {
			t.Errorf("%s: parseMemoryStat = %+v, %v, want 10 shared, 20 RSS and 30 cache", version, s, err)
		}
	}
}

// FuzzStat checks that parsed values are within their ranges for any content.
func FuzzStat(f *testing.F) {
	for _, seed := range []string{"usage_usec 5\nnr_periods 1\n", "max 100000\n", "-1\n", "anon 1\nfile 2\ninactive_file 3\n", "total_rss 1\ntotal_cache 2\ntotal_inactive_file 9\n", "18446744073709551615\n"} {
		f.Add([]byte(seed))
	}

	f.Fuzz(func(t *testing.T, content []byte) {
		for _, v := range []Version{V1, V2} {
			var s Stat
			if err := parseCPUStat(content, v, &s); err == nil && (s.CPUTime < 0 || s.ThrottledTime < 0) {
				t.Errorf("parseCPUStat = %+v, want no negative time", s)
			}
			if _, err := parseMemoryStat(content, v, &s); err == nil && (s.RSS < 0 || s.Cache < 0) {
				t.Errorf("parseMemoryStat = %+v, want no negative amount", s)
			}
		}

		if b, err := ParseCPUMax(content); err == nil && (b.Period <= 0 || !b.Unlimited() && b.Quota < 0) {
			t.Errorf("ParseCPUMax = %+v, want a positive period and quota", b)
		}
		if q, err := parseQuotaV1(content); err == nil && q < -1 {
			t.Errorf("parseQuotaV1 = %d, want at least -1", q)
		}
	})
}
