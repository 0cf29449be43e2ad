// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"fmt"
	"math"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"k8s.io/utils/clock"
)

// Spec describes a machine.
type Spec struct {
	// V1 selects cgroup version 1, Systemd the cgroup names of the systemd driver.
	V1, Systemd bool
	// CPUs is the number of CPUs, Zones the number of NUMA nodes, ThreadsPerCore the threads per core; 0 means 4, 1 and
	// 1.
	CPUs, Zones, ThreadsPerCore int
	// Memory is in bytes; 0 means 16 GiB.
	Memory int64
	// Disk is the disk throughput in bytes per second; 0 means unlimited.
	Disk float64
	// System is the load outside of pods; its Group is ignored.
	System Load
	// CPUPolicy is the kubelet's CPU manager policy; empty means none.
	CPUPolicy string
}

func (s Spec) withDefaults() Spec {
	defaults := func(n *int, d int) {
		if *n <= 0 {
			*n = d
		}
	}

	defaults(&s.CPUs, 4)
	defaults(&s.Zones, 1)
	defaults(&s.ThreadsPerCore, 1)

	if s.Memory <= 0 {
		s.Memory = 16 << 30
	}
	if s.CPUPolicy == "" {
		s.CPUPolicy = "none"
	}

	return s
}

// Machine is a host emulated in a directory: cgroups, /proc, /sys and the kubelet's files, which reflect what its pods
// do as its clock advances. An agent with --host-root can run on it. It is not safe for concurrent use.
type Machine struct {
	dir   string
	spec  Spec
	tree  *Tree
	clock clock.PassiveClock
	last  time.Time
	pods  map[string]*runningPod
	pid   int

	// busy and idle are ticks of 10 ms summed over all CPUs, reads and writes the disk I/O in bytes.
	busy, idle, reads, writes float64
	load                      [3]float64
}

// Pod is a pod of a machine.
type Pod struct {
	UID string
	// Class is Guaranteed, Burstable or BestEffort.
	Class      string
	Containers []Container
}

// Container is a container of a pod. CPU is in millicores, memory in bytes; 0 means none.
type Container struct {
	// ID is the container ID of the runtime, 64 hexadecimal digits.
	ID                   string
	RequestCPU, LimitCPU int64
	LimitMem             int64
	Demand               Load // its Group is ignored
}

type runningPod struct {
	Pod
	group string
	pids  map[string]int
	waits map[string]time.Duration
}

// NewMachine returns a machine whose time is that of a clock.
func NewMachine(dir string, spec Spec, clk clock.PassiveClock) (*Machine, error) {
	spec = spec.withDefaults()
	m := &Machine{
		dir:   dir,
		spec:  spec,
		clock: clk,
		last:  clk.Now(),
		pods:  map[string]*runningPod{},
		pid:   1000,
	}

	m.tree = &Tree{
		Dir:  filepath.Join(dir, "sys/fs/cgroup"),
		CPUs: fmt.Sprintf("0-%d", spec.CPUs-1),
		Mems: fmt.Sprintf("0-%d", spec.Zones-1),
		Disk: spec.Disk,
	}

	if spec.V1 {
		m.tree.Dir = filepath.Join(m.tree.Dir, "cpu,cpuacct")
		m.tree.V1 = true
	}

	for name, content := range m.fixed() {
		if err := writeFile(filepath.Join(dir, name), content); err != nil {
			return nil, err
		}
	}

	// The kubelet creates the groups of these classes at its start; Guaranteed pods are in the root group.
	for _, class := range []string{"Burstable", "BestEffort"} {
		if err := m.make(m.classGroup(class)); err != nil {
			return nil, err
		}
	}

	// BestEffort gets the smallest weight.
	weight := "1"
	if spec.V1 {
		weight = "2"
	}

	if err := m.set(m.classGroup("BestEffort"), weightFile(spec.V1), weight); err != nil {
		return nil, err
	}

	return m, m.show(tick{})
}

// Tree returns the machine's cgroups.
func (m *Machine) Tree() *Tree { return m.tree }

// make creates a group that processes can run in.
func (m *Machine) make(group string) error {
	if err := m.tree.Make(group); err != nil || !m.spec.V1 {
		return err
	}

	ancestor := ""
	for part := range strings.SplitSeq(group, "/") {
		ancestor = filepath.Join(ancestor, part)
		for file, value := range map[string]string{"cpuset.cpus": m.tree.CPUs, "cpuset.mems": m.tree.Mems} {
			if text(filepath.Join(m.tree.hierarchy().root("cpuset"), ancestor), file) != "" {
				continue
			}

			if err := m.set(ancestor, file, value); err != nil {
				return err
			}
		}
	}

	return nil
}

func (m *Machine) set(group, file, value string) error {
	controller, _, _ := strings.Cut(file, ".")
	return m.tree.Write(filepath.Join(m.tree.hierarchy().root(controller), group, file), value)
}

func weightFile(v1 bool) string {
	if v1 {
		return "cpu.shares"
	}

	return "cpu.weight"
}

// classGroup returns the cgroup of a QoS class.
func (m *Machine) classGroup(class string) string {
	root := "kubepods"
	below := strings.ToLower(class)
	if m.spec.Systemd {
		root = "kubepods.slice"
		below = "kubepods-" + below + ".slice"
	}

	if class == "Guaranteed" {
		return root
	}

	return filepath.Join(root, below)
}

// PodGroup returns the cgroup of a pod relative to a hierarchy's root.
func (m *Machine) PodGroup(uid, class string) string {
	name := "pod" + uid
	if m.spec.Systemd {
		stem := "kubepods-"
		if class != "Guaranteed" {
			stem += strings.ToLower(class) + "-"
		}

		name = stem + "pod" + strings.ReplaceAll(uid, "-", "_") + ".slice"
	}

	return filepath.Join(m.classGroup(class), name)
}

// ContainerGroup returns the cgroup of a container below that of its pod.
func (m *Machine) ContainerGroup(podGroup, id string) string {
	if m.spec.Systemd {
		id = "cri-containerd-" + id + ".scope"
	}

	return filepath.Join(podGroup, id)
}

// AddPod creates the cgroups of a pod with the limits that a kubelet sets, and a process in each container.
func (m *Machine) AddPod(p Pod) error {
	pod := &runningPod{
		Pod:   p,
		group: m.PodGroup(p.UID, p.Class),
		pids:  map[string]int{},
		waits: map[string]time.Duration{},
	}

	// A pod is limited only if each of its containers is.
	var sum Container

	unlimited := len(p.Containers) == 0
	for _, c := range p.Containers {
		sum.RequestCPU += c.RequestCPU
		sum.LimitCPU += c.LimitCPU
		unlimited = unlimited || c.LimitCPU == 0
	}

	if unlimited {
		sum.LimitCPU = 0
	}

	if err := m.make(pod.group); err != nil {
		return err
	}

	if err := m.limit(pod.group, sum); err != nil {
		return err
	}

	for _, c := range p.Containers {
		group := m.ContainerGroup(pod.group, c.ID)
		if err := m.make(group); err != nil {
			return err
		}

		if err := m.limit(group, c); err != nil {
			return err
		}

		m.pid++
		pod.pids[c.ID] = m.pid

		if err := m.tree.Attach(group, m.pid); err != nil {
			return err
		}

		// Each container has one process with one thread, whose ID is that of the process.
		threads := "cgroup.threads"
		if m.spec.V1 {
			threads = "tasks"
		}

		if err := set(filepath.Join(m.tree.Dir, group), threads, strconv.Itoa(m.pid)); err != nil {
			return err
		}
	}

	m.pods[p.UID] = pod
	return nil
}

// limit applies the settings of the kubelet and runc for a container.
func (m *Machine) limit(group string, c Container) error {
	shares := max(c.RequestCPU*usualShares/1000, minShares)
	settings := [][2]string{{"cpu.shares", strconv.FormatInt(shares, 10)}}
	if c.LimitCPU > 0 {
		settings = append(settings, [2]string{"cpu.cfs_quota_us", strconv.FormatInt(c.LimitCPU*100, 10)})
	}
	if c.LimitMem > 0 {
		settings = append(settings, [2]string{"memory.limit_in_bytes", strconv.FormatInt(c.LimitMem, 10)})
	}

	if !m.spec.V1 {
		// Shares of 2 to 262144 are converted to weights of 1 to 10000.
		settings = [][2]string{{"cpu.weight", strconv.FormatInt(1+(shares-minShares)*(maxWeight-minWeight)/(maxShares-minShares), 10)}}
		if c.LimitCPU > 0 {
			settings = append(settings, [2]string{"cpu.max", fmt.Sprintf("%d %d", c.LimitCPU*100, defaultPeriod)})
		}
		if c.LimitMem > 0 {
			settings = append(settings, [2]string{"memory.max", strconv.FormatInt(c.LimitMem, 10)})
		}
	}

	for _, s := range settings {
		if err := m.set(group, s[0], s[1]); err != nil {
			return err
		}
	}

	return nil
}

// SetDemand sets the demand of a container.
func (m *Machine) SetDemand(uid, container string, l Load) error {
	p := m.pods[uid]
	if p == nil {
		return fmt.Errorf("unknown pod %s", uid)
	}

	for i := range p.Containers {
		if p.Containers[i].ID == container {
			p.Containers[i].Demand = l
			return nil
		}
	}

	return fmt.Errorf("pod %s has no container %s", uid, container)
}

// RemovePod kills a pod's processes and removes its cgroups with their memory.
func (m *Machine) RemovePod(uid string) error {
	p := m.pods[uid]
	if p == nil {
		return fmt.Errorf("unknown pod %s", uid)
	}

	delete(m.pods, uid)
	groups := make([]string, 0, len(p.Containers)+1)
	for _, c := range p.Containers {
		groups = append(groups, m.ContainerGroup(p.group, c.ID))
	}

	// Containers first: a group with groups below it cannot be removed.
	for _, group := range append(groups, p.group) {
		if group != p.group {
			if err := m.tree.free(group); err != nil {
				return err
			}
		}

		if err := m.tree.Detach(group); err != nil {
			return err
		}

		if err := m.tree.Remove(group); err != nil {
			return err
		}
	}

	return nil
}

// Advance simulates the time since the last call, at most a minute, and returns the use of containers by ID.
func (m *Machine) Advance() (map[string]Use, error) {
	now := m.clock.Now()
	span := min(now.Sub(m.last), time.Minute)
	m.last = now

	if span <= 0 {
		return map[string]Use{}, nil
	}

	var loads []Load
	var ids []string
	for _, p := range m.pods {
		for _, c := range p.Containers {
			l := c.Demand
			l.Group = m.ContainerGroup(p.group, c.ID)
			loads = append(loads, l)
			ids = append(ids, c.ID)
		}
	}

	system := min(m.spec.System.CPU, float64(m.spec.CPUs))
	got, err := m.tree.tick(span, loads, float64(m.spec.CPUs)-system)
	if err != nil {
		return nil, err
	}

	got.span = span
	m.account(got, loads, system)

	out := make(map[string]Use, len(loads))
	for i, id := range ids {
		out[id] = got.got[i]
	}

	for _, p := range m.pods {
		for _, c := range p.Containers {
			// Unmet demand is the wait time of its threads.
			p.waits[c.ID] += time.Duration(math.Max(c.Demand.CPU-out[c.ID].CPU, 0) * float64(span))
		}
	}

	return out, m.show(got)
}

// account adds a span to the machine's counters.
func (m *Machine) account(t tick, loads []Load, system float64) {
	used := system
	wanted := system
	for i, g := range t.got {
		used += g.CPU
		wanted += loads[i].CPU
		short := loads[i].Anon + loads[i].File - g.Anon - g.File
		m.reads += (math.Max(float64(short), 0) + g.Read) * t.span.Seconds()
		m.writes += g.Written * t.span.Seconds()
	}

	const perSecond = 100
	m.busy += perSecond * t.span.Seconds() * used
	m.idle += perSecond * t.span.Seconds() * math.Max(float64(m.spec.CPUs)-used, 0)
	for i, over := range []float64{60, 300, 900} {
		keep := math.Exp(-t.span.Seconds() / over)
		m.load[i] = m.load[i]*keep + wanted*(1-keep)
	}
}
