// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"crane.io/crane/internal/agent/host"
)

// deviceKind classifies the test devices: 8:0 is a disk, 253:0 stacked on it, 7:0 intermediate.
func deviceKind(device []byte) DeviceKind {
	switch string(device) {
	case "253:0":
		return StackedDevice
	case "7:0":
		return IntermediateDevice
	}

	return WholeDisk
}

func TestParseIOStat(t *testing.T) {
	const line = "8:0 rbytes=4096 wbytes=8192 rios=1 wios=2 dbytes=9 dios=9\n"
	for text, want := range map[string]DiskIO{
		"":          {},
		"8:0 \n":    {},
		line:        {1, 2, 4096, 8192},
		line + line: {2, 4, 8192, 16384},
		// As kernels print devices without statistics: in front of a line, and at the end without a newline.
		"7:0 253:0 " + line:        {1, 2, 4096, 8192},
		"8:16 " + line:             {1, 2, 4096, 8192},
		line + "7:0 253:0 ":        {1, 2, 4096, 8192},
		line + "7:0 ":              {1, 2, 4096, 8192},
		"7:0 ":                     {},
		line + "7:0 \n8:16 253:0 ": {1, 2, 4096, 8192},
		// A bad row discards a row.
		line + "(unknown) rbytes=9 wbytes=9 rios=9 wios=9 dbytes=0 dios=0\n": {1, 2, 4096, 8192},
		"(unknown) rbytes=0 wbytes=0 rios=0 wios=0\n":                        {},
		line + "8:16 rbytes=x wbytes=1 rios=1 wios=1\n":                      {1, 2, 4096, 8192},
		line + "8:16 rbytes=12":                                              {1, 2, 4096, 8192},
		line + "\n":                                                          {1, 2, 4096, 8192},
		// I/O to a stacked device is counted again below it, completely or in part.
		line + "253:0 rbytes=4096 wbytes=8192 rios=1 wios=2 dbytes=0 dios=0\n":    {1, 2, 4096, 8192},
		line + "253:0 rbytes=10000 wbytes=1 rios=7 wios=0 dbytes=0 dios=0\n":      {7, 2, 10000, 8192},
		line + "7:0 rbytes=10000 wbytes=100000 rios=70 wios=70 dbytes=0 dios=0\n": {1, 2, 4096, 8192},
		// Keys of the cost controllers.
		"8:0 rbytes=1 wbytes=0 rios=1 wios=0 dbytes=0 dios=0 cost.vrate=100.00 cost.usage=12\n":                {1, 0, 1, 0},
		"8:0 rbytes=18446744073709551615 rios=1\n8:16 rbytes=18446744073709551615 rios=18446744073709551615\n": {1<<64 - 1, 0, 1<<64 - 1, 0},
	} {
		var s diskIOByKind
		if err := parseIOStat([]byte(text), deviceKind, &s); err != nil || s.total() != want {
			t.Errorf("%q: %+v, %v, want %+v", text, s.total(), err, want)
		}
	}

	for _, bad := range []string{"8:0 rbytes=1", "8 rbytes=1\n", "8:x rbytes=1\n", ":0 rbytes=1\n", "8:0 rbytes=-1\n", "8:0 rbytes=\n", "8:0 wios=18446744073709551616\n", "\n", "\x00\xff\n"} {
		var s diskIOByKind
		if err := parseIOStat([]byte(bad), deviceKind, &s); err == nil {
			t.Errorf("parseIOStat(%q) = %+v, want an error", bad, s)
		}
	}
}

// TestIncompleteDiskIO checks which bad rows leave the sum without the I/O of a device.
func TestIncompleteDiskIO(t *testing.T) {
	const line = "8:0 rbytes=4096 wbytes=8192 rios=1 wios=2 dbytes=9 dios=9\n"
	for text, want := range map[string]bool{
		line: false, line + "7:0 ": false, line + "(unknown) rbytes=9\n": false, line + "\n": false,
		line + "8:16 rbytes=x\n": true, line + "8:16 rbytes=12": true,
	} {
		var s diskIOByKind
		err := parseIOStat([]byte(text), deviceKind, &s)
		if _, incomplete := s.result(); err != nil || (incomplete != nil) != want {
			t.Errorf("parseIOStat(%q) = %v, incomplete: %v, want %t", text, err, incomplete, want)
		}
	}
}

func TestParseServiced(t *testing.T) {
	bytes := func(t *DiskIO) (reads, writes *uint64) { return &t.ReadBytes, &t.WriteBytes }
	for text, want := range map[string]DiskIO{
		"": {}, "Total 0\n": {},
		"8:0 Read 4096\n8:0 Write 1\n8:0 Sync 4097\n8:0 Async 0\n8:0 Discard 5\n8:0 Total 4097\nTotal 4097\n": {ReadBytes: 4096, WriteBytes: 1},
		"8:0 Read 1\n8:0 Write 2\n(unknown) Read 5\n(unknown) Write 5\nTotal 3\n":                             {ReadBytes: 1, WriteBytes: 2},
		"8:0 Read 1\n8:0 Write 2\n Read 5\n Write 5\nTotal 3\n":                                               {ReadBytes: 1, WriteBytes: 2},
		"8:0 Read 1\n8:0 Write x\n8:16 Read 5\nTotal 3\n":                                                     {ReadBytes: 6},
		"8:0 Read 1\n8:16 Read 2\n253:0 Read 3\n7:0 Read 9\nTotal 15\n":                                       {ReadBytes: 3},
	} {
		var s diskIOByKind
		if err := parseServiced([]byte(text), deviceKind, &s, bytes); err != nil || s.total() != want {
			t.Errorf("%q: %+v, %v, want %+v", text, s.total(), err, want)
		}
	}

	for _, bad := range []string{"Total 0", "8:0 Read\n", "8:0\n", "8:0 Read x\n", "Read 4096\n", "\n"} {
		var s diskIOByKind
		if err := parseServiced([]byte(bad), deviceKind, &s, bytes); err == nil {
			t.Errorf("parseServiced(%q) = %+v, want an error", bad, s)
		}
	}
}

// TestDiskIOFiles checks the files of each version, and the sum over containers on kernels whose groups exclude child groups.
func TestDiskIOFiles(t *testing.T) {
	_, dir, layout, tree := openRecording(t, "v2-systemd-containerd")
	pod := readPods(t, tree)[guaranteed]
	write := func(parts ...string) {
		t.Helper()

		path := filepath.Join(append([]string{dir, mountPoint}, parts[:len(parts)-1]...)...)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}

		if err := os.WriteFile(path, []byte(parts[len(parts)-1]), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	read := func(want DiskIO, wrong string) {
		t.Helper()

		f, err := layout.DiskIOFiles()
		if err != nil {
			t.Fatal(err)
		}

		got, err := f.Read(&host.Reader{}, pod, deviceKind)
		switch {
		case wrong == "" && (err != nil || got != want):
			t.Errorf("%+v, %v, want %+v", got, err, want)
		case wrong != "" && (err == nil || !strings.Contains(err.Error(), wrong) || got != DiskIO{}):
			t.Errorf("%+v, %v, want %q", got, err, wrong)
		}
	}

	write("cgroup.controllers", "cpu memory\n")
	if _, err := layout.DiskIOFiles(); err == nil || !strings.Contains(err.Error(), "no controller io") {
		t.Errorf("v2 without io: %v", err)
	}

	write("cgroup.controllers", "cpu io memory\n")
	if err := os.RemoveAll(filepath.Join(dir, mountPoint, pod.Path, fileIOStat)); err != nil {
		t.Fatal(err)
	}

	read(DiskIO{}, host.ErrGone.Error())
	write(pod.Path, fileIOStat, "8:0 rbytes=4096 wbytes=0 rios=1 wios=0 dbytes=0 dios=0\n")
	read(DiskIO{1, 0, 4096, 0}, "")
	write(pod.Path, fileIOStat, "8:0 rbytes=40")
	read(DiskIO{}, fileIOStat)

	_, dir, layout, tree = openRecording(t, "v1-cgroupfs-containerd")
	pod = readPods(t, tree)[guaranteed]

	if err := os.RemoveAll(filepath.Join(dir, mountPoint, "blkio")); err != nil {
		t.Fatal(err)
	}

	if _, err := layout.DiskIOFiles(); err == nil || !strings.Contains(err.Error(), "no controller blkio") {
		t.Errorf("v1 without blkio: %v", err)
	}

	write("blkio", fileServiceBytes, "Total 0\n")
	if _, err := layout.DiskIOFiles(); err == nil || !strings.Contains(err.Error(), "counts no disk I/O") {
		t.Errorf("v1 that counts nothing: %v", err)
	}

	write("blkio", fileServiceBytes, "8:0 Read 4096\nTotal 4096\n")
	for _, c := range pod.Containers {
		write("blkio", c.Path, fileServiceBytes, "8:0 Read 4096\n8:0 Write 100\nTotal 4196\n")
		write("blkio", c.Path, fileServiced, "8:0 Read 1\n8:0 Write 2\nTotal 3\n")
	}

	write("blkio", pod.Path, fileServiceBytes, "Total 0\n")
	write("blkio", pod.Path, fileServiced, "Total 0\n")
	read(DiskIO{2, 4, 8192, 200}, "")
	write("blkio", fileServiceBytes+"_recursive", "8:0 Read 9\nTotal 9\n")
	write("blkio", pod.Path, fileServiceBytes+"_recursive", "8:0 Read 5\nTotal 5\n")
	write("blkio", pod.Path, fileServiced+"_recursive", "8:0 Write 6\nTotal 6\n")
	read(DiskIO{0, 6, 5, 0}, "")

	if err := os.RemoveAll(filepath.Join(dir, mountPoint, "blkio", pod.Path)); err != nil {
		t.Fatal(err)
	}

	f, err := layout.DiskIOFiles()
	if err != nil {
		t.Fatal(err)
	}

	if _, err := f.Read(&host.Reader{}, pod, deviceKind); !errors.Is(err, host.ErrGone) {
		t.Errorf("a pod that is gone: %v", err)
	}
}

// FuzzDiskIO checks that parsing any content returns an error or a sum that is not less than its parts.
func FuzzDiskIO(f *testing.F) {
	for _, seed := range []string{"8:0 rbytes=4096 wbytes=8192 rios=1 wios=2 dbytes=9 dios=9\n", "8:0 Read 4096\n8:0 Write 1\nTotal 4097\n", "253:0 \n", "8:0 rbytes=18446744073709551615\n8:0 rbytes=1\n", "Total 0\n"} {
		f.Add([]byte(seed))
	}

	f.Fuzz(func(t *testing.T, content []byte) {
		var all diskIOByKind
		if err := parseIOStat(content, deviceKind, &all); err == nil {
			var once diskIOByKind
			if err := parseIOStat(content, func([]byte) DeviceKind { return IntermediateDevice }, &once); err != nil || once.total() != (DiskIO{}) {
				t.Errorf("parseIOStat(%q) without counted devices = %+v, %v, want zeros", content, once, err)
			}

			twice := all
			if err := parseIOStat(content, deviceKind, &twice); err != nil || twice.total().Reads < all.total().Reads || twice.total().WriteBytes < all.total().WriteBytes {
				t.Errorf("parseIOStat(%q) = %+v, and added again %+v, %v, want no smaller amounts", content, all, twice, err)
			}
		}

		var served diskIOByKind
		_ = parseServiced(content, deviceKind, &served, func(t *DiskIO) (reads, writes *uint64) { return &t.Reads, &t.Writes })

		if served.total().ReadBytes != 0 || served.total().WriteBytes != 0 {
			t.Errorf("parseServiced(%q) of operations = %+v, want no bytes", content, served)
		}
	})
}
