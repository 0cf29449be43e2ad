// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package realnode

import (
	"errors"
	"fmt"
	"regexp"
	"runtime"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"crane.io/crane/internal/testbed/realnode/bridge"
	"crane.io/crane/internal/testbed/realnode/nodeinit"
)

// CPU manager policies of the kubelet.
const (
	CPUManagerNone   = "none"
	CPUManagerStatic = "static"
)

// Cgroup drivers of the kubelet and of containerd.
const (
	CgroupFS = "cgroupfs"
	Systemd  = "systemd"
)

// Container runtimes.
const (
	Containerd = "containerd"
	CRIO       = "crio"
)

// Defaults of NodeOptions.
const (
	// defaultDisk is much more than the test images and the logs of a long session need; it is a bound, memory is taken
	// as files are written.
	defaultDisk = 2 << 30
	// machineCPUs: with the static policy two are too few for the shared pool and an exclusive one beside each other.
	machineCPUs = 4
	// machineMemory is what containerd, the kubelet and some test pods fit in, in MiB.
	machineMemory = 1536
	// capsuleBound and machineBound are many times what the start of a node takes.
	capsuleBound = 60 * time.Second
	machineBound = 6 * time.Minute
)

// NodeOptions describe one node. The zero value is a node with the host's own cgroup version and the kubelet's defaults.
type NodeOptions struct {
	// Name of the node; empty means node-1 and so on.
	Name string
	// Cgroup is the cgroup version, 1 or 2; 0 means the host's. A version that the host does not have makes the node a
	// virtual machine, which is much slower. With the driver systemd 0 means 2, and 1 is hybrid.
	Cgroup int
	// Machine makes the node a virtual machine whatever the host's cgroup version.
	Machine bool
	// CgroupDriver is "cgroupfs", which is the default, or "systemd", which makes the node a virtual machine with systemd as its
	// first process.
	CgroupDriver string
	// Runtime is Containerd, which is the default, or CRIO, which has to be built beforehand.
	Runtime string
	// CPUManagerPolicy is CPUManagerNone, the default, or CPUManagerStatic, which needs ReservedCPUs.
	CPUManagerPolicy string
	// ReservedCPUs are kept from pods, a list such as "0" or "0-1".
	ReservedCPUs string
	// Reserved is kept from pods beside that: a node sees all the memory of its machine.
	Reserved corev1.ResourceList
	// Scattered spreads the kubelet's configuration as some installations do: its file is not in its directory, ReservedCPUs are in a
	// drop-in file and Reserved is a flag.
	Scattered bool
	// OwnCertificate lets the kubelet serve with a certificate of its own making, as it does where nobody gives it another. The API server
	// here does not trust it: there are no logs of such a node's pods, and no exec.
	OwnCertificate bool
	// NUMAZones shows the CPUs in so many zones of equal size. It is sysfs alone that says so, which is what the kubelet and agents read;
	// memory is not divided. 0 leaves the machine's own.
	NUMAZones int
	// RealZones gives a virtual machine these zones, each with its part of the memory.
	RealZones bool
	// Threads is how many threads a core of a virtual machine has; 0 means 1.
	Threads int
	// TopologyPolicy is the kubelet's topology manager policy, such as "single-numa-node"; empty means "none".
	TopologyPolicy string
	// EvictMemoryBelow is the available memory below which the kubelet evicts pods, such as "300Mi"; empty means 100Mi.
	EvictMemoryBelow string
	// MemoryThrottling is the kubelet's memoryThrottlingFactor, above 0 and at most 1: with it the kubelet has the gate MemoryQoS and sets
	// memory.high of containers on cgroup v2. 0 is without.
	MemoryThrottling float64
	// SwapMiB is a virtual machine's swap. The kubelet then lets pods of class Burstable have some (LimitedSwap). 0 is none.
	SwapMiB int
	// DiskBytes is the size of a capsule's file system, which is in memory; 0 means 2 GiB.
	DiskBytes int64
	// CPUs and MemoryMiB size a virtual machine; 0 means 4 and 1536.
	CPUs, MemoryMiB int
	// Restart starts the runtime and the kubelet again when they end, as a service manager would. Without it their end is the node's.
	Restart bool
	// Taints that the Node object is registered with.
	Taints []corev1.Taint
	// Labels of the Node object.
	Labels map[string]string
}

// complete fills in defaults for node i, counted from 1, on a host with that cgroup version, and checks.
func (o NodeOptions) complete(i, hostVersion int) (NodeOptions, error) {
	if o.Name == "" {
		o.Name = fmt.Sprintf("node-%d", i)
	}
	if o.Cgroup == 0 {
		o.Cgroup = hostVersion
		if o.systemd() {
			o.Cgroup = 2
		}
	}
	o.Machine = o.Machine || o.Cgroup != hostVersion || o.systemd()
	if o.DiskBytes == 0 {
		o.DiskBytes = defaultDisk
	}
	if o.CPUs == 0 {
		o.CPUs = machineCPUs
	}
	if o.MemoryMiB == 0 {
		o.MemoryMiB = machineMemory
	}
	if o.Threads == 0 {
		o.Threads = 1
	}
	if o.EvictMemoryBelow == "" {
		o.EvictMemoryBelow = "100Mi"
	}
	return o, o.validate()
}

func (o NodeOptions) validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("node %s: "+format, append([]any{o.Name}, args...)...))
		}
	}
	check(regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,40}[a-z0-9])?$`).MatchString(o.Name), "not a name for a node")
	check(o.Cgroup == 1 || o.Cgroup == 2, "cgroup version %d, want 1 or 2", o.Cgroup)
	check(slices.Contains([]string{"", CgroupFS, Systemd}, o.CgroupDriver), "cgroup driver %q, want %s or %s", o.CgroupDriver, CgroupFS, Systemd)
	check(slices.Contains([]string{"", Containerd, CRIO}, o.Runtime), "runtime %q, want %s or %s", o.Runtime, Containerd, CRIO)
	check(slices.Contains([]string{"", CPUManagerNone, CPUManagerStatic}, o.CPUManagerPolicy),
		"CPU manager policy %q, want %s or %s", o.CPUManagerPolicy, CPUManagerNone, CPUManagerStatic)
	check(o.CPUManagerPolicy != CPUManagerStatic || o.ReservedCPUs != "", "the static CPU manager policy needs reserved CPUs")
	check(o.DiskBytes >= 64<<20, "a disk of %d bytes, want 64 MiB or more", o.DiskBytes)
	check(o.CPUs >= 1 && o.CPUs <= 64, "%d CPUs, want 1 to 64", o.CPUs)
	check(o.MemoryMiB >= 768, "%d MiB of memory, want 768 or more", o.MemoryMiB)
	check(o.MemoryThrottling >= 0 && o.MemoryThrottling <= 1, "a memory throttling factor of %g, want 0 to 1", o.MemoryThrottling)
	check(o.SwapMiB == 0 || o.Machine && o.SwapMiB > 0, "%d MiB of swap take a virtual machine", o.SwapMiB)
	check(o.Machine || !o.RealZones, "zones that are real take a virtual machine")
	check(!o.Machine || o.Threads == 1 && !o.RealZones || o.Threads >= 1 && o.CPUs%(o.Threads*max(1, o.NUMAZones)) == 0, "%d CPUs are not whole cores of %d threads in %d zones", o.CPUs, o.Threads, o.NUMAZones)
	check(o.NUMAZones >= 0 && o.NUMAZones <= o.cpus(), "%d NUMA zones for %d CPUs", o.NUMAZones, o.cpus())
	if o.ReservedCPUs != "" {
		_, err := nodeinit.ParseCPUs(o.ReservedCPUs)
		check(err == nil, "reserved CPUs: %v", err)
	}
	return errors.Join(errs...)
}

// systemd tells whether systemd makes the cgroups.
func (o NodeOptions) systemd() bool { return o.CgroupDriver == Systemd }

// crio tells whether the runtime is CRI-O.
func (o NodeOptions) crio() bool { return o.Runtime == CRIO }

// socket is where the kubelet finds the runtime.
func (o NodeOptions) socket() string {
	if o.crio() {
		return crioSocket
	}
	return containerdSocket
}

// kernelArguments of a virtual machine.
func (o NodeOptions) kernelArguments() string {
	switch {
	case !o.systemd():
		return ""
	case o.Cgroup == 1:
		// With a v2 tree without controllers beside: hybrid.
		return "systemd.getty_auto=no systemd.unified_cgroup_hierarchy=no"
	}
	return "systemd.getty_auto=no"
}

// cpus is the number of CPUs that the node sees.
func (o NodeOptions) cpus() int {
	if o.Machine {
		return o.CPUs
	}
	return runtime.NumCPU()
}

// zones are the CPUs of each NUMA zone.
func (o NodeOptions) zones() []string {
	var zones []string
	for z := range o.NUMAZones {
		first, last := z*o.cpus()/o.NUMAZones, (z+1)*o.cpus()/o.NUMAZones-1
		if first == last {
			zones = append(zones, fmt.Sprint(first))
		} else {
			zones = append(zones, fmt.Sprintf("%d-%d", first, last))
		}
	}
	return zones
}

// bound is how long the start of the node may take.
func (o NodeOptions) bound() time.Duration {
	if o.Machine {
		return machineBound
	}
	return capsuleBound
}

// checkNames refuses two nodes of one name, or too many.
func checkNames(nodes []NodeOptions) error {
	if len(nodes) > bridge.MaxNodes {
		return fmt.Errorf("%d nodes, want at most %d", len(nodes), bridge.MaxNodes)
	}
	seen := map[string]bool{}
	for _, n := range nodes {
		if seen[n.Name] {
			return fmt.Errorf("two nodes of the name %s", n.Name)
		}
		seen[n.Name] = true
	}
	return nil
}
