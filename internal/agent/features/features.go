// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package features

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"crane.io/crane/internal/agent/host"
	"crane.io/crane/internal/agent/host/cgroup"
	"crane.io/crane/internal/agent/kubeletsocket"
	"crane.io/crane/internal/agent/observe"
)

// State is the state of a feature.
type State string

// States.
const (
	On State = "on"
	// Off: supported but not used.
	Off State = "off"
	// Unsupported: not supported by this host.
	Unsupported State = "unsupported"
)

// Feature is a capability of the agent that depends on the host.
type Feature struct {
	Name  string `json:"name"`
	State State  `json:"state"`
	// Reason explains the state.
	Reason string `json:"reason,omitempty"`
}

// String formats the feature for kubectl: "off" or "unsupported: reason".
func (f Feature) String() string {
	if f.Reason == "" {
		return string(f.State)
	}

	return string(f.State) + ": " + f.Reason
}

func on(name, found string) Feature        { return Feature{name, On, found} }
func off(name, why string) Feature         { return Feature{name, Off, why} }
func unsupported(name, why string) Feature { return Feature{name, Unsupported, why} }
func onIf(name string, ok bool, why string) Feature {
	if ok {
		return on(name, "")
	}

	return unsupported(name, why)
}

// usable returns a kernel feature that the flags may leave unused.
func (h Host) usable(name string, ok bool, why string) Feature {
	switch {
	case !ok:
		return unsupported(name, why)
	case h.UnusedReasons[name] != "":
		return off(name, h.UnusedReasons[name])
	}

	return on(name, "")
}

// Host is the host to inspect.
type Host struct {
	Root host.Root
	// KubeletRoot is the kubelet's directory below Root.
	KubeletRoot string
	// Assignments are what the kubelet's socket reports, used where its state files are not visible; nil for none.
	Assignments kubeletsocket.Source
	// Layout is nil without cgroups; LayoutError is the reason.
	Layout      *cgroup.Layout
	LayoutError error
	// UnusedReasons holds the reason a supported kernel feature is not used, by its name.
	UnusedReasons map[string]string
	// CyclesUnsupported returns why cycles and instructions of pods cannot be counted, empty if they can; nil if they are not to be
	// counted.
	CyclesUnsupported func() string
}

// Features that the agent may leave unused.
const (
	CPUBurst      = "cpu-burst"
	CPUIdle       = "cpu-idle-class"
	MemoryHigh    = "memory-high"
	MemoryReclaim = "memory-reclaim"
	NUMA          = "numa"
)

// RunQueueWait is the feature of measuring how long threads wait for a CPU.
const RunQueueWait = "run-queue-wait"

// List returns the features of a host in display order. The result changes only with the host.
func List(h Host, s *observe.Snapshot) []Feature {
	var out []Feature
	if h.Layout == nil {
		out = append(out, unsupported("cgroups", h.LayoutError.Error()))
	} else {
		out = append(out, h.cgroups(s)...)
	}

	out = append(out,
		measured("node-cpu", s.Node.CPUs.OK, s, "cpu"), measured("node-memory", s.Node.Memory.OK, s, "memory"),
		pressure("node-pressure", s.Node.Pressure.Supported(), s.Problems["pressure cpu"]),
		measured("disks", s.Problems["disks"] == "", s, "disks"), measured("network", s.Problems["network"] == "", s, "network"),
		h.podDisks(), h.numaZones(), h.runQueue(), h.interference(), h.cyclesPerInstruction(),
		h.kubeletPolicy("kubelet-cpu-manager", "cpu_manager_state", func(a kubeletsocket.Assignments) bool { return a.StaticCPUs }),
		h.kubeletPolicy("kubelet-memory-manager", "memory_manager_state", func(a kubeletsocket.Assignments) bool { return a.StaticMemory }),
		runtimeSocket(h.Root),
	)

	return out
}

func measured(name string, ok bool, s *observe.Snapshot, subject string) Feature {
	return onIf(name, ok, s.Problems[subject])
}

func pressure(name string, ok bool, problem string) Feature {
	if !ok && (problem == "" || strings.HasSuffix(problem, host.ErrGone.Error())) {
		problem = "the kernel was built without PSI, or started with psi=0"
	}

	return onIf(name, ok, problem)
}

// cgroups returns the features that depend on the kernel's cgroup files.
func (h Host) cgroups(s *observe.Snapshot) []Feature {
	l := h.Layout
	found := fmt.Sprintf("cgroup %s", l.Version)
	pods := unsupported("pods", "no kubepods cgroup: no kubelet runs here")
	if l.Pods != "" {
		found += ", driver " + string(l.Driver)
		pods = on("pods", "in "+l.Pods)
		if problem := s.Problems["pods"]; problem != "" {
			pods.Reason += "; " + problem
		}
	}

	// Without these files the host has another cgroup version, or on v2 an old kernel.
	v2 := l.Version == cgroup.V2

	onV1 := fmt.Sprintf("cgroup %s", l.Version)
	if v2 {
		onV1 = "the kernel is too old"
	}

	podPressure := l.HasFile("unified", "cpu.pressure")
	return []Feature{
		on("cgroups", found), pods,
		onIf("pod-cpu", l.MissingReason("cpu") == "", l.MissingReason("cpu")),
		onIf("pod-throttling", l.MissingReason("cpu") == "", l.MissingReason("cpu")),
		onIf("pod-memory", l.MissingReason("memory") == "", l.MissingReason("memory")),
		onIf("pod-pressure", podPressure, "no cpu.pressure in a cgroup v2 tree, or the kernel was started with psi=0"),
		h.usable(CPUBurst, l.HasFile("cpu", burstFile(v2)), "no "+burstFile(v2)),
		h.usable(CPUIdle, l.HasFile("cpu", "cpu.idle"), "no cpu.idle"),
		h.usable(MemoryHigh, v2 && l.HasFile("memory", "memory.high"), onV1),
		h.usable(MemoryReclaim, v2 && l.HasFile("memory", "memory.reclaim"), onV1),
	}
}

func burstFile(v2 bool) string {
	if v2 {
		return "cpu.max.burst"
	}

	return "cpu.cfs_burst_us"
}

func (h Host) numaZones() Feature {
	var reader host.Reader
	zones := 0
	err := reader.Subdirectories(h.Root.Path("sys/devices/system/node"), func(name []byte) {
		if rest, ok := strings.CutPrefix(string(name), "node"); ok && strings.Trim(rest, "0123456789") == "" {
			zones++
		}
	})

	f := h.usable(NUMA, err == nil && zones > 0, "no NUMA zones in /sys/devices/system/node")
	if f.State == On {
		f.Reason = fmt.Sprintf("%d zones", zones)
	}

	return f
}

func (h Host) runQueue() Feature {
	content, err := (&host.Reader{}).ReadPath(h.Root.Path("proc/self/schedstat"))
	if err == nil {
		_, err = host.ParseSchedStat(content)
	}

	if err != nil {
		return unsupported(RunQueueWait, "the kernel has no schedstat: "+err.Error())
	}

	// PIDs of the host's /proc are valid for this process only in the host's PID namespace.
	if pid, err := os.Readlink(h.Root.Path("proc/self")); err != nil || pid != strconv.Itoa(os.Getpid()) {
		return unsupported(RunQueueWait, "the agent is not in the host's PID namespace (hostPID), and threads cannot be found")
	}

	return on(RunQueueWait, "sampled where a rule asks for it")
}

// interference requires the waiting time of pods, from their pressure or from the run queues of their threads.
func (h Host) interference() Feature {
	const name = "interference"
	queue := h.runQueue()
	switch {
	case h.Layout == nil || h.Layout.Pods == "":
		return unsupported(name, "there are no pods")
	case h.Layout.HasFile("unified", "cpu.pressure"):
		return on(name, "by the pressure of pods")
	case queue.State == On:
		return on(name, "by run queues, since pods have no pressure: for cpu alone")
	}

	return unsupported(name, "pods have no pressure, and run queues cannot be sampled: "+queue.Reason)
}

// podDisks is the measurement of each pod's disk use.
func (h Host) podDisks() Feature {
	const name = "pod-disks"
	if h.Layout == nil || h.Layout.Pods == "" {
		return unsupported(name, "there are no pods")
	}

	if _, err := h.Layout.DiskIOFiles(); err != nil {
		return unsupported(name, err.Error())
	}

	if h.Layout.Version != cgroup.V2 {
		return on(name, "without writes of dirty pages, which cgroup v1 does not count per pod")
	}

	return on(name, "")
}

// cyclesPerInstruction requires a performance monitoring unit, which most virtual machines lack.
func (h Host) cyclesPerInstruction() Feature {
	const name = "cpi"
	if h.Layout == nil || h.Layout.Pods == "" {
		return unsupported(name, "there are no pods")
	}

	if h.CyclesUnsupported != nil {
		if why := h.CyclesUnsupported(); why != "" {
			return unsupported(name, why)
		}

		return on(name, "counted of latency-sensitive pods")
	}

	devices := h.Root.Path("sys/bus/event_source/devices")
	if !exists(filepath.Join(devices, "cpu")) && !exists(filepath.Join(devices, "cpu_core")) {
		return unsupported(name, "no hardware performance counters: the kernel has no device cpu in /sys/bus/event_source/devices")
	}

	return off(name, "the agent runs without --cycles-per-instruction")
}

// kubeletPolicy reads the policy of one of the kubelet's managers from its state file, or from its socket where the file is not visible.
func (h Host) kubeletPolicy(name, file string, assigns func(kubeletsocket.Assignments) bool) Feature {
	policy, err := host.ReadKubeletPolicy(h.Root, h.KubeletRoot, file)
	if errors.Is(err, fs.ErrNotExist) && h.Assignments != nil {
		var a kubeletsocket.Assignments
		a, err = h.Assignments()
		if assigns(a) {
			policy = "static"
		}
	}

	if errors.Is(err, fs.ErrNotExist) {
		return unsupported(name, "no "+file+" in "+h.KubeletRoot)
	}
	if err != nil {
		return unsupported(name, err.Error())
	}

	if policy == "none" || policy == "" {
		return off(name, "policy none")
	}

	return on(name, "policy "+policy)
}

// sockets returns the default paths of CRI runtimes.
func sockets() []string {
	return []string{"run/containerd/containerd.sock", "run/crio/crio.sock", "run/k3s/containerd/containerd.sock", "run/cri-dockerd.sock"}
}

func runtimeSocket(root host.Root) Feature {
	for _, s := range sockets() {
		if exists(root.Path(s)) {
			return off("runtime", "/"+s+"; cgroups are read and written directly")
		}
	}

	return unsupported("runtime", "no socket of containerd, CRI-O or cri-dockerd")
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
