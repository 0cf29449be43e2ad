// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package assets

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// NodeUnit is the service that runs the node's first process on machines with systemd.
const NodeUnit = "crane-node.service"

// nodeUnit reboots the machine when the node ends, like the exit of a first process.
const nodeUnit = `[Unit]
Description=First process of the node
Requires=dbus.service
After=dbus.service
FailureAction=reboot-immediate
SuccessAction=reboot-immediate
[Service]
ExecStart=/init machine
Environment=HOME=/root
Delegate=yes
OOMPolicy=continue
[Install]
WantedBy=multi-user.target
`

// SystemdUsers contains the lines of /etc/passwd that systemd and D-Bus require in addition to root.
const SystemdUsers = "messagebus:x:100:100::/nonexistent:/usr/sbin/nologin\n"

// SystemdGroups contains the corresponding lines of /etc/group.
const SystemdGroups = "messagebus:x:100:\n"

// systemdPackages returns the packages with systemd, D-Bus, and libraries that not every Debian installation has.
func systemdPackages() []string {
	return []string{
		"systemd", "libsystemd-shared", "libsystemd0", "dbus", "dbus-bin", "dbus-daemon", "dbus-system-bus-common", "libdbus-1-3", "libexpat1",
		"libapparmor1", "libargon2-1", "libcap-ng0", "libcryptsetup12", "libdevmapper1.02.1", "libfdisk1", "libip4tc2", "libjson-c5", "libkmod2",
		"libp11-kit0", "libffi8", "libseccomp2",
	}
}

// FetchSystemd downloads and unpacks Debian's systemd packages for virtual machines unless they are cached. It requires
// network access.
func (s Set) FetchSystemd(ctx context.Context) error {
	if s.HasSystemd() == nil {
		return nil
	}

	key := sha256.Sum256([]byte(strings.Join(systemdPackages(), " ")))
	_, err := s.cached("systemd", key[:], "", func(path string) error { return unpack(ctx, path, systemdPackages()...) })
	return err
}

// HasSystemd returns an error if there is no systemd for virtual machines.
func (s Set) HasSystemd() error {
	_, err := s.systemdTree()
	return err
}

// systemdTree returns the directory with the unpacked packages.
func (s Set) systemdTree() (string, error) {
	trees, err := filepath.Glob(filepath.Join(s.Cache, "systemd-*"))
	if err != nil || len(trees) != 1 {
		return "", fmt.Errorf("no systemd for virtual machines in %s", s.Cache)
	}

	return trees[0], nil
}

// unpack downloads packages into a directory.
func unpack(ctx context.Context, path string, packages ...string) error {
	download := path + ".download"
	defer func() { _ = os.RemoveAll(download) }()

	for _, dir := range []string{download, path} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}

	// apt drops root for the download where it can, and warns where it cannot.
	if err := run(ctx, download, "apt-get", append([]string{"download"}, packages...)...); err != nil {
		return err
	}

	archives, err := filepath.Glob(filepath.Join(download, "*.deb"))
	if err == nil && len(archives) != len(packages) {
		err = fmt.Errorf("%d packages were downloaded, want %d", len(archives), len(packages))
	}

	for _, archive := range archives {
		err = errors.Join(err, run(ctx, download, "dpkg-deb", "-x", archive, path))
	}

	return err
}

// installSystemd copies systemd to a root file system as the first process.
func installSystemd(ctx context.Context, systemd, tree string) error {
	for _, dir := range []string{"usr", "bin", "sbin", "lib", "lib64", "etc"} {
		from := filepath.Join(systemd, dir)
		to := filepath.Join(tree, dir)

		if _, err := os.Lstat(from); err != nil {
			continue
		}

		// A directory that is a link in the root file system is followed.
		if err := run(ctx, "", "cp", "-a", from+"/.", to+"/"); err != nil {
			return err
		}
	}

	units := filepath.Join(tree, "etc", "systemd", "system")
	wanted := filepath.Join(units, "multi-user.target.wants")
	if err := os.MkdirAll(wanted, 0o755); err != nil {
		return err
	}

	for name, content := range map[string]string{
		filepath.Join(units, NodeUnit):        nodeUnit,
		filepath.Join(tree, "etc/passwd"):     "root:x:0:0:root:/root:/bin/sh\n" + SystemdUsers,
		filepath.Join(tree, "etc/group"):      "root:x:0:\n" + SystemdGroups,
		filepath.Join(tree, "etc/fstab"):      "",
		filepath.Join(tree, "etc/machine-id"): strings.Repeat("c", 32) + "\n", // prevents systemd's interactive first boot
	} {
		if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
			return err
		}
	}

	if err := os.Symlink("../"+NodeUnit, filepath.Join(wanted, NodeUnit)); err != nil {
		return err
	}

	return os.Symlink("/lib/systemd/system/multi-user.target", filepath.Join(units, "default.target"))
}

// systemdFiles returns the libraries of this machine that systemd's programs need in addition to those of its packages.
func systemdFiles(ctx context.Context, systemd string) (map[string]string, error) {
	var packageDirs []string
	for _, dir := range []string{"lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu/systemd", "lib/systemd"} {
		packageDirs = append(packageDirs, filepath.Join(systemd, dir))
	}

	files := map[string]string{}
	for _, program := range []string{"lib/systemd/systemd", "lib/systemd/systemd-journald", "bin/systemctl", "usr/bin/systemd-run", "usr/bin/dbus-daemon"} {
		libraries, err := librariesOf(ctx, filepath.Join(systemd, program), packageDirs...)
		if err != nil {
			return nil, err
		}

		for _, l := range libraries {
			if !strings.HasPrefix(l, systemd) {
				files[l] = l
			}
		}
	}

	return files, nil
}

// ldd returns ldd's output for a program; dirs are searched first.
func ldd(ctx context.Context, program string, dirs []string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "ldd", program)
	if len(dirs) > 0 {
		cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+strings.Join(dirs, ":"))
	}

	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("ldd %s: %w", program, err)
	}

	return out, nil
}
