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
	// defaultDisk is sufficient for the test images and the logs of a long session; memory is allocated only for
	// written files.
	defaultDisk = 2 << 30
	// machineCPUs must leave room for a shared and an exclusive CPU pool under the static policy.
	machineCPUs = 4
	// machineMemory is sufficient for containerd, the kubelet and some test pods, in MiB.
	machineMemory = 1536
	// namespaceNodeTimeout and machineTimeout bound the start of a node; each is many times the usual duration.
	namespaceNodeTimeout = 60 * time.Second
	machineTimeout       = 6 * time.Minute
)

// NodeOptions describes a node. The zero value is a node with the host's cgroup version and the kubelet's defaults.
type NodeOptions struct {
	// Name is the name of the node; empty means node-1 and so on.
	Name string
	// Cgroup is the cgroup version, 1 or 2; 0 means the host's version, or 2 with the driver systemd. A version other
	// than the host's requires a virtual machine, which is much slower. With the driver systemd, 1 is hybrid.
	Cgroup int
	// Machine runs the node as a virtual machine regardless of the cgroup version.
	Machine bool
	// CgroupDriver is "cgroupfs" (default) or "systemd", which requires a virtual machine with systemd as its first
	// process.
	CgroupDriver string
	// Runtime is Containerd (default) or CRIO, which must be built beforehand.
	Runtime string
	// CPUManagerPolicy is CPUManagerNone (default) or CPUManagerStatic, which requires ReservedCPUs.
	CPUManagerPolicy string
	// ReservedCPUs lists the CPUs that pods may not use, such as "0" or "0-1".
	ReservedCPUs string
	// Reserved lists other resources that pods may not use: a node reports all memory of its machine.
	Reserved corev1.ResourceList
	// SplitConfig distributes the kubelet's configuration as some installations do: the file is not in the kubelet's
	// directory, ReservedCPUs are in a drop-in file and Reserved is a flag.
	SplitConfig bool
	// OwnCertificate makes the kubelet serve with a self-signed certificate, its default. The API server does not trust
	// it, so logs and exec of such a node's pods fail.
	OwnCertificate bool
	// NUMAZones is the number of NUMA zones of equal size reported by sysfs, which the kubelet and agents read; memory
	// is not divided. 0 keeps the machine's zones.
	NUMAZones int
	// RealZones gives a virtual machine real NUMA zones, each with a part of the memory.
	RealZones bool
	// Threads is the number of threads per core of a virtual machine; 0 means 1.
	Threads int
	// TopologyPolicy is the kubelet's topology manager policy, such as "single-numa-node"; empty means "none".
	TopologyPolicy string
	// EvictMemoryBelow is the available memory below which the kubelet evicts pods, such as "300Mi"; empty means 100Mi.
	EvictMemoryBelow string
	// MemoryThrottling is the kubelet's memoryThrottlingFactor in (0, 1]: the kubelet enables the feature gate
	// MemoryQoS and sets memory.high of containers on cgroup v2. 0 disables it.
	MemoryThrottling float64
	// SwapMiB is the swap of a virtual machine in MiB. The kubelet then allows Burstable pods to use some
	// (LimitedSwap). 0 is none.
	SwapMiB int
	// DiskBytes is the size of a namespace node's file system in memory; 0 means 2 GiB.
	DiskBytes int64
	// CPUs and MemoryMiB are the size of a virtual machine; 0 means 4 and 1536.
	CPUs, MemoryMiB int
	// Restart restarts the runtime and the kubelet when they exit, as a service manager does. Without it the node ends
	// with them.
	Restart bool
	// Taints are the taints with which the node is registered.
	Taints []corev1.Taint
	// Labels are labels of the Node object.
	Labels map[string]string
}

// complete sets defaults for node i, counted from 1, on a host with that cgroup version, and validates the options.
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

	// Another kernel is needed for the other cgroup version and for systemd.
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

	// Every problem is reported at once.
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("node %s: "+format, append([]any{o.Name}, args...)...))
		}
	}

	check(regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,40}[a-z0-9])?$`).MatchString(o.Name), "invalid node name")
	check(o.Cgroup == 1 || o.Cgroup == 2, "cgroup version %d, want 1 or 2", o.Cgroup)
	check(slices.Contains([]string{"", CgroupFS, Systemd}, o.CgroupDriver), "cgroup driver %q, want %s or %s", o.CgroupDriver, CgroupFS, Systemd)
	check(slices.Contains([]string{"", Containerd, CRIO}, o.Runtime), "runtime %q, want %s or %s", o.Runtime, Containerd, CRIO)
	check(slices.Contains([]string{"", CPUManagerNone, CPUManagerStatic}, o.CPUManagerPolicy),
		"CPU manager policy %q, want %s or %s", o.CPUManagerPolicy, CPUManagerNone, CPUManagerStatic)
	check(o.CPUManagerPolicy != CPUManagerStatic || o.ReservedCPUs != "", "the static CPU manager policy requires reserved CPUs")

	check(o.DiskBytes >= 64<<20, "a disk of %d bytes, want 64 MiB or more", o.DiskBytes)
	check(o.CPUs >= 1 && o.CPUs <= 64, "%d CPUs, want 1 to 64", o.CPUs)
	check(o.MemoryMiB >= 768, "%d MiB of memory, want 768 or more", o.MemoryMiB)
	check(o.MemoryThrottling >= 0 && o.MemoryThrottling <= 1, "a memory throttling factor of %g, want 0 to 1", o.MemoryThrottling)
	check(o.SwapMiB == 0 || o.Machine && o.SwapMiB > 0, "%d MiB of swap require a virtual machine", o.SwapMiB)
	check(o.Machine || !o.RealZones, "real NUMA zones require a virtual machine")
	check(!o.Machine || o.Threads == 1 && !o.RealZones || o.Threads >= 1 && o.CPUs%(o.Threads*max(1, o.NUMAZones)) == 0, "%d CPUs are not whole cores of %d threads in %d zones", o.CPUs, o.Threads, o.NUMAZones)
	check(o.NUMAZones >= 0 && o.NUMAZones <= o.cpus(), "%d NUMA zones for %d CPUs", o.NUMAZones, o.cpus())

	if o.ReservedCPUs != "" {
		_, err := nodeinit.ParseCPUs(o.ReservedCPUs)
		check(err == nil, "reserved CPUs: %v", err)
	}

	return errors.Join(errs...)
}

// systemd reports whether systemd manages the cgroups.
func (o NodeOptions) systemd() bool { return o.CgroupDriver == Systemd }

// crio reports whether the runtime is CRI-O.
func (o NodeOptions) crio() bool { return o.Runtime == CRIO }

// socket returns the runtime's socket.
func (o NodeOptions) socket() string {
	if o.crio() {
		return crioSocket
	}

	return containerdSocket
}

// kernelArguments returns additional kernel arguments of a virtual machine.
func (o NodeOptions) kernelArguments() string {
	switch {
	case !o.systemd():
		return ""
	case o.Cgroup == 1:
		// Hybrid: a v2 hierarchy without controllers exists as well.
		return "systemd.getty_auto=no systemd.unified_cgroup_hierarchy=no"
	}

	return "systemd.getty_auto=no"
}

// cpus returns the number of CPUs of the node.
func (o NodeOptions) cpus() int {
	if o.Machine {
		return o.CPUs
	}

	return runtime.NumCPU()
}

// zones returns the CPUs of each NUMA zone.
func (o NodeOptions) zones() []string {
	var zones []string
	for z := range o.NUMAZones {
		first := z * o.cpus() / o.NUMAZones
		last := (z+1)*o.cpus()/o.NUMAZones - 1
		if first == last {
			zones = append(zones, fmt.Sprint(first))
		} else {
			zones = append(zones, fmt.Sprintf("%d-%d", first, last))
		}
	}

	return zones
}

// startTimeout bounds the start of the node.
func (o NodeOptions) startTimeout() time.Duration {
	if o.Machine {
		return machineTimeout
	}

	return namespaceNodeTimeout
}

// checkNames returns an error for duplicate names or too many nodes.
func checkNames(nodes []NodeOptions) error {
	if len(nodes) > bridge.MaxNodes {
		return fmt.Errorf("%d nodes, want at most %d", len(nodes), bridge.MaxNodes)
	}

	seen := map[string]bool{}
	for _, n := range nodes {
		if seen[n.Name] {
			return fmt.Errorf("duplicate node name %s", n.Name)
		}

		seen[n.Name] = true
	}

	return nil
}
