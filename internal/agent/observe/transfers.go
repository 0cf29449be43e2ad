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
	// stacksEvery is the time after which it is looked again which block devices are made of others.
	stacksEvery = time.Minute
	// transferAge is the age up to which a sample is shown.
	transferAge = time.Minute
)

// Transfer is what a pod does to disks, by second.
type Transfer struct {
	// At is when it was sampled, of the time since the sample before.
	At                                   time.Time
	Reads, Writes, ReadBytes, WriteBytes float64
}

// transfers is what is remembered of what pods do to disks.
type transfers struct {
	every  time.Duration
	at     time.Time
	groups map[string]*transferred // by path
	failed error                   // of the last sample
	// devices are those that are no whole disks, by major:minor, as of the time listed.
	devices map[string]cgroup.Device
	listed  time.Time
}

type transferred struct {
	at    time.Time
	total cgroup.Transfers
	rate  Known[Transfer]
	tick  uint64
}

// SampleTransfers says how often it is read what each pod does to disks, from the next look on; 0 for never. It is a file or two for each
// pod, so that it is not done at each look.
func (o *Observer) SampleTransfers(every time.Duration) { o.transfers.every = every }

// lookTransfers reads them for all pods at once, so that samples are of the same time, and shows the last sample.
func (o *Observer) lookTransfers() {
	t, now, n := &o.transfers, o.snapshot.At, &o.snapshot.Node
	if t.every <= 0 {
		t.groups, t.failed = nil, nil
		n.DisksUncounted, n.DisksInPart = "", false
		for i := range o.snapshot.Pods {
			o.snapshot.Pods[i].Transfer = Known[Transfer]{}
		}
		return
	}
	if t.groups == nil {
		t.groups, t.at = map[string]*transferred{}, time.Time{}
	}
	if t.at.IsZero() || now.Sub(t.at) >= t.every || now.Before(t.at) {
		t.at = now
		o.sampleTransfers()
	}
	o.problem("pod disks", t.failed)
	for i, p := range o.tree.Pods() {
		out := &o.snapshot.Pods[i].Transfer
		*out = Known[Transfer]{}
		if g := t.groups[p.Path]; g != nil && g.rate.OK && now.Sub(g.rate.Value.At) <= transferAge {
			*out = g.rate
		}
	}
}

func (o *Observer) sampleTransfers() {
	t, n := &o.transfers, &o.snapshot.Node
	files, err := o.layout.TransferFiles()
	n.DisksUncounted, n.DisksInPart = "", o.layout.Version != cgroup.V2
	if err != nil {
		n.DisksUncounted = err.Error()
		clear(t.groups) // The host does not count, which is no problem that comes and goes.
		return
	}
	t.failed = nil
	o.listDevices()
	kind := func(device []byte) cgroup.Device { return t.devices[string(device)] }
	for _, p := range o.tree.Pods() {
		total, err := files.Read(o.reader, p, kind)
		if err != nil {
			delete(t.groups, p.Path)
			if !errors.Is(err, host.ErrGone) {
				t.failed = err
			}
			continue
		}
		g := t.groups[p.Path]
		if g == nil {
			g = &transferred{}
			t.groups[p.Path] = g
		}
		g.next(o.snapshot.At, total)
		g.tick = o.tick
	}
	for path, g := range t.groups {
		if g.tick != o.tick {
			delete(t.groups, path)
		}
	}
}

// next takes a sample. A counter that went back, as where a disk was taken out, has no rate this time.
func (g *transferred) next(now time.Time, total cgroup.Transfers) {
	span, last := now.Sub(g.at), g.total
	first := g.at.IsZero()
	g.at, g.total, g.rate = now, total, Known[Transfer]{}
	if first || span <= 0 || total.Reads < last.Reads || total.Writes < last.Writes || total.ReadBytes < last.ReadBytes || total.WriteBytes < last.WriteBytes {
		return
	}
	g.rate = known(Transfer{
		At: now, Reads: rate(last.Reads, total.Reads, span), Writes: rate(last.Writes, total.Writes, span),
		ReadBytes: rate(last.ReadBytes, total.ReadBytes, span), WriteBytes: rate(last.WriteBytes, total.WriteBytes, span),
	})
}

// listDevices finds out which block devices are made of others. What cannot be read is a whole disk.
func (o *Observer) listDevices() {
	t, now := &o.transfers, o.snapshot.At
	if !t.listed.IsZero() && now.Sub(t.listed) < stacksEvery && !now.Before(t.listed) {
		return
	}
	t.listed = now
	if t.devices == nil {
		t.devices = map[string]cgroup.Device{}
	}
	clear(t.devices)
	for name := range o.block {
		kind := cgroup.Whole
		switch {
		case strings.HasPrefix(name, "loop"), strings.HasPrefix(name, "ram"), strings.HasPrefix(name, "zram"):
			kind = cgroup.Between
		case o.anyIn("sys/block", name, "slaves"):
			kind = cgroup.Stacked
			if o.anyIn("sys/block", name, "holders") {
				kind = cgroup.Between
			}
		}
		if kind == cgroup.Whole {
			continue
		}
		file := host.NewFile(o.root.Path("sys/block", name, "dev"))
		if content, err := o.reader.Read(&file); err == nil {
			t.devices[string(bytes.TrimSpace(content))] = kind
		}
		file.Close()
	}
}

// anyIn tells whether a directory of the host has any below it.
func (o *Observer) anyIn(parts ...string) (found bool) {
	err := o.reader.Subdirectories(o.root.Path(parts...), func([]byte) { found = true })
	return err == nil && found
}
