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
			t.Errorf("percentile %g is %d, want %d", p, got, want)
		}
	}

	if got := percentile([]int64{}, 0.5); got != 0 {
		t.Errorf("of nothing: %d", got)
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
				t.Errorf("%s: report %+v, %v", connect, r, err)
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
		t.Errorf("without a server: %+v, %v", r, err)
	}
}

func TestCgroups(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "a", "cpu.max")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}

	if err := cgroups([]string{"write", file, "1"}, io.Discard); err == nil {
		t.Error("a missing file was created")
	}
	if err := os.WriteFile(file, []byte("max 100000\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	var out bytes.Buffer
	if err := cgroups([]string{"read", file, file}, &out); err != nil || out.String() != "max 100000\nmax 100000\n" {
		t.Errorf("read %q, %v", out.String(), err)
	}

	out.Reset()
	if err := cgroups([]string{"walk", dir, "cpu.max"}, &out); err != nil || out.String() != "{\"/a/cpu.max\":\"max 100000\"}\n" {
		t.Errorf("walked %q, %v", out.String(), err)
	}

	out.Reset()
	if err := cgroups([]string{"copy", dir, "cpu.max"}, &out); err != nil || out.String() != "{\"/a/cpu.max\":\"max 100000\\n\"}\n" {
		t.Errorf("copied %q, %v", out.String(), err)
	}

	out.Reset()
	if err := cgroups([]string{"dump", file}, &out); err != nil || out.String() != fmt.Sprintf("{%q:\"max 100000\\n\"}\n", file) {
		t.Errorf("dumped %q, %v", out.String(), err)
	}

	for _, args := range [][]string{nil, {"stay", "x"}, {"read"}, {"write", file}, {"dump"}, {"copy", dir}, {"in", dir}, {"dance"}} {
		if err := cgroups(args, io.Discard); err == nil {
			t.Errorf("%q is no error", args)
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
			t.Fatalf("report %q before the start", l)
		default:
		}

		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	select {
	case l := <-line:
		if l != "{\"mib\":1}\n" {
			t.Errorf("report %q", l)
		}
	case err := <-ended:
		t.Fatal(err)
	case <-time.After(time.Minute):
		t.Fatal("no report within a minute")
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
		t.Error("a missing switch file is on")
	}

	for content, want := range map[string]bool{"": false, "0": false, "1": true, "1\n": true} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}

		if got := switchedOn(file); got != want {
			t.Errorf("%q is on: %t", content, got)
		}
	}

	h := hog{threads: 2}
	for _, on := range []bool{false, true, true, false, false, true} {
		h.set(on)
		if busy := h.end != nil; busy != on {
			t.Errorf("busy: %t, want %t", busy, on)
		}
	}

	h.stop()
}

func TestUnknownProgram(t *testing.T) {
	if err := Run("nothing", nil); err == nil {
		t.Error("no error")
	}

	for _, bad := range [][]string{{"-threads", "0"}, {"-every", "0s"}} {
		if err := hogCPU(bad, io.Discard); err == nil {
			t.Errorf("cpu-hog %q is no error", bad)
		}
	}

	if err := hogMemory([]string{"-mib", "0"}, io.Discard); err == nil {
		t.Error("memory-hog of nothing is no error")
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

	if info, err := os.Stat(file); err != nil || info.Size() != 2<<20 || len(take.held) > 0 {
		t.Errorf("%v, %v; %d blocks are held", info, err, len(take.held))
	}
}
