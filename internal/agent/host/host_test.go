// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"crane.io/crane/pkg/numa"
	"crane.io/crane/pkg/units"
)

func TestParsePressure(t *testing.T) {
	const good = "some avg10=73.67 avg60=57.83 avg300=46.00 total=7580141393\nfull avg10=0.50 avg60=0.00 avg300=0.00 total=12\n"
	p, err := ParsePressure([]byte(good))
	want := Pressure{Some: Stall{73.67, 57.83, 7580141393 * time.Microsecond}, Full: Stall{0.5, 0, 12 * time.Microsecond}}
	if err != nil || math.Abs(p.Some.Avg10-73.67) > 1e-9 || math.Abs(p.Some.Avg60-57.83) > 1e-9 || p.Some.Total != want.Some.Total || p.Full != want.Full {
		t.Errorf("%+v, %v; want %+v", p, err, want)
	}

	// Older kernels have no line "full" for CPU.
	some, _, _ := strings.Cut(good, "full")
	if p, err := ParsePressure([]byte(some)); err != nil || p.Full != (Stall{}) {
		t.Errorf("ParsePressure without full = %+v, %v, want no full stall", p, err)
	}

	for _, bad := range []string{
		"", good[:len(good)-1], "full avg10=0.00 avg60=0.00 avg300=0.00 total=0\n", "some avg10=x avg60=0 avg300=0 total=0\n",
		"some avg10=1 avg60=0 total=\n", "some avg10=1 total=4\n", "some avg10=-1 avg60=0 total=0\n", "some avg10=1e3 avg60=0 total=0\n", "some avg10=250 avg60=0 total=0\n",
	} {
		if p, err := ParsePressure([]byte(bad)); err == nil {
			t.Errorf("ParsePressure(%q) = %+v, want an error", bad, p)
		}
	}
}

func TestParseStat(t *testing.T) {
	got, err := ParseStat([]byte("cpu  10 20 30 400 50 1 2 3 4 5\ncpu0 5 10 15 200 25 0 1 1 2 2\ncpu1 5 10 15 200 25 1 1 2 2 3\nintr 1 2\n"))
	// user and nice include guest times (4, 5); iowait (50) is idle.
	if want := (CPUTimes{Busy: 10 + 20 + 30 + 1 + 2 + 3, Idle: 450, CPUs: 2}); err != nil || got != want {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}

	for _, bad := range []string{"", "cpu 1 2 3 4\n", "cpu0 1 2 3 4\n", "cpu 1 2 3\ncpu0 1\n", "cpu 1 -2 3 4\ncpu0 1\n", "cpu 1 2 3 4\ncpu0 1"} {
		if got, err := ParseStat([]byte(bad)); err == nil {
			t.Errorf("ParseStat(%q) = %+v, want an error", bad, got)
		}
	}
}

func TestParseMeminfo(t *testing.T) {
	got, err := ParseMeminfo([]byte("MemTotal:       24684096 kB\nMemFree: 1 kB\nMemAvailable:   22707160 kB\n"))
	if want := (Memory{24684096 << 10, 22707160 << 10, 0}); err != nil || got != want {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}

	// Pages that are also in memory, and counts that were not read at the same time.
	for text, want := range map[string]units.Bytes{
		"SwapCached: 30 kB\nSwapTotal: 1000 kB\nSwapFree: 600 kB\n": 370 << 10,
		"SwapCached: 0 kB\nSwapTotal: 1000 kB\nSwapFree: 1000 kB\n": 0,
		"SwapCached: 9 kB\nSwapTotal: 1000 kB\nSwapFree: 996 kB\n":  0,
	} {
		if got, err := ParseMeminfo([]byte("MemTotal: 5 kB\nMemAvailable: 4 kB\n" + text)); err != nil || got != (Memory{5 << 10, 4 << 10, want}) {
			t.Errorf("%q is read as %+v, %v; want %d in swap", text, got, err, want)
		}
	}

	for _, bad := range []string{"", "MemTotal: 5 kB\n", "MemAvailable: 5 kB\n", "MemTotal: 0 kB\nMemAvailable: 0 kB\n", "MemTotal: x kB\nMemAvailable: 1 kB\n", "MemTotal: 5 kB\nMemAvailable: 4 kB\nSwapTotal: x kB\n", "MemTotal: 99999999999999999 kB\nMemAvailable: 1 kB\n"} {
		if got, err := ParseMeminfo([]byte(bad)); err == nil {
			t.Errorf("ParseMeminfo(%q) = %+v, want an error", bad, got)
		}
	}
}

func TestParseLoadavg(t *testing.T) {
	if got, err := ParseLoadavg([]byte("3.57 3.05 2.00 7/118 7830\n")); err != nil || math.Abs(got[0]-3.57) > 1e-9 || got[2] != 2 {
		t.Errorf("ParseLoadavg = %v, %v, want 3.57 and 2 as first and last", got, err)
	}

	for _, bad := range []string{"", "1 2\n", "a b c\n", "1 2 3"} {
		if got, err := ParseLoadavg([]byte(bad)); err == nil {
			t.Errorf("ParseLoadavg(%q) = %v, want an error", bad, got)
		}
	}
}

func TestParseDevices(t *testing.T) {
	disks := map[string]Disk{}
	err := ParseDiskstats([]byte(" 254       0 vda 10 1 200 3 40 5 600 7 0 800 9 1 2 3 4\n"), func(name []byte, d Disk) { disks[string(name)] = d })
	if want := (Disk{Reads: 10, Writes: 40, ReadBytes: 200 * 512, WriteBytes: 600 * 512, Busy: 800 * time.Millisecond}); err != nil || disks["vda"] != want {
		t.Errorf("%+v, %v; want %+v", disks, err, want)
	}

	interfaces := map[string]Interface{}
	err = ParseNetDev([]byte("Inter-| Receive | Transmit\n face |bytes\n  eth0:532 31 1 2 0 0 0 0 251 23 0 4 0 0 0 0\n eth0:1: 1 2 3 4 5 6 7 8 9 10 11 12 13\n"),
		func(name []byte, i Interface) { interfaces[string(name)] = i })

	if want := (Interface{532, 251, 31, 23, 2, 4}); err != nil || interfaces["eth0"] != want || interfaces["eth0:1"].SentBytes != 9 {
		t.Errorf("%+v, %v; want %+v", interfaces, err, want)
	}

	for _, bad := range []string{"1 1 sda 1 2 3\n", "1 1 sda 1 2 3 4 5 6 7 8 9 x\n", "1 1 sda 1 2"} {
		if err := ParseDiskstats([]byte(bad), func([]byte, Disk) {}); err == nil {
			t.Errorf("ParseDiskstats(%q) = nil, want an error", bad)
		}
	}

	for _, bad := range []string{"", "a\n", "a\nb\neth0 1 2\n", "a\nb\neth0: 1 2\n"} {
		if err := ParseNetDev([]byte(bad), func([]byte, Interface) {}); err == nil {
			t.Errorf("ParseNetDev(%q) = nil, want an error", bad)
		}
	}
}

func TestNumbers(t *testing.T) {
	for text, want := range map[string]uint64{"0": 0, "18446744073709551615": math.MaxUint64, "007": 7} {
		if got, err := Uint([]byte(text)); err != nil || got != want {
			t.Errorf("Uint(%s) = %d, %v, want %d", text, got, err, want)
		}
	}

	for _, bad := range []string{"", "18446744073709551616", "-1", "+1", "1 ", "0x1", "max"} {
		if got, err := Uint([]byte(bad)); err == nil {
			t.Errorf("Uint(%q) = %d, want an error", bad, got)
		}
	}

	for text, want := range map[string]int64{"-1": -1, "5": 5} {
		if got, err := Int([]byte(text)); err != nil || got != want {
			t.Errorf("Int(%s) = %d, %v, want %d", text, got, err, want)
		}
	}

	for _, bad := range []string{"", "-", "--1", "9223372036854775808"} {
		if got, err := Int([]byte(bad)); err == nil {
			t.Errorf("Int(%q) = %d, want an error", bad, got)
		}
	}
}

func TestParseSchedStat(t *testing.T) {
	if got, err := ParseSchedStat([]byte("1000 2000 3\n")); err != nil || got != (SchedStat{RunTime: 1000, WaitTime: 2000, Timeslices: 3}) {
		t.Errorf("ParseSchedStat = %+v, %v, want 1000, 2000 and 3", got, err)
	}

	for _, bad := range []string{"", "1 2\n", "1 2 3", "1 -2 3\n", "0 0 0\n", "a b c\n"} {
		if got, err := ParseSchedStat([]byte(bad)); err == nil {
			t.Errorf("ParseSchedStat(%q) = %+v, want an error", bad, got)
		}
	}

	var threads []uint64
	each := func(n uint64) { threads = append(threads, n) }
	if err := ParseThreads([]byte("12\n0\n7\n"), each); err != nil || len(threads) != 3 || threads[1] != 0 {
		t.Errorf("ParseThreads = %v, %v, want 12, 0 and 7", threads, err)
	}
	if err := ParseThreads(nil, each); err != nil {
		t.Errorf("a group without threads: %v", err)
	}

	for _, bad := range []string{"12", "x\n", "-1\n"} {
		if err := ParseThreads([]byte(bad), each); err == nil {
			t.Errorf("ParseThreads(%q) = nil, want an error", bad)
		}
	}
}

func TestParseZone(t *testing.T) {
	got, err := ParseZoneMeminfo([]byte("Node 0 MemTotal: 100 kB\nNode 0 MemFree: 10 kB\nNode 0 FilePages: 50 kB\nNode 0 Shmem: 60 kB\nNode 0 HugePages_Total: 0\n"))
	if err != nil || got != (ZoneMemory{Total: 100 << 10, Free: 10 << 10}) || got.Used() != 90<<10 {
		t.Errorf("ParseZoneMeminfo = %+v, %v, want 100 KiB, 10 KiB free and no page cache", got, err)
	}

	for _, bad := range []string{"", "Node 0 MemTotal: 100 kB\n", "Node 0 MemTotal: x kB\nNode 0 MemFree: 1 kB\n", "Node 0 MemTotal: 1 kB\nNode 0 MemFree: 1 kB"} {
		if got, err := ParseZoneMeminfo([]byte(bad)); err == nil {
			t.Errorf("ParseZoneMeminfo(%q) = %+v, want an error", bad, got)
		}
	}
}

func TestParseStatCPUs(t *testing.T) {
	got := map[int][2]uint64{}
	each := func(cpu int, busy, idle uint64) { got[cpu] = [2]uint64{busy, idle} }

	err := ParseStatCPUs([]byte("cpu 1 2 3 4\ncpu0 10 20 30 400 50 1 2 3\ncpu17 1 1 1 1\nintr 5\n"), each)
	if err != nil || len(got) != 2 || got[0] != [2]uint64{66, 450} || got[17] != [2]uint64{3, 1} {
		t.Errorf("ParseStatCPUs = %v, %v, want the ticks of CPUs 0 and 17", got, err)
	}

	for _, bad := range []string{"", "cpux 1 2 3 4\n", "cpu9999 1 2 3 4\n", "cpu0 1 2 3\n", "cpu0 1 2 3 4"} {
		if err := ParseStatCPUs([]byte(bad), each); err == nil {
			t.Errorf("ParseStatCPUs(%q) = nil, want an error", bad)
		}
	}
}

func TestReader(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	write := func(content string) {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	var r Reader
	f := NewFile(path)
	defer f.Close()

	if _, err := r.Read(&f); !errors.Is(err, ErrGone) {
		t.Errorf("a file that is not there: %v", err)
	}

	for _, content := range []string{"one\n", "two\n", strings.Repeat("x", 3*initialBufferBytes), ""} {
		write(content)
		if got, err := r.Read(&f); err != nil || string(got) != content {
			t.Errorf("%d bytes, %v; want %d", len(got), err, len(content))
		}
	}

	write("1 2 3\n")
	if allocations := testing.AllocsPerRun(100, func() {
		if _, err := r.Read(&f); err != nil {
			t.Error(err)
		}
	}); allocations > 0 {
		t.Errorf("Read of an open file allocates %g times, want 0", allocations)
	}

	write(strings.Repeat("x", maxFileBytes+1))
	if _, err := r.Read(&f); err == nil {
		t.Errorf("Read of more than %d bytes = nil, want an error", maxFileBytes)
	}
}

// TestEndedProcess checks that an open file of an ended process is reported as gone.
func TestEndedProcess(t *testing.T) {
	child := exec.CommandContext(t.Context(), "sleep", "60")
	if err := child.Start(); err != nil {
		t.Skip("no process can be started: ", err)
	}

	var r Reader
	f := NewSchedStatFile("/", uint64(child.Process.Pid))
	defer f.Close()

	_, before := r.Read(&f)
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}

	_ = child.Wait() // It was killed.
	if before != nil {
		t.Skip("no schedstat: ", before)
	}

	if _, err := r.Read(&f); !errors.Is(err, ErrGone) {
		t.Errorf("%v, want %v", err, ErrGone)
	}

	// Other errors do not mean gone.
	dir := NewFile(t.TempDir())
	if _, err := r.Read(&dir); err == nil || errors.Is(err, ErrGone) {
		t.Errorf("a directory: %v", err)
	}
}

// TestThisHost reads the files of this machine.
func TestThisHost(t *testing.T) {
	if _, err := os.Stat("/proc/stat"); err != nil {
		t.Skip("no /proc: ", err)
	}

	var r Reader
	for name, parse := range map[string]func([]byte) error{
		"stat":      func(b []byte) error { _, err := ParseStat(b); return err },
		"meminfo":   func(b []byte) error { _, err := ParseMeminfo(b); return err },
		"loadavg":   func(b []byte) error { _, err := ParseLoadavg(b); return err },
		"diskstats": func(b []byte) error { return ParseDiskstats(b, func([]byte, Disk) {}) },
		"net/dev":   func(b []byte) error { return ParseNetDev(b, func([]byte, Interface) {}) },
	} {
		f := NewFile(Root("/").Path("proc", name))
		content, err := r.Read(&f)
		if err == nil {
			err = parse(content)
		}
		if err != nil {
			t.Errorf("parsing this host's %s: %v", name, err)
		}

		f.Close()
	}
}

// FuzzParsers checks that parsers return an error or numbers within their ranges for any content.
func FuzzParsers(f *testing.F) {
	for _, seed := range []string{
		"some avg10=73.67 avg60=57.83 avg300=46.00 total=7580141393\nfull avg10=0 avg60=0 avg300=0 total=0\n",
		"cpu  10 20 30 400 50 1 2 3 4 5\ncpu0 5 10 15 200 25 0 1 1 2 2\n", "MemTotal: 5 kB\nMemAvailable: 9 kB\n", "3.57 3.05 2.00 7/118 7830\n",
		" 254 0 vda 10 1 200 3 40 5 600 7 0 800 9 1 2 3 4\n", "a\nb\n eth0: 1 2 3 4 5 6 7 8 9 10 11 12 13\n", "max\n", "12\n", "\n", "nr_periods 5\n",
		"1000 2000 3\n", "Node 0 MemTotal: 100 kB\nNode 0 MemFree: 10 kB\nNode 0 FilePages: 50 kB\nNode 0 Shmem: 60 kB\n",
	} {
		f.Add([]byte(seed))
	}

	f.Fuzz(func(t *testing.T, content []byte) {
		if p, err := ParsePressure(content); err == nil {
			for _, v := range []float64{p.Some.Avg10, p.Some.Avg60, p.Full.Avg10, p.Full.Avg60} {
				if !(v >= 0 && v <= 100) {
					t.Errorf("ParsePressure has a share of %v, want 0 to 100", v)
				}
			}

			if p.Some.Total < 0 || p.Full.Total < 0 {
				t.Errorf("ParsePressure = %v, want no negative time", p)
			}
		}

		if c, err := ParseStat(content); err == nil && c.CPUs < 1 {
			t.Error("ParseStat has no CPU, want at least one")
		}
		if m, err := ParseMeminfo(content); err == nil && (m.Available < 0 || m.Available > m.Total || m.Total <= 0 || m.SwappedOut < 0) {
			t.Errorf("ParseMeminfo = %+v, want amounts from 0 to the total", m)
		}
		if l, err := ParseLoadavg(content); err == nil && !(l[0] >= 0 && !math.IsInf(l[0], 0)) {
			t.Errorf("ParseLoadavg = %v, want finite numbers", l)
		}

		_ = ParseDiskstats(content, func(_ []byte, d Disk) {
			if d.Busy < 0 {
				t.Errorf("ParseDiskstats has %+v, want no negative time", d)
			}
		})

		_ = ParseNetDev(content, func([]byte, Interface) {})
		_ = ParseKeyValues(content, func([]byte, uint64) {})

		if s, err := ParseSchedStat(content); err == nil && (s.RunTime < 0 || s.WaitTime < 0) {
			t.Errorf("ParseSchedStat = %+v, want no negative time", s)
		}
		if z, err := ParseZoneMeminfo(content); err == nil && (z.Used() < 0 || z.Free > z.Total || z.PageCache < 0) {
			t.Errorf("ParseZoneMeminfo = %+v, want amounts from 0 to the total", z)
		}

		_ = ParseStatCPUs(content, func(cpu int, _, _ uint64) {
			if cpu < 0 || cpu > numa.MaxCPU {
				t.Errorf("ParseStatCPUs has CPU %d, want 0 to %d", cpu, numa.MaxCPU)
			}
		})

		_ = ParseThreads(content, func(uint64) {})
		if n, err := ParseSingle(content); err == nil && len(content) > 200 && n == 0 && !strings.HasPrefix(string(content), "0") {
			t.Errorf("ParseSingle(%q) = 0, want an error", content)
		}
	})
}
