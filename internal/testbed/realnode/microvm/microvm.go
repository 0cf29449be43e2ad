// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package microvm runs a real node in a small virtual machine, for the cgroup version that the host lacks. The machine
// is emulated without hardware virtualization, which is slow but has no host requirements.
package microvm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"crane.io/crane/internal/testbed/realnode/assets"
	"crane.io/crane/internal/testbed/realnode/hostcgroup"
	"crane.io/crane/internal/testbed/realnode/nodespec"
	"crane.io/crane/internal/testbed/realnode/progress"
)

const (
	// maxAttempts bounds the starts of a machine. A few percent of emulated boots hang before their first message.
	maxAttempts = 4
	// bootBound bounds the time to an emulated machine's first message on an idle host, four times the usual duration.
	bootBound = 12 * time.Second
	// maxBootBound bounds bootBound when scaled by the load.
	maxBootBound = 90 * time.Second
	// removeBound bounds the removal of the cgroups.
	removeBound = 10 * time.Second
	sector      = 512
)

// RetryPrefix is the prefix of the report of a machine that did not boot and is started again.
const RetryPrefix = "start again"

// Options configures a machine.
type Options struct {
	Node nodespec.Node
	// Files are the files that it boots from.
	Files assets.Machine
	// Append is added to the kernel's command line.
	Append string
	// CPUs, Threads per core and MemoryMiB are the size of the machine.
	CPUs, Threads, MemoryMiB int
	// Zones lists the CPUs of each NUMA zone, such as 0-3; the memory is divided between them. None means one zone.
	Zones []string
	// Tap is the name of the tap device of its network interface.
	Tap string
	// Number identifies the machine within a session, 1 to 255.
	Number int
	// Group is the parent of the emulator's cgroup.
	Group hostcgroup.Group
	// LogDir receives the console, one log file per step, and the configuration.
	LogDir string
}

// Machine is a running virtual machine.
type Machine struct {
	pid   int
	group hostcgroup.Group
	done  chan struct{}
}

// Start starts a machine and returns when the node is up or has failed. ctx bounds only the start. report, if not nil,
// is called for each step.
func Start(ctx context.Context, o Options, report func(nodespec.Report)) (*Machine, error) {
	group, err := o.Group.Child(o.Node.Name)
	if err != nil {
		return nil, err
	}

	for try := 1; ; try++ {
		m := &Machine{group: group, done: make(chan struct{})}
		booted, err := m.start(ctx, o, report)
		if err == nil {
			return m, nil
		}

		err = errors.Join(fmt.Errorf("virtual machine: %w", err), m.kill())
		if booted || try == maxAttempts || ctx.Err() != nil {
			return nil, errors.Join(err, group.Remove(removeBound))
		}

		if report != nil {
			report(nodespec.Report{Step: fmt.Sprintf(RetryPrefix+": %v", err)})
		}
	}
}

// start boots once. booted reports whether the machine sent its first message.
func (m *Machine) start(ctx context.Context, o Options, report func(nodespec.Report)) (booted bool, err error) {
	reader, writer, err := os.Pipe()
	if err != nil {
		return false, fmt.Errorf("creating pipe: %w", err)
	}
	defer reader.Close()

	err = m.spawn(o, writer)
	writer.Close()

	if err != nil {
		return false, err
	}

	if err := m.group.Add(m.pid); err != nil {
		return false, err
	}

	// Only a boot that hangs before its first message is worth another attempt.
	reports := progress.NewReader(reader, report)
	bound := scaleByLoad(bootBound)
	bootCtx, cancel := context.WithTimeoutCause(ctx, bound, fmt.Errorf("not within %s", bound.Round(time.Second)))
	defer cancel()

	if err := reports.Await(bootCtx, nodespec.Booted); err != nil {
		return false, err
	}

	return true, reports.Await(ctx, nodespec.Up)
}

// scaleByLoad scales a bound for an idle host by the host's load average.
func scaleByLoad(d time.Duration) time.Duration {
	content, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return d
	}

	first, _, _ := strings.Cut(string(content), " ")
	load, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return d
	}

	factor := max(1, load/float64(runtime.NumCPU()))
	return min(time.Duration(float64(d)*factor), maxBootBound)
}

// spawn starts the emulator, which is killed with this process.
func (m *Machine) spawn(o Options, reports *os.File) error {
	if err := os.MkdirAll(o.LogDir, 0o700); err != nil {
		return fmt.Errorf("creating log directory: %w", err)
	}

	config := filepath.Join(o.LogDir, "config.img")
	if err := writeConfig(config, o.Node); err != nil {
		return err
	}

	console, err := os.OpenFile(filepath.Join(o.LogDir, "emulator.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("opening log: %w", err)
	}
	defer console.Close()

	cmd := exec.Command("qemu-system-x86_64", arguments(o, config)...) //nolint:noctx // Stop ends it, not a context
	cmd.Stdout = console
	cmd.Stderr = console
	cmd.ExtraFiles = []*os.File{reports}

	// Changes to the drives are written to unnamed files in this directory.
	cmd.Env = append(os.Environ(), "TMPDIR="+o.LogDir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	started := make(chan error, 1)

	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()

		if err := cmd.Start(); err != nil {
			started <- fmt.Errorf("starting emulator: %w", err)
			return
		}

		m.pid = cmd.Process.Pid
		started <- nil
		_ = cmd.Wait() // only the exit matters
		close(m.done)
	}()

	return <-started
}

// writeConfig writes the image of the configuration drive.
func writeConfig(path string, node nodespec.Node) error {
	node.Clock = time.Now()
	content, err := json.Marshal(node)
	if err != nil {
		return fmt.Errorf("encoding node: %w", err)
	}

	content = append(content, make([]byte, sector-len(content)%sector)...)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		return fmt.Errorf("configuring node: %w", err)
	}

	return nil
}

// reportsFD is the emulator's file descriptor of the pipe for reports.
const reportsFD = 3

// arguments returns the emulator's arguments: a machine with only processors, memory, two drives, a network device, a
// serial console, and ports for the reports and for each log.
func arguments(o Options, config string) []string {
	args := []string{
		"-M", "pc,usb=off,vmport=off", "-accel", "tcg,thread=multi,tb-size=512", "-cpu", processor(o.Threads),
		"-smp", o.processors(), "-m", strconv.Itoa(o.MemoryMiB),
		"-kernel", o.Files.Kernel, "-initrd", o.Files.Initrd,
		"-append", strings.TrimSpace("console=ttyS0 quiet panic=-1 tsc=unstable mitigations=off " + o.Append),
		"-nodefaults", "-no-user-config", "-no-reboot", "-display", "none",
		"-serial", "file:" + filepath.Join(o.LogDir, "console.log"),
		"-drive", "id=root,format=raw,if=none,snapshot=on,cache=unsafe,file=" + o.Files.Root,
		"-device", "virtio-blk-pci,drive=root,serial=" + nodespec.RootSerial,
		"-drive", "id=config,format=raw,if=none,readonly=on,file=" + config,
		"-device", "virtio-blk-pci,drive=config,serial=" + nodespec.ConfigSerial,
		"-netdev", "tap,id=net,script=no,downscript=no,ifname=" + o.Tap,
		"-device", fmt.Sprintf("virtio-net-pci,netdev=net,mac=52:54:00:77:00:%02x", o.Number),
		"-device", "virtio-serial-pci,max_ports=" + strconv.Itoa(len(o.Node.Steps)+2),
		"-chardev", fmt.Sprintf("file,id=reports,path=/dev/fd/%d", reportsFD),
		"-device", "virtserialport,chardev=reports,nr=1",
	}

	// Each program logs to a serial port of its own, after that of the reports.
	args = append(args, zones(o)...)
	for i, step := range o.Node.Steps {
		id := "log" + strconv.Itoa(i)
		args = append(args, "-chardev", "file,id="+id+",path="+filepath.Join(o.LogDir, step.Name+".log"),
			"-device", fmt.Sprintf("virtserialport,chardev=%s,nr=%d", id, i+2))
	}

	return args
}

// processor returns the CPU model. The kernel accepts threads only from vendors that have them.
func processor(threads int) string {
	if threads > 1 {
		return "max,vendor=GenuineIntel"
	}

	return "max"
}

// processors returns the CPU topology, with a socket per zone.
func (o Options) processors() string {
	if len(o.Zones) < 2 && o.Threads < 2 {
		return strconv.Itoa(o.CPUs)
	}

	sockets := max(1, len(o.Zones))
	threads := max(1, o.Threads)
	return fmt.Sprintf("%d,sockets=%d,cores=%d,threads=%d", o.CPUs, sockets, o.CPUs/sockets/threads, threads)
}

// distance is the distance between two zones (ACPI SLIT), different from the kernel's default of 20.
const distance = 21

// zones returns the arguments for the NUMA zones. The last zone gets the remainder of the memory.
func zones(o Options) (args []string) {
	n := len(o.Zones)
	if n < 2 {
		return nil
	}

	remaining := o.MemoryMiB
	for i, cpus := range o.Zones {
		size := o.MemoryMiB / n
		if i == n-1 {
			size = remaining
		}

		remaining -= size
		args = append(args,
			"-object", fmt.Sprintf("memory-backend-ram,id=memory%d,size=%dM", i, size),
			"-numa", fmt.Sprintf("node,nodeid=%d,cpus=%s,memdev=memory%d", i, cpus, i))
		for k := range i {
			args = append(args, "-numa", fmt.Sprintf("dist,src=%d,dst=%d,val=%d", k, i, distance))
		}
	}

	return args
}

// Done returns a channel that is closed when the machine has ended.
func (m *Machine) Done() <-chan struct{} { return m.done }

// Stop kills the machine and removes its cgroups. The caller removes the tap device.
func (m *Machine) Stop() error {
	return errors.Join(m.kill(), m.group.Remove(removeBound))
}

func (m *Machine) kill() error {
	if m.pid == 0 {
		return nil
	}

	err := syscall.Kill(m.pid, syscall.SIGKILL)
	<-m.done

	if err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("killing emulator: %w", err)
	}

	return nil
}
