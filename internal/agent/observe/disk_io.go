// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"bytes"
	"errors"
	"strings"
	"time"

	"crane.io/crane/internal/agent/host"
	"crane.io/crane/internal/agent/host/cgroup"
)

const (
	// deviceListInterval is the interval at which block devices are classified.
	deviceListInterval = time.Minute
	// maxDiskIOAge is the maximum age of a reported sample.
	maxDiskIOAge = time.Minute
)

// DiskIORate is the disk I/O of a pod per second.
type DiskIORate struct {
	// At is the time of the sample; the rates cover the time since the previous one.
	At                                   time.Time
	Reads, Writes, ReadBytes, WriteBytes float64
}

// diskIOState holds the previous samples of all pods.
type diskIOState struct {
	interval    time.Duration
	sampledAt   time.Time
	groups      map[string]*podDiskIO // by path
	sampleError error                 // of the last sample
	// devices holds the kinds of devices that are not whole disks, by major:minor.
	devices         map[string]cgroup.DeviceKind
	devicesListedAt time.Time
}

type podDiskIO struct {
	at          time.Time
	total       cgroup.DiskIO
	rate        Known[DiskIORate]
	measurement uint64
}

// SetDiskIOInterval sets the sampling interval of the pods' disk I/O from the next measurement on; 0 disables it. It reads one or two
// files per pod and is therefore not done at every measurement.
func (o *Observer) SetDiskIOInterval(every time.Duration) { o.diskIO.interval = every }

// collectDiskIO samples all pods in the same measurement, so that samples are comparable, and reports the last sample.
func (o *Observer) collectDiskIO() {
	t := &o.diskIO
	now := o.snapshot.At

	n := &o.snapshot.Node
	// Disabled: nothing of previous samples may be reported.
	if t.interval <= 0 {
		t.groups = nil
		t.sampleError = nil
		n.DiskIOUnsupported = ""
		n.DiskIOPartial = false

		for i := range o.snapshot.Pods {
			o.snapshot.Pods[i].DiskIO = Known[DiskIORate]{}
		}

		return
	}

	if t.groups == nil {
		t.groups = map[string]*podDiskIO{}
		t.sampledAt = time.Time{}
	}

	if t.sampledAt.IsZero() || now.Sub(t.sampledAt) >= t.interval || now.Before(t.sampledAt) {
		t.sampledAt = now
		o.sampleDiskIO()
	}

	o.recordProblem("pod disks", t.sampleError)
	for i, p := range o.tree.Pods() {
		out := &o.snapshot.Pods[i].DiskIO
		*out = Known[DiskIORate]{}
		if g := t.groups[p.Path]; g != nil && g.rate.OK && now.Sub(g.rate.Value.At) <= maxDiskIOAge {
			*out = g.rate
		}
	}
}

func (o *Observer) sampleDiskIO() {
	t := &o.diskIO
	n := &o.snapshot.Node
	files, err := o.layout.DiskIOFiles()

	n.DiskIOUnsupported = ""
	n.DiskIOPartial = o.layout.Version != cgroup.V2
	if err != nil {
		n.DiskIOUnsupported = err.Error()
		clear(t.groups) // A host that does not count is unsupported and not a problem.
		return
	}

	t.sampleError = nil
	t.listDevices(o.hostFiles, o.snapshot.At, o.wholeDisks)

	kind := func(device []byte) cgroup.DeviceKind { return t.devices[string(device)] }
	for _, p := range o.tree.Pods() {
		// Without a device the sum has a gap, and its return would look like a burst of I/O: the rate is unknown until two samples have all.
		total, err := files.Read(o.reader, p, kind)
		if err != nil {
			delete(t.groups, p.Path)
			if !errors.Is(err, host.ErrGone) {
				t.sampleError = err
			}

			continue
		}

		g := t.groups[p.Path]
		if g == nil {
			g = &podDiskIO{}
			t.groups[p.Path] = g
		}

		g.update(o.snapshot.At, total)
		g.measurement = o.measurement
	}

	for path, g := range t.groups {
		if g.measurement != o.measurement {
			delete(t.groups, path)
		}
	}
}

// update computes rates since the previous sample. A counter that decreased, as after a disk was removed, yields no rate.
func (g *podDiskIO) update(now time.Time, total cgroup.DiskIO) {
	first := g.at.IsZero()
	last := g.total
	span := now.Sub(g.at)
	g.at = now

	g.total = total
	g.rate = Known[DiskIORate]{}
	if r, ok := computeRates(podCounters(last), podCounters(total), span); ok && !first {
		g.rate = known(DiskIORate{
			At:         now,
			Reads:      r[0],
			Writes:     r[1],
			ReadBytes:  r[2],
			WriteBytes: r[3],
		})
	}
}

func podCounters(d cgroup.DiskIO) counterSet {
	return counterSet{d.Reads, d.Writes, d.ReadBytes, d.WriteBytes}
}

// listDevices classifies block devices. Unreadable ones count as whole disks.
func (t *diskIOState) listDevices(files hostFiles, now time.Time, wholeDisks map[string]bool) {
	if !t.devicesListedAt.IsZero() && now.Sub(t.devicesListedAt) < deviceListInterval && !now.Before(t.devicesListedAt) {
		return
	}

	t.devicesListedAt = now
	if t.devices == nil {
		t.devices = map[string]cgroup.DeviceKind{}
	}

	// I/O to a stacked device is counted for it and again for the disks below; a device in between is not counted.
	clear(t.devices)

	for name := range wholeDisks {
		kind := cgroup.WholeDisk
		switch {
		case strings.HasPrefix(name, "loop"), strings.HasPrefix(name, "ram"), strings.HasPrefix(name, "zram"):
			kind = cgroup.IntermediateDevice
		case files.hasSubdirectory("sys/block", name, "slaves"):
			kind = cgroup.StackedDevice
			if files.hasSubdirectory("sys/block", name, "holders") {
				kind = cgroup.IntermediateDevice
			}
		}

		if kind == cgroup.WholeDisk {
			continue
		}

		if content, err := files.reader.ReadPath(files.root.Path("sys/block", name, "dev")); err == nil {
			t.devices[string(bytes.TrimSpace(content))] = kind
		}
	}
}

// hasSubdirectory reports whether a directory of the host has subdirectories.
func (h hostFiles) hasSubdirectory(parts ...string) (found bool) {
	err := h.reader.Subdirectories(h.root.Path(parts...), func([]byte) { found = true })
	return err == nil && found
}
