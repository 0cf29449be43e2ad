// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package assets

import (
	"context"
	"crypto/sha256"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

const (
	// KernelEnv is the environment variable with a directory that contains boot/vmlinuz-* and lib/modules/*, like an
	// unpacked kernel package; the default is Debian's kernel for virtual machines.
	KernelEnv = "CRANE_NODES_KERNEL"
	// kernelPackage depends on the current kernel of the Debian release.
	kernelPackage = "linux-image-cloud-amd64"
	// rootSize is the size of a machine's root file system. Its file is sparse.
	rootSize = "900M"
)

// Machine contains the files that a virtual machine boots from, all read-only.
type Machine struct{ Kernel, Initrd, Root string }

// Contents describes the root file system of a virtual machine without the node's own programs.
type Contents struct {
	// Programs are programs of this machine, as names in PATH or absolute paths.
	Programs []string
	// Images is the archive of the test images.
	Images string
	// CRIO adds CRI-O.
	CRIO bool
	// Systemd makes systemd the first process; the node is one of its services.
	Systemd bool
}

// Machine finds the kernel and builds the initial and the root file system.
func (s Set) Machine(ctx context.Context, contents Contents) (Machine, error) {
	tree, err := s.kernelTree()
	if err != nil {
		return Machine{}, err
	}

	var m Machine
	if m.Kernel, err = globOne(filepath.Join(tree, "boot", "vmlinuz-*")); err != nil {
		return m, err
	}

	key := sha256.New()
	fmt.Fprintln(key, "console", drivers())

	if err := digest(key, s.Kit, m.Kernel); err != nil {
		return m, fmt.Errorf("building the initial file system: %w", err)
	}

	m.Initrd, err = s.cached("initrd", key.Sum(nil), ".cpio", func(path string) error { return s.writeInitrd(path, tree) })
	if err != nil {
		return m, err
	}

	m.Root, err = s.root(ctx, contents)
	return m, err
}

func globOne(pattern string) (string, error) {
	found, err := filepath.Glob(pattern)
	if err != nil {
		return "", fmt.Errorf("looking for %s: %w", pattern, err)
	}

	if len(found) != 1 {
		return "", fmt.Errorf("%d files match %s, want one", len(found), pattern)
	}

	return found[0], nil
}

// FetchKernel downloads and unpacks Debian's kernel package for virtual machines unless $CRANE_NODES_KERNEL is set or a
// kernel is cached. It requires network access.
func (s Set) FetchKernel(ctx context.Context) error {
	if _, err := s.kernelTree(); err == nil {
		return nil
	}

	name, err := currentKernel(ctx)
	if err != nil {
		return err
	}

	key := sha256.Sum256([]byte(name))
	_, err = s.cached("kernel", key[:], "", func(path string) error { return unpack(ctx, path, name) })
	return err
}

// HasKernel returns an error if there is no kernel for virtual machines.
func (s Set) HasKernel() error {
	_, err := s.kernelTree()
	return err
}

// kernelTree returns the directory with the kernel and its modules.
func (s Set) kernelTree() (string, error) {
	tree := os.Getenv(KernelEnv)
	if tree == "" {
		trees, err := filepath.Glob(filepath.Join(s.Cache, "kernel-*"))
		if err != nil || len(trees) != 1 {
			return "", fmt.Errorf("no kernel for virtual machines in %s, and %s is not set", s.Cache, KernelEnv)
		}

		tree = trees[0]
	}

	_, err := globOne(filepath.Join(tree, "boot", "vmlinuz-*"))
	return tree, err
}

// currentKernel returns the package on which the release's kernel package depends.
func currentKernel(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "apt-cache", "depends", kernelPackage).Output()
	if err != nil {
		return "", fmt.Errorf("finding a kernel for virtual machines (set %s to one, or apt-get update): %w", KernelEnv, err)
	}

	for line := range strings.Lines(string(out)) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "Depends: "); ok && strings.HasPrefix(name, "linux-image-") {
			return name, nil
		}
	}

	return "", fmt.Errorf("finding a kernel for virtual machines: package %s depends on none (set %s, or apt-get update)", kernelPackage, KernelEnv)
}

func run(ctx context.Context, dir, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}

	return nil
}

// root builds the root file system of machines.
func (s Set) root(ctx context.Context, c Contents) (string, error) {
	name := "root"
	systemd := ""
	files, err := s.rootFiles(ctx, c)
	if err == nil && c.Systemd {
		name = "systemdroot"
		var libraries map[string]string
		if systemd, err = s.systemdTree(); err == nil {
			libraries, err = systemdFiles(ctx, systemd)
		}

		maps.Copy(files, libraries)
	}

	if err != nil {
		return "", fmt.Errorf("building the root file system: %w", err)
	}

	if c.CRIO {
		name = "crio" + name
	}

	// The key covers the content of every file, so that a new version of a library builds a new image.
	sources := slices.Sorted(maps.Values(files))
	key := sha256.New()
	fmt.Fprintln(key, rootSize)

	if c.Systemd {
		fmt.Fprint(key, systemdPackages(), nodeUnit)
	}

	if err := digest(key, slices.Compact(sources)...); err != nil {
		return "", fmt.Errorf("building the root file system: %w", err)
	}

	return s.cached(name, key.Sum(nil), ".img", func(path string) error {
		tree := path + ".tree"
		defer func() { _ = os.RemoveAll(tree) }()

		if err := createTree(tree, files); err != nil {
			return err
		}

		if c.Systemd {
			if err := installSystemd(ctx, systemd, tree); err != nil {
				return err
			}
		}

		return run(ctx, "", "mke2fs", "-q", "-t", "ext4", "-O", "^has_journal", "-E", "root_owner=0:0", "-N", "20000", "-d", tree, path, rootSize)
	})
}

// rootFiles maps paths of the root file system to files: the node's programs and their libraries.
func (s Set) rootFiles(ctx context.Context, c Contents) (map[string]string, error) {
	files := map[string]string{"/init": s.Kit, "/opt/crane/kubelet": s.Kubelet, "/opt/crane/images.tar": c.Images}
	programs := append([]string{s.Kubelet}, c.Programs...)
	if c.CRIO {
		programs = append(programs, Conmon, "nsenter") // CRI-O reads pod addresses with nsenter
		for _, p := range crioPrograms() {
			files["/opt/crane/crio/"+p] = filepath.Join(s.CRIO(), p)
			programs = append(programs, filepath.Join(s.CRIO(), p))
		}
	}

	for _, p := range programs {
		path, err := exec.LookPath(p)
		if err != nil {
			return nil, fmt.Errorf("looking for %s: %w", p, err)
		}

		if !slices.Contains(slices.Collect(maps.Values(files)), path) {
			files[path] = path
		}

		libraries, err := librariesOf(ctx, path)
		if err != nil {
			return nil, err
		}

		for _, l := range libraries {
			files[l] = l
		}
	}

	return files, nil
}

// librariesOf returns the libraries of a program, including the dynamic linker; none for a static one. It searches dirs
// first.
func librariesOf(ctx context.Context, program string, dirs ...string) ([]string, error) {
	f, err := elf.Open(program)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", program, err)
	}

	needed, err := f.ImportedLibraries()
	err = errors.Join(err, f.Close())
	if err != nil || len(needed) == 0 {
		return nil, err
	}

	// The output has lines such as "libc.so.6 => /lib/libc.so.6 (0x7f...)" and the path of the linker.
	out, err := ldd(ctx, program, dirs)
	if err != nil {
		return nil, err
	}

	var libraries []string
	for line := range strings.Lines(string(out)) {
		for field := range strings.FieldsSeq(line) {
			if filepath.IsAbs(field) {
				libraries = append(libraries, field)
			}
		}
	}

	return libraries, nil
}

// createTree creates a directory tree with files by their path in it, and the standard directories of a Linux system.
func createTree(tree string, files map[string]string) error {
	for _, dir := range []string{
		"usr/bin", "usr/sbin", "usr/lib", "usr/lib64", "etc", "proc", "sys", "dev", "run", "tmp", "root", "var/lib", "var/log", "var/tmp",
	} {
		if err := os.MkdirAll(filepath.Join(tree, dir), 0o755); err != nil {
			return err
		}
	}

	// As in Debian, programs and libraries are in /usr, and the old paths are links.
	for link, to := range map[string]string{"bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "lib64": "usr/lib64", "var/run": "/run"} {
		if err := os.Symlink(to, filepath.Join(tree, link)); err != nil {
			return err
		}
	}

	for to, from := range files {
		to = filepath.Join(tree, to)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}

		content, err := os.ReadFile(from)
		if err != nil {
			return err
		}

		if err := os.WriteFile(to, content, 0o755); err != nil {
			return err
		}
	}

	return nil
}

// drivers returns the kernel modules that a machine needs, without their dependencies.
func drivers() []string {
	return []string{"virtio_pci", "virtio_blk", "virtio_net", "virtio_console", "overlay", "veth", "bridge"}
}

// writeInitrd writes the initial file system: nodekit and the modules in load order.
func (s Set) writeInitrd(path, tree string) error {
	modules, err := findModules(tree)
	if err != nil {
		return err
	}

	builtin, err := globOne(filepath.Join(tree, "lib", "modules", "*", "modules.builtin"))
	if err != nil {
		return err
	}

	builtinList, err := os.ReadFile(builtin)
	if err != nil {
		return err
	}

	order := &loadOrder{modules: modules, builtin: strings.ReplaceAll(string(builtinList), "-", "_")}
	for _, d := range drivers() {
		if err := order.add(d); err != nil {
			return err
		}
	}

	kit, err := os.ReadFile(s.Kit)
	if err != nil {
		return err
	}

	archive := cpio{}
	archive.dir("modules")
	archive.dir("dev")
	archive.device("dev/console", device{5, 1}) // console output before devtmpfs is mounted
	archive.file("init", kit)

	for i, file := range order.files {
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}

		archive.file(fmt.Sprintf("modules/%02d-%s", i, filepath.Base(file)), content)
	}

	return os.WriteFile(path, archive.bytes(), 0o600)
}

// findModules maps the names of modules to their files.
func findModules(tree string) (map[string]string, error) {
	modules := map[string]string{}
	err := filepath.WalkDir(filepath.Join(tree, "lib", "modules"), func(path string, e fs.DirEntry, err error) error {
		if name, ok := strings.CutSuffix(filepath.Base(path), ".ko"); ok && err == nil && !e.IsDir() {
			modules[strings.ReplaceAll(name, "-", "_")] = path
		}

		return err
	})

	if err == nil && len(modules) == 0 {
		err = errors.New("no uncompressed module (*.ko) below lib/modules")
	}

	return modules, err
}

// loadOrder lists module files, each after its dependencies.
type loadOrder struct {
	modules map[string]string
	builtin string
	files   []string
}

func (o *loadOrder) add(name string) error {
	file, ok := o.modules[name]
	if !ok {
		if strings.Contains(o.builtin, "/"+name+".ko") {
			return nil
		}

		return fmt.Errorf("the kernel has no module %s", name)
	}

	if slices.Contains(o.files, file) {
		return nil
	}

	// Dependencies come first, because a module cannot be loaded without the symbols it uses.
	needs, err := dependencies(file)
	if err != nil {
		return err
	}

	for _, n := range needs {
		if err := o.add(n); err != nil {
			return err
		}
	}

	o.files = append(o.files, file)
	return nil
}

// dependencies returns the dependencies of a module from its .modinfo section.
func dependencies(file string) ([]string, error) {
	f, err := elf.Open(file)
	if err != nil {
		return nil, fmt.Errorf("reading module %s: %w", file, err)
	}
	defer func() { _ = f.Close() }() // It was only read.

	section := f.Section(".modinfo")
	if section == nil {
		return nil, fmt.Errorf("read module %s: no section .modinfo", file)
	}

	data, err := section.Data()
	if err != nil {
		return nil, fmt.Errorf("reading module %s: %w", file, err)
	}

	for entry := range strings.SplitSeq(string(data), "\x00") {
		if list, ok := strings.CutPrefix(entry, "depends="); ok && list != "" {
			return strings.Split(strings.ReplaceAll(list, "-", "_"), ","), nil
		}
	}

	return nil, nil
}
