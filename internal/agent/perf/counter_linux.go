// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package perf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"crane.io/crane/internal/agent/host"
	"crane.io/crane/internal/agent/host/cgroup"
)

// events is a pair of events of one type that are counted together.
type events struct {
	eventType            uint32
	cycles, instructions uint64
}

func hardwareEvents() events {
	return events{unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_CPU_CYCLES, unix.PERF_COUNT_HW_INSTRUCTIONS}
}

// clockEvents returns two events that every kernel with perf events supports: the time on a CPU, in nanoseconds, from two clocks. They
// test what the host permits, with the same calls as hardware events.
func clockEvents() events {
	return events{unix.PERF_TYPE_SOFTWARE, unix.PERF_COUNT_SW_CPU_CLOCK, unix.PERF_COUNT_SW_TASK_CLOCK}
}

// eventGroup is a pair of counters of a cgroup on one CPU; the kernel counts both or none.
type eventGroup struct{ leader, member int }

// open starts counters for the cgroup with directory dir on one CPU.
func (e events) open(dir string, cpu int) (counter, error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	defer func() { _ = unix.Close(fd) }() // The counters keep the cgroup.

	const format = unix.PERF_FORMAT_TOTAL_TIME_ENABLED | unix.PERF_FORMAT_TOTAL_TIME_RUNNING | unix.PERF_FORMAT_GROUP
	attr := unix.PerfEventAttr{
		Type:        e.eventType,
		Config:      e.cycles,
		Read_format: format,
		Bits:        unix.PerfBitDisabled,
	}

	attr.Size = uint32(unsafe.Sizeof(attr))
	g := &eventGroup{}
	if g.leader, err = unix.PerfEventOpen(&attr, fd, cpu, -1, unix.PERF_FLAG_PID_CGROUP|unix.PERF_FLAG_FD_CLOEXEC); err != nil {
		return nil, fmt.Errorf("perf_event_open: %w", err)
	}

	attr.Config = e.instructions
	attr.Bits = 0
	if g.member, err = unix.PerfEventOpen(&attr, fd, cpu, g.leader, unix.PERF_FLAG_PID_CGROUP|unix.PERF_FLAG_FD_CLOEXEC); err != nil {
		return nil, errors.Join(fmt.Errorf("perf_event_open: %w", err), unix.Close(g.leader))
	}

	if err := unix.IoctlSetInt(g.leader, unix.PERF_EVENT_IOC_ENABLE, unix.PERF_IOC_FLAG_GROUP); err != nil {
		g.close()
		return nil, fmt.Errorf("enable counters: %w", err)
	}

	return g, nil
}

// read reads both counters: their number, the times enabled and running, and the values.
func (g *eventGroup) read() (reading, error) {
	const values = 5
	var buf [8 * values]byte
	n, err := unix.Read(g.leader, buf[:])
	if err != nil {
		return reading{}, fmt.Errorf("reading counters: %w", err)
	}

	word := func(i int) uint64 { return binary.NativeEndian.Uint64(buf[8*i:]) }
	if n != len(buf) || word(0) != 2 {
		return reading{}, fmt.Errorf("reading counters: %d bytes of %d counters instead of %d of 2", n, word(0), len(buf))
	}

	r := reading{
		enabled:      toDuration(word(1)),
		running:      toDuration(word(2)),
		cycles:       word(3),
		instructions: word(4),
	}

	return r, r.validate()
}

func toDuration(n uint64) time.Duration { return time.Duration(min(n, 1<<62)) }

// close may be called twice: a closed descriptor number may have been reused.
func (g *eventGroup) close() {
	for _, fd := range []*int{&g.member, &g.leader} {
		if *fd >= 0 {
			_ = unix.Close(*fd) // opened for reading only
		}
		*fd = -1
	}
}

// openHardware counts cycles and instructions.
func openHardware(dir string, cpu int) (counter, error) { return hardwareEvents().open(dir, cpu) }

// UnsupportedReason returns why the host cannot count cycles and instructions of pods; empty if it can. It opens counters to find out.
func UnsupportedReason(root host.Root, layout cgroup.Layout) string {
	if layout.Pods == "" {
		return "no kubepods cgroup: no kubelet runs on this host"
	}

	dir, err := layout.PerfDir(layout.Pods)
	if err != nil {
		return err.Error()
	}

	cpus, err := listOnlineCPUs(root)
	if err != nil {
		return err.Error()
	}

	if needed := 2 * len(cpus); needed > maxDescriptors {
		return fmt.Sprintf("%d CPUs need %d open counters per pod, more than %d", len(cpus), needed, maxDescriptors)
	}

	return refusalReason(root, dir, cpus[0], clockEvents(), hardwareEvents())
}

// refusalReason returns why a cgroup cannot be counted. It first opens events that every kernel supports, which distinguishes missing
// permissions from missing hardware.
func refusalReason(root host.Root, dir string, cpu int, usual, wanted events) string {
	c, err := usual.open(dir, cpu)
	switch {
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return "perf_event_open is not allowed: the agent needs the capability PERFMON and a seccomp profile that permits the call (" + readParanoidLevel(root) + "): " + err.Error()
	case errors.Is(err, unix.ENOSYS):
		return "the kernel has no perf events: " + err.Error()
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.EBADF), errors.Is(err, unix.EINVAL):
		return "no perf_event cgroup at " + dir + ": " + err.Error()
	case err != nil:
		return err.Error()
	}

	c.close()
	if c, err = wanted.open(dir, cpu); err != nil {
		return "no hardware performance counters: " + err.Error()
	}

	c.close()
	return ""
}

// readParanoidLevel describes kernel.perf_event_paranoid, the restriction of processes without CAP_PERFMON.
func readParanoidLevel(root host.Root) string {
	var reader host.Reader
	content, err := reader.ReadPath(root.Path("proc/sys/kernel/perf_event_paranoid"))
	if err != nil || len(content) == 0 {
		return "kernel.perf_event_paranoid is unknown"
	}

	return "kernel.perf_event_paranoid is " + string(content[:len(content)-1])
}
