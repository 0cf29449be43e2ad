// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"errors"
	"time"

	"crane.io/crane/internal/agent/host"
	"crane.io/crane/internal/agent/host/cgroup"
	"crane.io/crane/pkg/units"
)

// hostFiles are the files of a host below a root.
type hostFiles struct {
	root   host.Root
	reader *host.Reader
}

// Observer measures a host repeatedly. Its files stay open. It is not safe for concurrent use.
type Observer struct {
	hostFiles
	layout cgroup.Layout
	tree   *cgroup.Tree
	files  struct{ stat, meminfo, loadavg, diskstats, netdev, cpu, memory, io host.File }

	snapshot    Snapshot
	measurement uint64
	lastCPU     Known[host.CPUTimes]
	counters    map[string]*cpuCounters // by path
	stallTimes  map[string]*stallTotals // by path
	wholeDisks  map[string]bool         // by name
	runQueues   runQueueState
	exclusive   exclusiveState

	diskIO       diskIOState
	cyclesSource func(uid string) (Cycles, bool)
}

// New returns an observer of the host below root and its cgroups.
func New(root host.Root, layout cgroup.Layout) *Observer {
	o := &Observer{
		hostFiles:  hostFiles{root: root, reader: &host.Reader{}},
		layout:     layout,
		counters:   map[string]*cpuCounters{},
		stallTimes: map[string]*stallTotals{},
		wholeDisks: map[string]bool{},
	}

	o.tree = cgroup.NewTree(layout, o.reader)
	o.files.stat = host.NewFile(root.Path("proc/stat"))
	o.files.meminfo = host.NewFile(root.Path("proc/meminfo"))
	o.files.loadavg = host.NewFile(root.Path("proc/loadavg"))
	o.files.diskstats = host.NewFile(root.Path("proc/diskstats"))

	// The network namespace of the host's first process; the agent's own may be that of a container.
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
	o.snapshot.Node.closeZones()

	f := &o.files
	for _, file := range []*host.File{&f.stat, &f.meminfo, &f.loadavg, &f.diskstats, &f.netdev, &f.cpu, &f.memory, &f.io} {
		file.Close()
	}
}

// Collect measures everything at the time now. Rates cover the time since the previous measurement; a counter that decreased, such as that
// of a recreated group, yields no rate. The snapshot is valid until the next measurement.
func (o *Observer) Collect(now time.Time) *Snapshot {
	s := &o.snapshot
	o.measurement++
	s.Span = 0
	if o.measurement > 1 {
		s.Span = max(now.Sub(s.At), 0)
	}

	s.At = now
	clear(s.Problems)
	o.collectNode()
	o.collectExclusiveIdle()
	o.collectZones()

	o.collectDisks()
	o.collectInterfaces()
	o.collectPods()
	o.collectExclusivePods()
	o.collectRunQueues()
	o.collectDiskIO()

	return s
}

func (o *Observer) recordProblem(subject string, err error) {
	if err != nil {
		o.snapshot.Problems[subject] = err.Error()
	}
}

// readFile reads and parses a file; a failure is recorded as a problem, and the value is unknown.
func readFile[T any](o *Observer, subject string, f *host.File, parse func([]byte) (T, error)) Known[T] {
	content, err := o.reader.Read(f)
	if err == nil {
		var v T
		if v, err = parse(content); err == nil {
			return known(v)
		}
	}

	o.recordProblem(subject, err)
	return Known[T]{}
}

func (o *Observer) collectNode() {
	n := &o.snapshot.Node
	before := o.lastCPU
	o.lastCPU = readFile(o, "cpu", &o.files.stat, host.ParseStat)

	n.CPUs = Known[int]{}
	n.UsedCPU = Known[units.MilliCPU]{}
	if o.lastCPU.OK {
		n.CPUs = known(o.lastCPU.Value.CPUs)
		if before.OK {
			n.UsedCPU = computeNodeCPU(before.Value, o.lastCPU.Value)
		}
	}

	n.Memory = readFile(o, "memory", &o.files.meminfo, host.ParseMeminfo)
	n.Load = readFile(o, "load", &o.files.loadavg, host.ParseLoadavg)
	n.Pressure.CPU = readPressure(o, "pressure cpu", &o.files.cpu)
	n.Pressure.Memory = readPressure(o, "pressure memory", &o.files.memory)
	n.Pressure.IO = readPressure(o, "pressure io", &o.files.io)
}

// readPressure reads a file of /proc/pressure. One that the kernel does not have or support, as with psi=0, is no problem.
func readPressure(o *Observer, subject string, f *host.File) Known[host.Pressure] {
	content, err := o.reader.Read(f)
	if errors.Is(err, host.ErrGone) || host.IsUnsupported(err) {
		return Known[host.Pressure]{}
	}

	if err == nil {
		var p host.Pressure
		if p, err = host.ParsePressure(content); err == nil {
			return known(p)
		}
	}

	o.recordProblem(subject, err)
	return Known[host.Pressure]{}
}

// computeNodeCPU returns the share of busy ticks times the number of CPUs. The kernel's idle times may decrease slightly; the value is
// unknown then.
func computeNodeCPU(a, b host.CPUTimes) Known[units.MilliCPU] {
	if b.Busy < a.Busy || b.Idle < a.Idle || b.Busy+b.Idle == a.Busy+a.Idle {
		return Known[units.MilliCPU]{}
	}

	busy := float64(b.Busy - a.Busy)
	idle := float64(b.Idle - a.Idle)
	return known(units.MilliCPU(1000*float64(b.CPUs)*busy/(busy+idle) + 0.5))
}

// counterSet holds up to six counters; unused ones are 0.
type counterSet [6]uint64

// computeRates returns the growth of counters per second; false if no time has passed or a counter decreased.
func computeRates(last, now counterSet, span time.Duration) (rates [len(counterSet{})]float64, ok bool) {
	for i := range now {
		if span <= 0 || now[i] < last[i] {
			return rates, false
		}

		rates[i] = float64(now[i]-last[i]) / span.Seconds()
	}

	return rates, true
}

func (o *Observer) collectDisks() {
	s := &o.snapshot
	clear(o.wholeDisks)

	if err := o.reader.Subdirectories(o.root.Path("sys/block"), func(name []byte) { o.wholeDisks[string(name)] = true }); err != nil {
		o.recordProblem("disks", err)
		s.Disks = s.Disks[:0]
		return
	}

	content, err := o.reader.Read(&o.files.diskstats)
	if err == nil {
		err = host.ParseDiskstats(content, o.addDisk)
	}

	o.recordProblem("disks", err)
	s.Disks = filterInPlace(s.Disks, func(d *Disk) bool { return d.measurement == o.measurement })
}

func (o *Observer) addDisk(name []byte, now host.Disk) {
	// Skips the many unused loop and RAM devices.
	if !o.wholeDisks[string(name)] || now.Reads == 0 && now.Writes == 0 {
		return
	}

	s := &o.snapshot
	for i := range s.Disks {
		d := &s.Disks[i]
		if d.Name != string(name) {
			continue
		}

		last := d.last
		d.Rate = Known[DiskRate]{}

		d.last = now
		d.measurement = o.measurement
		if r, ok := computeRates(diskCounters(last), diskCounters(now), s.Span); ok {
			busy := units.Ratio(min(r[4]/float64(time.Second), 1))
			d.Rate = known(DiskRate{
				Reads:      r[0],
				Writes:     r[1],
				ReadBytes:  r[2],
				WriteBytes: r[3],
				Busy:       busy,
			})
		}

		return
	}

	s.Disks = append(s.Disks, Disk{Name: string(name), last: now, measurement: o.measurement})
}

func diskCounters(d host.Disk) counterSet {
	return counterSet{d.Reads, d.Writes, d.ReadBytes, d.WriteBytes, uint64(d.Busy)}
}

func (o *Observer) collectInterfaces() {
	s := &o.snapshot
	content, err := o.reader.Read(&o.files.netdev)
	if err == nil {
		err = host.ParseNetDev(content, o.addInterface)
	}

	o.recordProblem("network", err)
	s.Interfaces = filterInPlace(s.Interfaces, func(i *Interface) bool { return i.measurement == o.measurement })
}

func (o *Observer) addInterface(name []byte, now host.Interface) {
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
		f.Rate = Known[InterfaceRate]{}

		f.last = now
		f.measurement = o.measurement
		if r, ok := computeRates(interfaceCounters(last), interfaceCounters(now), s.Span); ok {
			f.Rate = known(InterfaceRate{r[0], r[1], r[2], r[3], r[4], r[5]})
		}

		return
	}

	s.Interfaces = append(s.Interfaces, Interface{Name: string(name), last: now, measurement: o.measurement})
}

func interfaceCounters(i host.Interface) counterSet {
	return counterSet{i.ReceivedBytes, i.SentBytes, i.ReceivedPackets, i.SentPackets, i.DroppedIn, i.DroppedOut}
}

// filterInPlace removes elements that do not match.
func filterInPlace[T any](list []T, keep func(*T) bool) []T {
	out := list[:0]
	for i := range list {
		if keep(&list[i]) {
			out = append(out, list[i])
		}
	}

	return out
}
