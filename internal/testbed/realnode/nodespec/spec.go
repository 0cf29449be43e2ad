// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodespec is the contract between who starts a node and the node's first process: what the node is to look like, and
// what it reports back. It holds values alone; both sides import it, and the first process is small because of it.
package nodespec

import (
	"net/netip"
	"time"
)

// Node is everything that the first process of a node needs. It travels as JSON: through a pipe into namespaces, on a
// drive of its own into a virtual machine.
type Node struct {
	// Name is the host name and the name of the Node object.
	Name string `json:"name"`
	// Address of the node's only interface, with the prefix of the network; Gateway is its default route.
	Address netip.Prefix `json:"address"`
	Gateway netip.Addr   `json:"gateway"`
	// Hierarchies are the cgroup v1 hierarchies to mount, each a comma-separated list as /proc/self/cgroup names it
	// ("cpu,cpuacct", "name=systemd"); none means cgroup v2 alone.
	Hierarchies []string `json:"hierarchies,omitempty"`
	// Unified says that the host mounts cgroup v2 as well.
	Unified bool `json:"unified,omitempty"`
	// Machine is a virtual machine of its own: there is no host to be shielded from.
	Machine bool `json:"machine,omitempty"`
	// Clock is the time on the host; a machine whose own clock is far from it takes it over.
	Clock time.Time `json:"clock"`
	// DiskBytes is the size of the node's root file system, which is memory. Ignored in a machine.
	DiskBytes int64 `json:"diskBytes,omitempty"`
	// SwapMiB is the swap of a machine.
	SwapMiB int `json:"swapMiB,omitempty"`
	// Root is an empty directory of the host where the node's root file system is put together, for nobody else to see.
	Root string `json:"root,omitempty"`
	// Binds are files and directories of the host to be seen read-only in the node, by their place there.
	Binds map[string]string `json:"binds,omitempty"`
	// Files to write, by absolute path.
	Files map[string]File `json:"files,omitempty"`
	// NUMA are the CPUs of each faked NUMA zone as lists such as "0-1"; none shows those of the host.
	NUMA []string `json:"numa,omitempty"`
	// Steps are done in order; the node is up when the last is done.
	Steps []Step `json:"steps"`
}

// File is the content of a file to write.
type File struct {
	Content string `json:"content"`
	Mode    uint32 `json:"mode,omitempty"` // 0 means 0644
}

// Step is one program to run in the node.
type Step struct {
	Name string   `json:"name"`
	Args []string `json:"args"`
	Env  []string `json:"env,omitempty"`
	// Stays says that the program is to run for as long as the node does: its end is the node's end. The next step begins
	// when Socket, if given, accepts connections. A program that does not stay is waited for, before the next step or, if
	// it runs Beside the others, before the node is up.
	Stays bool `json:"stays,omitempty"`
	// Again says that a program which stays is started again when it ends after the node is up, instead of ending the node.
	Again  bool   `json:"again,omitempty"`
	Beside bool   `json:"beside,omitempty"`
	Socket string `json:"socket,omitempty"`
}

// Report is one line of JSON from the first process.
type Report struct {
	// Step that is done, or that failed.
	Step string `json:"step"`
	// Took is the time since the first process began.
	Took time.Duration `json:"took"`
	// Error says why the node cannot go on. It is the last report.
	Error string `json:"error,omitempty"`
}

// Steps that the first process reports beside those of Node.Steps.
const (
	// Booted comes from a virtual machine as soon as its kernel has found its devices.
	Booted = "booted"
	// Mounted comes when the first process has its configuration and its root file system.
	Mounted = "mounted"
	// Up comes when all steps are done.
	Up = "up"
)

// Descriptors that the first process of a node in namespaces finds open.
const (
	ConfigFD = 3 // Node, as JSON, up to the end of the stream
	ReportFD = 4 // reports, one per line
	LogFD    = 5 // output of the first step, and one more descriptor for each further step
)

// What a virtual machine finds its devices by.
const (
	RootSerial   = "root"   // of the drive with the root file system
	ConfigSerial = "config" // of the drive with the Node, as JSON, then zeros
	ReportPort   = 1        // number of the serial port for reports
	LogPort      = 2        // that for the output of the first step, and one more port for each further step
)
