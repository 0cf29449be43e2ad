// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodespec defines the messages between the process that starts a node and the node's first process: the
// specification of the node and its progress reports.
package nodespec

import (
	"net/netip"
	"time"
)

// Node is the specification of a node for its first process. It is passed as JSON through a pipe to a namespace node,
// or on a drive to a virtual machine.
type Node struct {
	// Name is the host name and the name of the Node object.
	Name string `json:"name"`
	// Address is the address of the node's only interface, with the prefix of the network; Gateway is its default
	// route.
	Address netip.Prefix `json:"address"`
	Gateway netip.Addr   `json:"gateway"`
	// Hierarchies lists the cgroup v1 hierarchies to mount as comma-separated lists like those of /proc/self/cgroup
	// ("cpu,cpuacct", "name=systemd"); none means cgroup v2 only.
	Hierarchies []string `json:"hierarchies,omitempty"`
	// Unified means that the host mounts cgroup v2 in addition to v1.
	Unified bool `json:"unified,omitempty"`
	// Machine means that the node is a virtual machine, which does not share the host's kernel.
	Machine bool `json:"machine,omitempty"`
	// Clock is the host's time, to which a virtual machine sets its clock.
	Clock time.Time `json:"clock"`
	// DiskBytes is the size of the root file system in memory in bytes; ignored in a virtual machine.
	DiskBytes int64 `json:"diskBytes,omitempty"`
	// SwapMiB is the swap of a virtual machine in MiB.
	SwapMiB int `json:"swapMiB,omitempty"`
	// Root is an empty host directory on which the node's root file system is mounted in its own mount namespace.
	Root string `json:"root,omitempty"`
	// Binds maps paths in the node to host files and directories that are mounted read-only.
	Binds map[string]string `json:"binds,omitempty"`
	// Files maps absolute paths to files to write.
	Files map[string]File `json:"files,omitempty"`
	// NUMA lists the CPUs of each emulated NUMA zone, such as "0-1"; empty keeps the host's zones.
	NUMA []string `json:"numa,omitempty"`
	// Steps run in order; the node is up after the last.
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
	// Daemon means that the program runs for the life of the node, which ends with it. The next step starts when
	// Socket, if set, accepts connections. Other programs must exit before the next step starts or, with Background,
	// before the node is up.
	Daemon bool `json:"stays,omitempty"`
	// Restart restarts a daemon that exits after the node is up, instead of ending the node.
	Restart    bool   `json:"again,omitempty"`
	Background bool   `json:"beside,omitempty"`
	Socket     string `json:"socket,omitempty"`
}

// Report is one line of JSON from the first process.
type Report struct {
	// Step is the completed or failed step.
	Step string `json:"step"`
	// Took is the time since the start of the first process.
	Took time.Duration `json:"took"`
	// Error is the error that ended the node, in its last report.
	Error string `json:"error,omitempty"`
}

// Steps reported in addition to Node.Steps.
const (
	// Booted is reported by a virtual machine as soon as its kernel has found its devices.
	Booted = "booted"
	// Mounted is reported when the first process has read its configuration and mounted its root file system.
	Mounted = "mounted"
	// Up is reported when all steps are done.
	Up = "up"
)

// File descriptors of the first process of a namespace node.
const (
	ConfigFD = 3 // Node, as JSON, up to the end of the stream
	ReportFD = 4 // reports, one per line
	LogFD    = 5 // output of the first step, and one more descriptor for each further step
)

// Identifiers of a virtual machine's devices.
const (
	RootSerial   = "root"   // serial number of the drive with the root file system
	ConfigSerial = "config" // serial number of the drive with the Node as JSON, followed by zeros
	ReportPort   = 1        // number of the serial port for reports
	LogPort      = 2        // port for the output of the first step, followed by one port per further step
)
