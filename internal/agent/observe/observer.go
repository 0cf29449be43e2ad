// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"time"

	"crane.io/crane/internal/agent/host"
	"crane.io/crane/internal/agent/host/cgroup"
	"crane.io/crane/pkg/series"
)

// Observer looks at a host again and again. Its files stay open. It is not safe for concurrent use.
type Observer struct {
	root   host.Root
	layout cgroup.Layout
	reader *host.Reader
	tree   *cgroup.Tree
	files  struct{ stat, meminfo, loadavg, diskstats, netdev, cpu, memory, io host.File }

	snapshot Snapshot
	tick     uint64
	cpu      Known[host.CPUTimes]
	groups   map[string]*counters // by path
	waited   map[string]*waited   // by path
	block    map[string]bool      // whole disks
	queues   queues
	owned    owned

	transfers transfers
	counted   func(uid string) (Cycles, bool)
}

// New returns an observer of the host below root, and its cgroups.
func New(root host.Root, layout cgroup.Layout) *Observer {
	o := &Observer{root: root, layout: layout, reader: &host.Reader{}, groups: map[string]*counters{}, waited: map[string]*waited{}, block: map[string]bool{}}
	o.tree = cgroup.NewTree(layout, o.reader)
	o.files.stat = host.NewFile(root.Path("proc/stat"))
	o.files.meminfo = host.NewFile(root.Path("proc/meminfo"))
	o.files.loadavg = host.NewFile(root.Path("proc/loadavg"))
	o.files.diskstats = host.NewFile(root.Path("proc/diskstats"))
	// The network namespace of the host's first process, not of this one, which may be a container's.
	o.files.netdev = host.NewFile(root.Path("proc/1/net/dev"))
	o.files.cpu = host.NewFile(root.Path("proc/pressure/cpu"))
	o.files.memory = host.NewFile(root.Path("proc/pressure/memory"))
	o.files.io = host.NewFile(root.Path("proc/pressure/io"))
	o.snapshot.Problems = map[string]string{}
	return o
}

// Close closes all files.
func (o *Observer) Close() {
	o.tree.Close()
	o.closeZones()
	f := &o.files
	for _, file := range []*host.File{&f.stat, &f.meminfo, &f.loadavg, &f.diskstats, &f.netdev, &f.cpu, &f.memory, &f.io} {
		file.Close()
	}
}

// Look measures everything at the time now. Rates are of the time since the last look; a counter that went back, as one of a group
// that was made anew, has no rate this time.
func (o *Observer) Look(now time.Time) *Snapshot {
	s := &o.snapshot
	o.tick++
	s.Span = 0
	if o.tick > 1 {
		s.Span = max(now.Sub(s.At), 0)
	}
	s.At = now
	clear(s.Problems)
	o.lookNode()
	o.lookOwned()
	o.lookZones()
	o.lookDisks()
	o.lookInterfaces()
	o.lookPods()
	o.lookOwners()
	o.lookRunQueues()
	o.lookTransfers()
	return s
}

func (o *Observer) problem(of string, err error) {
	if err != nil {
		o.snapshot.Problems[of] = err.Error()
	}
}

// read reads a file and parses it; what fails is a problem and unknown.
func read[T any](o *Observer, of string, f *host.File, parse func([]byte) (T, error)) Known[T] {
	content, err := o.reader.Read(f)
	if err == nil {
		var v T
		if v, err = parse(content); err == nil {
			return known(v)
		}
	}
	o.problem(of, err)
	return Known[T]{}
}

func (o *Observer) lookNode() {
	n := &o.snapshot.Node
	before := o.cpu
	o.cpu = read(o, "cpu", &o.files.stat, host.ParseStat)
	n.CPUs, n.UsedCPU = Known[int]{}, Known[series.MilliCPU]{}
	if o.cpu.OK {
		n.CPUs = known(o.cpu.Value.CPUs)
		if before.OK {
			n.UsedCPU = nodeCPU(before.Value, o.cpu.Value)
		}
	}
	n.Memory = read(o, "memory", &o.files.meminfo, host.ParseMeminfo)
	n.Load = read(o, "load", &o.files.loadavg, host.ParseLoadavg)
	n.Pressure.CPU = read(o, "pressure cpu", &o.files.cpu, host.ParsePressure)
	n.Pressure.Memory = read(o, "pressure memory", &o.files.memory, host.ParsePressure)
	n.Pressure.IO = read(o, "pressure io", &o.files.io, host.ParsePressure)
}

// nodeCPU is the share of busy ticks times the CPUs. The kernel's idle times go back a little at times; then nothing is said.
func nodeCPU(a, b host.CPUTimes) Known[series.MilliCPU] {
	if b.Busy < a.Busy || b.Idle < a.Idle || b.Busy+b.Idle == a.Busy+a.Idle {
		return Known[series.MilliCPU]{}
	}
	busy, idle := float64(b.Busy-a.Busy), float64(b.Idle-a.Idle)
	return known(series.MilliCPU(1000*float64(b.CPUs)*busy/(busy+idle) + 0.5))
}

// rate is a counter's growth by second.
func rate(before, after uint64, span time.Duration) float64 {
	return float64(after-before) / span.Seconds()
}

func (o *Observer) lookDisks() {
	s := &o.snapshot
	clear(o.block)
	if err := o.reader.Subdirectories(o.root.Path("sys/block"), func(name []byte) { o.block[string(name)] = true }); err != nil {
		o.problem("disks", err)
		s.Disks = s.Disks[:0]
		return
	}
	content, err := o.reader.Read(&o.files.diskstats)
	if err == nil {
		err = host.ParseDiskstats(content, o.disk)
	}
	o.problem("disks", err)
	s.Disks = keep(s.Disks, func(d *Disk) bool { return d.tick == o.tick })
}

func (o *Observer) disk(name []byte, now host.Disk) {
	// Loop and RAM devices that nobody uses are many.
	if !o.block[string(name)] || now.Reads == 0 && now.Writes == 0 {
		return
	}
	s := &o.snapshot
	for i := range s.Disks {
		d := &s.Disks[i]
		if d.Name != string(name) {
			continue
		}
		last := d.last
		d.Rate, d.last, d.tick = Known[DiskRate]{}, now, o.tick
		if s.Span > 0 && now.Reads >= last.Reads && now.Writes >= last.Writes && now.ReadBytes >= last.ReadBytes &&
			now.WriteBytes >= last.WriteBytes && now.Busy >= last.Busy {
			d.Rate = known(DiskRate{
				Reads: rate(last.Reads, now.Reads, s.Span), Writes: rate(last.Writes, now.Writes, s.Span),
				ReadBytes: rate(last.ReadBytes, now.ReadBytes, s.Span), WriteBytes: rate(last.WriteBytes, now.WriteBytes, s.Span),
				Busy: series.Ratio(min(float64(now.Busy-last.Busy)/float64(s.Span), 1)),
			})
		}
		return
	}
	s.Disks = append(s.Disks, Disk{Name: string(name), last: now, tick: o.tick})
}

func (o *Observer) lookInterfaces() {
	s := &o.snapshot
	content, err := o.reader.Read(&o.files.netdev)
	if err == nil {
		err = host.ParseNetDev(content, o.networkInterface)
	}
	o.problem("network", err)
	s.Interfaces = keep(s.Interfaces, func(i *Interface) bool { return i.tick == o.tick })
}

func (o *Observer) networkInterface(name []byte, now host.Interface) {
	if string(name) == "lo" || now.ReceivedPackets == 0 && now.SentPackets == 0 {
		return
	}
	s := &o.snapshot
	for i := range s.Interfaces {
		f := &s.Interfaces[i]
		if f.Name != string(name) {
			continue
		}
		last := f.last
		f.Rate, f.last, f.tick = Known[InterfaceRate]{}, now, o.tick
		if s.Span > 0 && now.ReceivedBytes >= last.ReceivedBytes && now.SentBytes >= last.SentBytes && now.ReceivedPackets >= last.ReceivedPackets &&
			now.SentPackets >= last.SentPackets && now.DroppedIn >= last.DroppedIn && now.DroppedOut >= last.DroppedOut {
			f.Rate = known(InterfaceRate{
				ReceivedBytes: rate(last.ReceivedBytes, now.ReceivedBytes, s.Span), SentBytes: rate(last.SentBytes, now.SentBytes, s.Span),
				ReceivedPackets: rate(last.ReceivedPackets, now.ReceivedPackets, s.Span), SentPackets: rate(last.SentPackets, now.SentPackets, s.Span),
				DroppedIn: rate(last.DroppedIn, now.DroppedIn, s.Span), DroppedOut: rate(last.DroppedOut, now.DroppedOut, s.Span),
			})
		}
		return
	}
	s.Interfaces = append(s.Interfaces, Interface{Name: string(name), last: now, tick: o.tick})
}

// keep leaves those of a list that are still there, in place.
func keep[T any](list []T, still func(*T) bool) []T {
	out := list[:0]
	for i := range list {
		if still(&list[i]) {
			out = append(out, list[i])
		}
	}
	return out
}
