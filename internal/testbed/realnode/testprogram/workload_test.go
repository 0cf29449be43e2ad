// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package testprogram

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

func TestPercentile(t *testing.T) {
	values := []int64{5, 1, 4, 2, 3}
	for p, want := range map[float64]int64{0: 1, 0.5: 3, 0.99: 5, 1: 5} {
		if got := percentile(values, p); got != want {
			t.Errorf("percentile(%g) = %d, want %d", p, got, want)
		}
	}

	if got := percentile([]int64{}, 0.5); got != 0 {
		t.Errorf("percentile of no values = %d, want 0", got)
	}
}

func TestLatencyOfAServer(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()

	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}

			go answer(connection, 10)
		}
	}()

	for _, connect := range []string{"-connect=false", "-connect=true"} {
		var out bytes.Buffer
		args := []string{"-target", listener.Addr().String(), "-rate", "200", "-period", "100ms", "-reports", "2", connect}
		if err := measureLatency(args, &out); err != nil {
			t.Fatal(err)
		}

		lines := json.NewDecoder(&out)
		for range 2 {
			var r latencyReport
			if err := lines.Decode(&r); err != nil || r.Requests == 0 || r.Errors != 0 || r.P50 > r.P99 || r.P99 > r.Max {
				t.Errorf("report with %s = %+v, error %v; want requests without errors and ordered percentiles", connect, r, err)
			}
		}
	}
}

func TestLatencyCountsErrors(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	unused := listener.Addr().String()
	listener.Close()

	var out bytes.Buffer
	if err := measureLatency([]string{"-target", unused, "-rate", "100", "-period", "50ms", "-reports", "1"}, &out); err != nil {
		t.Fatal(err)
	}

	var r latencyReport
	if err := json.Unmarshal(out.Bytes(), &r); err != nil || r.Requests == 0 || r.Errors != r.Requests {
		t.Errorf("report without a server = %+v, error %v; want only errors", r, err)
	}
}

func TestCgroups(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "a", "cpu.max")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}

	if err := cgroups([]string{"write", file, "1"}, io.Discard); err == nil {
		t.Error("cgroups write to a missing file: no error, want one")
	}
	if err := os.WriteFile(file, []byte("max 100000\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	var out bytes.Buffer
	if err := cgroups([]string{"read", file, file}, &out); err != nil || out.String() != "max 100000\nmax 100000\n" {
		t.Errorf("cgroups read = %q, error %v; want the file twice", out.String(), err)
	}

	out.Reset()
	if err := cgroups([]string{"walk", dir, "cpu.max"}, &out); err != nil || out.String() != "{\"/a/cpu.max\":\"max 100000\"}\n" {
		t.Errorf("cgroups walk = %q, error %v; want the trimmed content by path", out.String(), err)
	}

	out.Reset()
	if err := cgroups([]string{"copy", dir, "cpu.max"}, &out); err != nil || out.String() != "{\"/a/cpu.max\":\"max 100000\\n\"}\n" {
		t.Errorf("cgroups copy = %q, error %v; want the content by path", out.String(), err)
	}

	out.Reset()
	if err := cgroups([]string{"dump", file}, &out); err != nil || out.String() != fmt.Sprintf("{%q:\"max 100000\\n\"}\n", file) {
		t.Errorf("cgroups dump = %q, error %v; want the content by full path", out.String(), err)
	}

	for _, args := range [][]string{nil, {"stay", "x"}, {"read"}, {"write", file}, {"dump"}, {"copy", dir}, {"in", dir}, {"dance"}} {
		if err := cgroups(args, io.Discard); err == nil {
			t.Errorf("cgroups(%q): no error, want one", args)
		}
	}
}

// TestMemoryAfter: a memory hog allocates nothing before the start file has content.
func TestMemoryAfter(t *testing.T) {
	file := filepath.Join(t.TempDir(), "go")
	out, in := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- hogMemory([]string{"-mib", "1", "-step", "1", "-after", file}, in) }()
	line := make(chan string, 1)
	go func() {
		l, _ := bufio.NewReader(out).ReadString('\n')
		line <- l
	}()

	for _, content := range []string{"", "go"} {
		select {
		case l := <-line:
			t.Fatalf("report before the start = %q, want none", l)
		default:
		}

		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	select {
	case l := <-line:
		if l != "{\"mib\":1}\n" {
			t.Errorf("report = %q, want 1 MiB", l)
		}
	case err := <-ended:
		t.Fatal(err)
	case <-time.After(time.Minute):
		t.Fatal("hogMemory has not reported within a minute, want a report of 1 MiB")
	}

	if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}

	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestSwitch: a hog is busy only while its switch is on.
func TestSwitch(t *testing.T) {
	file := filepath.Join(t.TempDir(), "switch")
	if switchedOn(file) {
		t.Error("switchedOn of a missing file = true, want false")
	}

	for content, want := range map[string]bool{"": false, "0": false, "1": true, "1\n": true} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}

		if got := switchedOn(file); got != want {
			t.Errorf("switchedOn of a file with %q = %t, want %t", content, got, want)
		}
	}

	h := hog{threads: 2}
	for _, on := range []bool{false, true, true, false, false, true} {
		h.set(on)
		if busy := h.end != nil; busy != on {
			t.Errorf("busy after set(%t) = %t, want %t", on, busy, on)
		}
	}

	h.stop()
}

func TestUnknownProgram(t *testing.T) {
	if err := Run("nothing", nil); err == nil {
		t.Error("Run(nothing): no error, want one")
	}

	for _, bad := range [][]string{{"-threads", "0"}, {"-every", "0s"}} {
		if err := hogCPU(bad, io.Discard); err == nil {
			t.Errorf("hogCPU(%q): no error, want one", bad)
		}
	}

	if err := hogMemory([]string{"-mib", "0"}, io.Discard); err == nil {
		t.Error("hogMemory of 0 MiB: no error, want one")
	}
}

// TestMemoryOfFiles: a page cache hog writes the reported size to its file.
func TestMemoryOfFiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "cache")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()

	take := &allocator{file: f}
	for range 2 {
		if err := take.block(1 << 20); err != nil {
			t.Fatal(err)
		}
	}

	if info, err := os.Stat(file); err != nil || info.Size() != 2<<20 || len(take.blocks) > 0 {
		t.Errorf("file = %v, error %v, %d blocks in memory; want 2 MiB in the file and no blocks", info, err, len(take.blocks))
	}
}
