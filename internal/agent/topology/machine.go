// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	topologyv1alpha1 "crane.io/crane/api/topology/v1alpha1"
	"crane.io/crane/internal/agent/host"
	"crane.io/crane/pkg/numa"
	"crane.io/crane/pkg/units"
)

// maxPageSizes limits the huge page sizes of a zone; current architectures have at most four.
const maxPageSizes = 16

// Machine holds the CPUs and memory according to /sys. It is immutable.
type Machine struct {
	// Zones are ordered by number, which may have gaps.
	Zones []Zone
	// Isolated are the CPUs that the kernel's load balancer leaves alone (isolcpus).
	Isolated numa.CPUSet
	// Problems lists unreadable files and the assumptions made instead.
	Problems []string

	coreByCPU  map[int]int // the lowest CPU of each CPU's physical core
	cacheByCPU map[int]int // the lowest CPU of each CPU's L3 cache, without unknown ones
}

// Zone is a NUMA node. A memory-only node has no CPUs.
type Zone struct {
	ID int
	// CPUs are the online CPUs.
	CPUs   numa.CPUSet
	Memory units.Bytes
	// HugePages is the memory reserved for huge pages, by page size.
	HugePages map[units.Bytes]units.Bytes
	// Distances maps zone IDs to distances, 10 for the zone itself; nil if unknown.
	Distances map[int]int
}

// Name returns the zone's name in NodeResourceTopologies.
func (z *Zone) Name() string { return topologyv1alpha1.ZoneNamePrefix + strconv.Itoa(z.ID) }

// CPUs returns the CPUs of all zones.
func (m *Machine) CPUs() (all numa.CPUSet) {
	for i := range m.Zones {
		all = all.Union(m.Zones[i].CPUs)
	}

	return all
}

// Cores returns the number of physical cores of a set of CPUs.
func (m *Machine) Cores(cpus numa.CPUSet) int {
	cores := map[int]bool{}
	for c := range cpus.All() {
		cores[m.coreByCPU[c]] = true
	}

	return len(cores)
}

// Layout returns the cores, L3 caches and zones of a set of CPUs.
func (m *Machine) Layout(cpus numa.CPUSet) (*numa.Layout, error) {
	var threads []numa.Thread
	for i := range m.Zones {
		for c := range m.Zones[i].CPUs.Intersection(cpus).All() {
			thread := numa.Thread{CPU: c, Core: m.coreByCPU[c], Zone: m.Zones[i].Name()}
			if first, ok := m.cacheByCPU[c]; ok {
				thread.Cache = 1 + first
			}

			threads = append(threads, thread)
		}
	}

	l, err := numa.NewLayout(threads)
	if err != nil {
		return nil, fmt.Errorf("CPUs in /sys: %w", err)
	}

	return l, nil
}

// readIsolated returns the isolated CPUs. Kernels before 4.2 do not list them.
func (s *sysfsReader) readIsolated() numa.CPUSet {
	cpus, err := s.reader.ReadCPUs(s.root.Path("sys/devices/system/cpu/isolated"))
	if err != nil && !errors.Is(err, host.ErrGone) {
		s.problemf("%v: no CPU counts as isolated", err)
	}

	return cpus
}

// ReadMachine reads the machine's CPUs and zones. Unreadable parts are reported as problems: without zones the machine is one zone,
// without cores each CPU is a core, without L3 caches they are unknown. It returns an error only if no CPU is known.
func ReadMachine(root host.Root) (*Machine, error) {
	s := &sysfsReader{root: root}
	m := &Machine{Isolated: s.readIsolated()}

	// The zones alone list the CPUs if the list of online ones is unreadable.
	online, err := s.reader.OnlineCPUs(root)
	if err != nil {
		s.problemf("%v: using those of the zones", err)
	}

	for _, id := range s.listZones() {
		z := s.readZone(id)
		if err == nil {
			z.CPUs = z.CPUs.Intersection(online)
		}

		if duplicates := z.CPUs.Intersection(m.CPUs()); duplicates.Len() > 0 {
			s.problemf("CPUs %s are in zone %d and in a previous one, which keeps them", duplicates, id)
			z.CPUs = z.CPUs.Difference(duplicates)
		}

		m.Zones = append(m.Zones, z)
	}

	if len(m.Zones) == 0 {
		if err != nil {
			return nil, err
		}

		m.Zones = []Zone{s.singleZone(online)}
	}

	if lost := online.Difference(m.CPUs()); lost.Len() > 0 {
		s.problemf("CPUs %s are in no zone and are ignored", lost)
	}

	if m.CPUs() == (numa.CPUSet{}) {
		return nil, errors.New("no zone has an online CPU")
	}

	s.readDistances(m.Zones)
	m.coreByCPU = s.readCores(m.Zones)
	m.cacheByCPU = s.readCaches(m.CPUs())
	m.Problems = s.problems

	return m, nil
}

// sysfsReader reads files below /sys/devices/system.
type sysfsReader struct {
	root     host.Root
	reader   host.Reader
	problems []string
}

func (s *sysfsReader) problemf(format string, args ...any) {
	const maxProblems = 20
	if len(s.problems) < maxProblems {
		s.problems = append(s.problems, fmt.Sprintf(format, args...))
	}
}

// read returns the content of a file, valid until the next call.
func (s *sysfsReader) read(parts ...string) ([]byte, error) {
	return s.reader.ReadPath(s.root.Path(parts...))
}

// readCPUs reads a CPU list.
func (s *sysfsReader) readCPUs(name string) (numa.CPUSet, error) {
	return s.reader.ReadCPUs(s.root.Path("sys/devices/system", name))
}

// listZones returns the NUMA node numbers in ascending order.
func (s *sysfsReader) listZones() []int {
	ids, err := s.reader.ListZones(s.root)
	if err != nil {
		s.problemf("zones: %v", err)
	}

	if len(ids) > numa.MaxZones {
		s.problemf("%d zones, using the first %d", len(ids), numa.MaxZones)
		ids = ids[:numa.MaxZones]
	}

	return ids
}

// readZone reads a zone without its distances.
func (s *sysfsReader) readZone(id int) Zone {
	z := Zone{ID: id}
	dir := fmt.Sprintf("node/node%d", id)
	var err error
	if z.CPUs, err = s.readCPUs(dir + "/cpulist"); err != nil {
		s.problemf("CPUs of zone %d: %v", id, err)
	}

	// Without its memory the zone still has its CPUs.
	content, err := s.read("sys/devices/system", dir, "meminfo")
	if err == nil {
		var memory host.ZoneMemory
		memory, err = host.ParseZoneMeminfo(content)
		if err == nil && memory.Total > units.Bytes(numa.MaxAmount) {
			err = fmt.Errorf("%d bytes exceed the maximum", memory.Total)
		}
		if err == nil {
			z.Memory = memory.Total
		}
	}

	if err != nil {
		s.problemf("memory of zone %d: %v", id, err)
	}

	z.HugePages = s.readHugePages(dir + "/hugepages")
	return z
}

// readHugePages reads the files hugepages-<size>kB/nr_hugepages.
func (s *sysfsReader) readHugePages(dir string) map[units.Bytes]units.Bytes {
	var sizes []uint64
	err := s.reader.Subdirectories(s.root.Path("sys/devices/system", dir), func(name []byte) {
		text, ok := strings.CutPrefix(string(name), "hugepages-")
		text, inKB := strings.CutSuffix(text, "kB")
		if kib, err := strconv.ParseUint(text, 10, 40); ok && inKB && err == nil && kib > 0 && len(sizes) < maxPageSizes {
			sizes = append(sizes, kib)
		}
	})
	if err != nil {
		return nil // a kernel without huge pages or a zone without memory
	}

	slices.Sort(sizes)
	var out map[units.Bytes]units.Bytes
	for _, kib := range sizes {
		content, err := s.read("sys/devices/system", dir, fmt.Sprintf("hugepages-%dkB", kib), "nr_hugepages")
		var n uint64
		if err == nil {
			n, err = host.ParseSingle(content)
		}
		if err == nil && n > uint64(numa.MaxAmount)>>10/kib {
			err = fmt.Errorf("%d pages exceed the maximum", n)
		}

		if err != nil {
			s.problemf("%s of %d KiB: %v", dir, kib, err)
			continue
		}

		if n > 0 {
			if out == nil {
				out = map[units.Bytes]units.Bytes{}
			}
			out[units.Bytes(kib<<10)] = units.Bytes(n * kib << 10)
		}
	}

	return out
}

// singleZone returns the whole machine as one zone, for kernels without NUMA.
func (s *sysfsReader) singleZone(online numa.CPUSet) Zone {
	z := Zone{CPUs: online}
	s.problemf("/sys/devices/system/node has no zones: the machine counts as one zone")

	content, err := s.read("proc/meminfo")
	var memory host.Memory
	if err == nil {
		memory, err = host.ParseMeminfo(content)
	}
	if err != nil {
		s.problemf("memory: %v", err)
	}

	z.Memory = memory.Total
	return z
}

// readDistances reads the distances of each zone, which are in the order of the zones.
func (s *sysfsReader) readDistances(zones []Zone) {
	for i := range zones {
		content, err := s.read("sys/devices/system", fmt.Sprintf("node/node%d/distance", zones[i].ID))
		if err != nil {
			if !errors.Is(err, host.ErrGone) || len(zones) > 1 {
				s.problemf("distances of zone %d: %v", zones[i].ID, err)
			}
			continue
		}

		fields := strings.Fields(string(content))
		if len(fields) != len(zones) {
			s.problemf("zone %d has %d distances for %d zones: they are ignored", zones[i].ID, len(fields), len(zones))
			continue
		}

		// A distance that is no number makes the whole row unknown.
		row := make(map[int]int, len(fields))
		for k, text := range fields {
			d, err := strconv.ParseUint(text, 10, 15)
			if err != nil {
				s.problemf("distances of zone %d: %.40q is not a distance: they are ignored", zones[i].ID, text)
				row = nil
				break
			}

			row[zones[k].ID] = int(d)
		}

		zones[i].Distances = row
	}
}

// readCores returns the physical core of each CPU, identified by sibling threads. A core cannot span zones; siblings in other zones are
// ignored.
func (s *sysfsReader) readCores(zones []Zone) map[int]int {
	cores := map[int]int{}
	unknown := 0
	firstErr := error(nil)
	for i := range zones {
		n, err := groupCPUs(zones[i].CPUs, cores, s.readSiblings)
		unknown += n
		firstErr = cmp.Or(firstErr, err)
	}

	for i := range zones {
		for c := range zones[i].CPUs.All() {
			if _, assigned := cores[c]; !assigned {
				cores[c] = c
			}
		}
	}

	if unknown > 0 {
		s.problemf("cores of %d CPUs are unknown, each CPU counts as one: %v", unknown, firstErr)
	}

	return cores
}

// groupCPUs adds to groups the group of each CPU in a set, identified by the CPU that listed it first. CPUs outside of the set are ignored, and
// those of an earlier group stay there. It returns the number of CPUs whose group is unknown, with the first error; host.ErrGone means none.
func groupCPUs(cpus numa.CPUSet, groups map[int]int, read func(cpu int) (numa.CPUSet, error)) (unknown int, firstErr error) {
	for c := range cpus.All() {
		if _, assigned := groups[c]; assigned {
			continue
		}

		members, err := read(c)
		if errors.Is(err, host.ErrGone) {
			continue
		}

		if err != nil {
			unknown++
			firstErr = cmp.Or(firstErr, err)
			continue
		}

		for member := range members.Intersection(cpus).All() {
			if _, assigned := groups[member]; !assigned {
				groups[member] = c
			}
		}
	}

	return unknown, firstErr
}

func (s *sysfsReader) readSiblings(cpu int) (numa.CPUSet, error) {
	dir := fmt.Sprintf("cpu/cpu%d/topology/", cpu)
	set, err := s.readCPUs(dir + "core_cpus_list")
	if errors.Is(err, host.ErrGone) {
		set, err = s.readCPUs(dir + "thread_siblings_list") // name before Linux 5.3
	}

	if errors.Is(err, host.ErrGone) {
		err = fmt.Errorf("there is neither core_cpus_list nor thread_siblings_list in /sys/devices/system/%s", dir)
	}
	if err == nil && !set.Contains(cpu) {
		err = fmt.Errorf("CPU %d is not among its own siblings %s", cpu, set)
	}

	return set, err
}
