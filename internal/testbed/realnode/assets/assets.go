// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package assets finds or builds the files of real nodes, and caches what it builds by a digest of its inputs.
package assets

import (
	"context"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"crane.io/crane/internal/testbed/realnode/ociimage"
)

// BinEnv is the environment variable with the directory of the built binaries.
const BinEnv = "CRANE_BIN"

// Set contains the paths of the files of nodes.
type Set struct {
	// Kit is nodekit, Kubelet the kubelet, Controlplane the control plane binary.
	Kit, Kubelet, Controlplane string
	// Cache is the directory of built files.
	Cache string
	// Commands maps image names to static binaries of Crane, in addition to the test programs. WithCommands sets it.
	Commands map[string]string
}

// FromDir returns the binaries of a directory; files built from them are cached beside it.
func FromDir(bin string) (Set, error) {
	bin, err := filepath.Abs(bin)
	if err != nil {
		return Set{}, fmt.Errorf("finding binaries: %w", err)
	}

	s := Set{
		Kit:          filepath.Join(bin, "nodekit"),
		Kubelet:      filepath.Join(bin, "kubelet"),
		Controlplane: filepath.Join(bin, "controlplane"),
		Cache:        filepath.Join(filepath.Dir(bin), ".cache", "nodes"),
	}

	for _, path := range []string{s.Kit, s.Kubelet, s.Controlplane} {
		if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
			return Set{}, fmt.Errorf("%s does not exist: run `make build-nodes`", path)
		}
	}

	return s, nil
}

// staticDir is the subdirectory of the binaries with Crane's statically linked commands.
const staticDir = "static"

// WithCommands adds commands of this module, for which nodes then have images named ImageName(command). They must be
// statically linked, because an image contains only the binary.
func (s Set) WithCommands(commands ...string) (Set, error) {
	s.Commands = map[string]string{}
	for _, c := range commands {
		path := filepath.Join(filepath.Dir(s.Kit), staticDir, c)
		if err := static(path); err != nil {
			return s, fmt.Errorf("image of %s: %w: run `make build-nodes`", c, err)
		}

		s.Commands[c] = path
	}

	return s, nil
}

// static returns an error unless the file is a statically linked program.
func static(path string) error {
	f, err := elf.Open(path)
	if err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}

	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			err = fmt.Errorf("%s requires a dynamic linker", path)
		}
	}

	return errors.Join(err, f.Close())
}

// ForTest returns the binaries of $CRANE_BIN, otherwise those of the module that contains the working directory, which
// it builds unless built is set.
func ForTest(ctx context.Context, built bool) (Set, error) {
	if bin := os.Getenv(BinEnv); bin != "" {
		return FromDir(bin)
	}

	root, err := moduleRoot()
	if err != nil {
		return Set{}, err
	}

	if built {
		return FromDir(filepath.Join(root, "bin"))
	}

	// Tests of several packages run at the same time: one of them builds at a time.
	unlock, err := lock(filepath.Join(root, ".cache", "nodes"))
	if err != nil {
		return Set{}, err
	}
	defer unlock()

	cmd := exec.CommandContext(ctx, "make", "--no-print-directory", "build-nodes")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return Set{}, fmt.Errorf("building the binaries of nodes: %w\n%s", err, out)
	}

	return FromDir(filepath.Join(root, "bin"))
}

// moduleRoot returns the nearest parent directory that contains a go.mod.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("finding the module: %w", err)
	}

	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}

		if filepath.Dir(dir) == dir {
			return "", errors.New("finding the module: no go.mod in the working directory or its parents")
		}

		dir = filepath.Dir(dir)
	}
}

// lock locks a cache directory until unlock is called or this process ends.
func lock(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("locking cache: %w", err)
	}

	f, err := os.OpenFile(filepath.Join(dir, ".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking cache: %w", err)
	}

	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		f.Close()
		return nil, fmt.Errorf("locking cache: %w", err)
	}

	return func() { f.Close() }, nil
}

// Registry is the prefix of image names; no registry serves it.
const Registry = "crane.local/"

// ImageName returns the image name of a test program or command.
func ImageName(program string) string { return Registry + program + ":1" }

// CommandPath is the path of the program in the image of a command, as in Crane's Dockerfile.
const CommandPath = "/crane-binary"

// Images returns the path of an archive with one image for each program of the kit and each command of the set.
func (s Set) Images(programs []string) (string, error) {
	kit, err := os.ReadFile(s.Kit)
	if err != nil {
		return "", fmt.Errorf("building images: %w", err)
	}

	key := sha256.New()
	fmt.Fprintf(key, "%s %q\n", runtime.GOARCH, programs)
	key.Write(kit)

	// Tests with and without commands share a cache: each has its own archive.
	commands := slices.Sorted(maps.Keys(s.Commands))
	name := strings.Join(append([]string{"images"}, commands...), ".")

	for _, c := range commands {
		if err := digest(key, s.Commands[c]); err != nil {
			return "", fmt.Errorf("building images: %w", err)
		}
	}

	return s.cached(name, key.Sum(nil), ".tar", func(path string) error {
		images := make([]ociimage.Image, len(programs))
		for i, p := range programs {
			images[i] = ociimage.Image{
				Name:         ImageName(p),
				Entrypoint:   []string{"/nodekit", p},
				Files:        map[string][]byte{"/nodekit": kit},
				Architecture: runtime.GOARCH,
			}
		}

		for _, c := range commands {
			content, err := os.ReadFile(s.Commands[c])
			if err != nil {
				return err
			}

			images = append(images, ociimage.Image{
				Name:         ImageName(c),
				Entrypoint:   []string{CommandPath},
				Files:        map[string][]byte{CommandPath: content},
				Architecture: runtime.GOARCH,
			})
		}

		f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
		if err != nil {
			return err
		}

		return errors.Join(ociimage.Write(f, images...), f.Close())
	})
}

// cached returns the cached file of that name and key, built by produce if absent. Files of the same name with another
// key are outdated and are removed.
func (s Set) cached(name string, key []byte, suffix string, produce func(path string) error) (string, error) {
	unlock, err := lock(s.Cache)
	if err != nil {
		return "", err
	}
	defer unlock()

	path := filepath.Join(s.Cache, name+"-"+hex.EncodeToString(key[:8])+suffix)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("finding the cached %s: %w", name, err)
	}

	partial := filepath.Join(s.Cache, ".partial-"+name+suffix)
	if err := os.RemoveAll(partial); err != nil {
		return "", fmt.Errorf("building %s: %w", name, err)
	}

	if err := produce(partial); err != nil {
		return "", fmt.Errorf("building %s: %w", name, errors.Join(err, os.RemoveAll(partial)))
	}

	old, err := filepath.Glob(filepath.Join(s.Cache, name+"-*"+suffix))
	if err != nil {
		return "", fmt.Errorf("building %s: %w", name, err)
	}

	for _, o := range old {
		// A starting node may have it open, which does not prevent removal.
		if err := os.RemoveAll(o); err != nil {
			return "", fmt.Errorf("removing old %s: %w", name, err)
		}
	}

	if err := os.Rename(partial, path); err != nil {
		return "", fmt.Errorf("building %s: %w", name, err)
	}

	return path, nil
}

// digest adds the content of files to a key.
func digest(key io.Writer, files ...string) error {
	for _, file := range files {
		f, err := os.Open(file)
		if err != nil {
			return err
		}

		fmt.Fprintf(key, "%s\n", strings.TrimSpace(filepath.Base(file)))
		_, err = io.Copy(key, f)
		f.Close()

		if err != nil {
			return fmt.Errorf("reading %s: %w", file, err)
		}
	}

	return nil
}

// KubeProxy returns the path of kube-proxy.
func (s Set) KubeProxy() string { return filepath.Join(filepath.Dir(s.Kit), "kube-proxy") }

// CoreDNS returns the path of the cluster DNS server.
func (s Set) CoreDNS() string { return filepath.Join(filepath.Dir(s.Kit), "coredns") }

// HasServices returns an error if the programs of Services are not available.
func (s Set) HasServices() error {
	for _, path := range []string{s.KubeProxy(), s.CoreDNS()} {
		if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
			return fmt.Errorf("no Services: %s does not exist: run `make build-nodes`", path)
		}
	}

	if _, err := exec.LookPath("nft"); err != nil {
		return fmt.Errorf("no Services: %w: run `make install-nodes`", err)
	}

	return nil
}

// CRIODir is the subdirectory of the binaries with CRI-O and its programs, built by `make build-crio`.
const CRIODir = "crio"

// Conmon is the program that monitors each container of CRI-O.
const Conmon = "conmon"

// crioPrograms returns CRI-O, its program that pins namespaces, and the program that imports images into its store.
func crioPrograms() []string { return []string{"crio", "pinns", "images"} }

// CRIO returns the directory of CRI-O's programs.
func (s Set) CRIO() string { return filepath.Join(filepath.Dir(s.Kit), CRIODir) }

// HasCRIO returns an error if CRI-O is not available.
func (s Set) HasCRIO() error {
	for _, p := range crioPrograms() {
		if info, err := os.Stat(filepath.Join(s.CRIO(), p)); err != nil || !info.Mode().IsRegular() {
			return fmt.Errorf("no CRI-O: %s does not exist: run `make build-crio`", filepath.Join(s.CRIO(), p))
		}
	}

	if _, err := exec.LookPath(Conmon); err != nil {
		return fmt.Errorf("no CRI-O: %w: run `make build-crio`", err)
	}

	return nil
}
