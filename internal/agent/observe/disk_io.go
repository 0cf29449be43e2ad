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
	// deviceListInterval is the time after which it is looked again which block devices are made of others.
	deviceListInterval = time.Minute
	// maxDiskIOAge is the age up to which a sample is shown.
	maxDiskIOAge = time.Minute
)

// DiskIORate is what a pod does to disks, by second.
type DiskIORate struct {
	// At is when it was sampled, of the time since the sample before.
	At                                   time.Time
	Reads, Writes, ReadBytes, WriteBytes float64
}

// diskIOState is what is remembered of what pods do to disks.
type diskIOState struct {
	interval    time.Duration
	sampledAt   time.Time
	groups      map[string]*podDiskIO // by path
	sampleError error                 // of the last sample
	// devices are those that are no whole disks, by major:minor, as of the time listed.
	devices         map[string]cgroup.DeviceKind
	devicesListedAt time.Time
}

type podDiskIO struct {
	at    time.Time
	total cgroup.DiskIO
	rate  Known[DiskIORate]
	round uint64
}

// SetDiskIOInterval says how often it is read what each pod does to disks, from the next look on; 0 for never. It is a file or two for each
// pod, so that it is not done at each look.
func (o *Observer) SetDiskIOInterval(every time.Duration) { o.diskIO.interval = every }

// collectDiskIO reads them for all pods at once, so that samples are of the same time, and shows the last sample.
func (o *Observer) collectDiskIO() {
	t, now, n := &o.diskIO, o.snapshot.At, &o.snapshot.Node
	if t.interval <= 0 {
		t.groups, t.sampleError = nil, nil
		n.DiskIOUnsupported, n.DiskIOPartial = "", false
		for i := range o.snapshot.Pods {
			o.snapshot.Pods[i].DiskIO = Known[DiskIORate]{}
		}
		return
	}
	if t.groups == nil {
		t.groups, t.sampledAt = map[string]*podDiskIO{}, time.Time{}
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
	t, n := &o.diskIO, &o.snapshot.Node
	files, err := o.layout.DiskIOFiles()
	n.DiskIOUnsupported, n.DiskIOPartial = "", o.layout.Version != cgroup.V2
	if err != nil {
		n.DiskIOUnsupported = err.Error()
		clear(t.groups) // The host does not count, which is no problem that comes and goes.
		return
	}
	t.sampleError = nil
	o.listDevices()
	kind := func(device []byte) cgroup.DeviceKind { return t.devices[string(device)] }
	for _, p := range o.tree.Pods() {
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
		g.round = o.round
	}
	for path, g := range t.groups {
		if g.round != o.round {
			delete(t.groups, path)
		}
	}
}

// update takes a sample. A counter that went back, as where a disk was taken out, has no rate this time.
func (g *podDiskIO) update(now time.Time, total cgroup.DiskIO) {
	span, last := now.Sub(g.at), g.total
	first := g.at.IsZero()
	g.at, g.total, g.rate = now, total, Known[DiskIORate]{}
	if first || span <= 0 || total.Reads < last.Reads || total.Writes < last.Writes || total.ReadBytes < last.ReadBytes || total.WriteBytes < last.WriteBytes {
		return
	}
	g.rate = known(DiskIORate{
		At: now, Reads: computeRate(last.Reads, total.Reads, span), Writes: computeRate(last.Writes, total.Writes, span),
		ReadBytes: computeRate(last.ReadBytes, total.ReadBytes, span), WriteBytes: computeRate(last.WriteBytes, total.WriteBytes, span),
	})
}

// listDevices finds out which block devices are made of others. What cannot be read is a whole disk.
func (o *Observer) listDevices() {
	t, now := &o.diskIO, o.snapshot.At
	if !t.devicesListedAt.IsZero() && now.Sub(t.devicesListedAt) < deviceListInterval && !now.Before(t.devicesListedAt) {
		return
	}
	t.devicesListedAt = now
	if t.devices == nil {
		t.devices = map[string]cgroup.DeviceKind{}
	}
	clear(t.devices)
	for name := range o.wholeDisks {
		kind := cgroup.WholeDisk
		switch {
		case strings.HasPrefix(name, "loop"), strings.HasPrefix(name, "ram"), strings.HasPrefix(name, "zram"):
			kind = cgroup.IntermediateDevice
		case o.hasSubdirectory("sys/block", name, "slaves"):
			kind = cgroup.StackedDevice
			if o.hasSubdirectory("sys/block", name, "holders") {
				kind = cgroup.IntermediateDevice
			}
		}
		if kind == cgroup.WholeDisk {
			continue
		}
		file := host.NewFile(o.root.Path("sys/block", name, "dev"))
		if content, err := o.reader.Read(&file); err == nil {
			t.devices[string(bytes.TrimSpace(content))] = kind
		}
		file.Close()
	}
}

// hasSubdirectory tells whether a directory of the host has any below it.
func (o *Observer) hasSubdirectory(parts ...string) (found bool) {
	err := o.reader.Subdirectories(o.root.Path(parts...), func([]byte) { found = true })
	return err == nil && found
}
