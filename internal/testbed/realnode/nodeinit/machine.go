// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeinit

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"crane.io/crane/internal/testbed/realnode/nodespec"
)

const (
	// MachineArg is the argument of a machine's first process after it has entered its root file system.
	MachineArg = "machine"
	// modulesDir contains kernel modules in the initial file system, named in load order.
	modulesDir = "/modules"
	// deviceBound bounds the wait for a device after its driver has been loaded.
	deviceBound = 20 * time.Second
	// systemd is the machine's first process if the root file system contains it.
	systemd = "/lib/systemd/systemd"
	// clockTolerance is the clock difference that certificates tolerate.
	clockTolerance = time.Minute
)

// BootMachine is the first process in the initial file system of a virtual machine: it loads the drivers and executes
// RunMachine in the root file system. It returns only on error, and then the kernel stops the machine.
func BootMachine() error {
	for _, m := range []struct{ kind, to string }{{"devtmpfs", "/dev"}, {"proc", "/proc"}, {"sysfs", "/sys"}} {
		if err := os.MkdirAll(m.to, 0o755); err != nil {
			return fmt.Errorf("booting: %w", err)
		}

		if err := unix.Mount(m.kind, m.to, m.kind, 0, ""); err != nil {
			return fmt.Errorf("booting: mounting %s: %w", m.to, err)
		}
	}

	if err := loadModules(); err != nil {
		return err
	}

	drive, err := findDrive(nodespec.RootSerial)
	if err != nil {
		return err
	}

	const root = "/root"
	if err := os.MkdirAll(root, 0o755); err != nil {
		return fmt.Errorf("booting: %w", err)
	}

	if err := unix.Mount(drive, root, "ext4", unix.MS_NOATIME, ""); err != nil {
		return fmt.Errorf("booting: mounting the root file system: %w", err)
	}

	for _, dir := range []string{"/dev", "/proc", "/sys"} {
		if err := unix.Mount(dir, root+dir, "", unix.MS_MOVE, ""); err != nil {
			return fmt.Errorf("booting: moving %s: %w", dir, err)
		}
	}

	// Like switch_root(8), but without freeing the memory of the few initial files.
	if err := errors.Join(os.Chdir(root), unix.Mount(".", "/", "", unix.MS_MOVE, ""), unix.Chroot("."), os.Chdir("/")); err != nil {
		return fmt.Errorf("booting: entering the root file system: %w", err)
	}

	environment := []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"}
	if _, err := os.Stat(systemd); err == nil {
		// systemd mounts the remaining file systems and starts this program as a service.
		return syscall.Exec(systemd, []string{"/sbin/init"}, environment)
	}

	return syscall.Exec("/init", []string{"/init", MachineArg}, environment)
}

func loadModules() error {
	entries, err := os.ReadDir(modulesDir)
	if err != nil {
		return fmt.Errorf("booting: %w", err)
	}

	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}

	// The numbers in the names give the order, in which each module follows its dependencies.
	slices.Sort(names)

	for _, name := range names {
		f, err := os.Open(filepath.Join(modulesDir, name))
		if err != nil {
			return fmt.Errorf("booting: %w", err)
		}

		err = unix.FinitModule(int(f.Fd()), "", 0)
		f.Close()

		if err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("booting: loading %s: %w", name, err)
		}
	}

	return nil
}

// findPort waits for the serial port of that number. There is one device with ports, whose number is arbitrary.
func findPort(number int) (string, error) {
	deadline := time.Now().Add(deviceBound)
	for {
		found, err := filepath.Glob(fmt.Sprintf("/dev/vport*p%d", number))
		if err == nil && len(found) == 1 {
			return found[0], nil
		}

		if time.Now().After(deadline) {
			return "", fmt.Errorf("booting: %d ports with number %d, want one", len(found), number)
		}

		time.Sleep(pollInterval)
	}
}

// findDrive waits for the drive with that serial number; the kernel's device order is arbitrary.
func findDrive(serial string) (string, error) {
	deadline := time.Now().Add(deviceBound)
	for {
		files, err := filepath.Glob("/sys/block/vd?/serial")
		if err != nil {
			return "", fmt.Errorf("booting: %w", err)
		}

		for _, f := range files {
			if content, err := os.ReadFile(f); err == nil && strings.TrimSpace(string(content)) == serial {
				return filepath.Join("/dev", filepath.Base(filepath.Dir(f))), nil
			}
		}

		if time.Now().After(deadline) {
			return "", fmt.Errorf("booting: no drive with the serial number %s", serial)
		}

		time.Sleep(pollInterval)
	}
}

// RunMachine sets up the node of a virtual machine and runs it until it ends.
func RunMachine() error {
	port, err := findPort(nodespec.ReportPort)
	if err != nil {
		return err
	}

	reports, err := os.OpenFile(port, os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("opening reports: %w", err)
	}

	n := &node{reports: reports, begin: time.Now()}
	n.report(nodespec.Booted, nil)

	if err := n.readDrive(); err != nil {
		return n.fail("config", err)
	}

	for i := range n.spec.Steps {
		port, err := findPort(nodespec.LogPort + i)
		if err != nil {
			return n.fail("config", err)
		}

		log, err := os.OpenFile(port, os.O_WRONLY, 0)
		if err != nil {
			return n.fail("config", err)
		}

		n.logs = append(n.logs, log)
	}

	mount := n.mountMachine
	if os.Getpid() != 1 {
		mount = func() error { return fakeNUMA(n.spec.NUMA) } // systemd has mounted the rest
	}

	if err := errors.Join(mount(), swapOn(n.spec.SwapMiB)); err != nil {
		return n.fail(nodespec.Mounted, err)
	}

	return n.run()
}

// readDrive reads the configuration and sets the clock if it differs from the host's.
func (n *node) readDrive() error {
	path, err := findDrive(nodespec.ConfigSerial)
	if err != nil {
		return err
	}

	drive, err := os.Open(path)
	if err != nil {
		return err
	}
	defer drive.Close()

	if err := json.NewDecoder(drive).Decode(&n.spec); err != nil {
		return err
	}

	if difference := time.Until(n.spec.Clock); difference.Abs() > clockTolerance {
		now := unix.NsecToTimeval(n.spec.Clock.UnixNano())
		if err := unix.Settimeofday(&now); err != nil {
			return fmt.Errorf("setting clock: %w", err)
		}

		n.begin = n.begin.Add(difference) // keeps reported durations correct
	}

	return nil
}

// mountMachine mounts the remaining file systems of the kernel.
func (n *node) mountMachine() error {
	for _, m := range []struct{ kind, to, options string }{
		{"tmpfs", "/run", "mode=0755"},
		{"tmpfs", "/tmp", "mode=1777"},
		{"devpts", "/dev/pts", "newinstance,ptmxmode=0666,mode=0620"},
		{"tmpfs", "/dev/shm", "mode=1777"},
		{"mqueue", "/dev/mqueue", ""},
		{"tmpfs", "/sys/fs/cgroup", "mode=0755"},
	} {
		if !strings.HasPrefix(m.to, "/sys") {
			if err := os.MkdirAll(m.to, 0o755); err != nil {
				return fmt.Errorf("making %s: %w", m.to, err)
			}
		}

		if err := unix.Mount(m.kind, m.to, m.kind, 0, m.options); err != nil {
			return fmt.Errorf("mounting %s: %w", m.to, err)
		}
	}

	if err := n.mountCgroups(); err != nil {
		return err
	}

	return fakeNUMA(n.spec.NUMA)
}
