// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package assets finds or builds the files that real nodes are made of, and keeps what it makes by the content of what it
// was made from: a second run finds all of it. It starts nothing.
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

// BinEnv names the environment variable that holds the directory of the built binaries.
const BinEnv = "CRANE_BIN"

// Set is the files that nodes are made of.
type Set struct {
	// Kit is nodekit, Kubelet the kubelet, Controlplane the control plane's binary.
	Kit, Kubelet, Controlplane string
	// Cache is where made files are kept.
	Cache string
	// Commands are static binaries by the name of the image that holds each, beside the test programs: Crane's own, as a cluster
	// runs them. WithCommands finds them.
	Commands map[string]string
}

// In takes the binaries of a directory; what is made from them is kept beside it.
func In(bin string) (Set, error) {
	bin, err := filepath.Abs(bin)
	if err != nil {
		return Set{}, fmt.Errorf("find binaries: %w", err)
	}
	s := Set{
		Kit:          filepath.Join(bin, "nodekit"),
		Kubelet:      filepath.Join(bin, "kubelet"),
		Controlplane: filepath.Join(bin, "controlplane"),
		Cache:        filepath.Join(filepath.Dir(bin), ".cache", "nodes"),
	}
	for _, path := range []string{s.Kit, s.Kubelet, s.Controlplane} {
		if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
			return Set{}, fmt.Errorf("%s is not there: run `make build-nodes`", path)
		}
	}
	return s, nil
}

// staticDir, below the directory of the binaries, has those of Crane's commands that images can be made of.
const staticDir = "static"

// WithCommands adds commands of this module, of which nodes then have images under ImageName(command). Each is to be static: an
// image holds the binary and nothing else.
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

// static says why a file is no static program, nil if it is one.
func static(path string) error {
	f, err := elf.Open(path)
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			err = fmt.Errorf("%s needs a dynamic linker", path)
		}
	}
	return errors.Join(err, f.Close())
}

// ForTest takes the binaries of $CRANE_BIN, else those of the module around the working directory, which it builds unless
// they were just built.
func ForTest(ctx context.Context, built bool) (Set, error) {
	if bin := os.Getenv(BinEnv); bin != "" {
		return In(bin)
	}
	root, err := moduleRoot()
	if err != nil {
		return Set{}, err
	}
	if built {
		return In(filepath.Join(root, "bin"))
	}
	unlock, err := lock(filepath.Join(root, ".cache", "nodes"))
	if err != nil {
		return Set{}, err
	}
	defer unlock()
	cmd := exec.CommandContext(ctx, "make", "--no-print-directory", "build-nodes")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return Set{}, fmt.Errorf("build the binaries of nodes: %w\n%s", err, out)
	}
	return In(filepath.Join(root, "bin"))
}

// moduleRoot is the nearest directory upwards that holds a go.mod.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the module: %w", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if filepath.Dir(dir) == dir {
			return "", errors.New("find the module: no go.mod upwards of the working directory")
		}
		dir = filepath.Dir(dir)
	}
}

// lock keeps others out of a cache directory until unlock is called or this process ends.
func lock(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("lock cache: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, ".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock cache: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock cache: %w", err)
	}
	return func() { f.Close() }, nil
}

// Registry is the name before the images' own; nothing serves under it.
const Registry = "crane.local/"

// ImageName is the name under which nodes have the image of a test program or a command.
func ImageName(program string) string { return Registry + program + ":1" }

// CommandPath is where the image of a command has its program, as the images of Crane's Dockerfile have.
const CommandPath = "/crane-binary"

// Images returns the path of an archive with one image for each program of the kit, and for each command of the set.
func (s Set) Images(programs []string) (string, error) {
	kit, err := os.ReadFile(s.Kit)
	if err != nil {
		return "", fmt.Errorf("make images: %w", err)
	}
	key := sha256.New()
	fmt.Fprintf(key, "%s %q\n", runtime.GOARCH, programs)
	key.Write(kit)
	// Tests with commands and tests without take turns with one cache: each keeps its own archive.
	commands := slices.Sorted(maps.Keys(s.Commands))
	name := strings.Join(append([]string{"images"}, commands...), ".")
	for _, c := range commands {
		if err := digest(key, s.Commands[c]); err != nil {
			return "", fmt.Errorf("make images: %w", err)
		}
	}
	return s.keep(name, key.Sum(nil), ".tar", func(path string) error {
		images := make([]ociimage.Image, len(programs))
		for i, p := range programs {
			images[i] = ociimage.Image{
				Name: ImageName(p), Entrypoint: []string{"/nodekit", p},
				Files: map[string][]byte{"/nodekit": kit}, Architecture: runtime.GOARCH,
			}
		}
		for _, c := range commands {
			content, err := os.ReadFile(s.Commands[c])
			if err != nil {
				return err
			}
			images = append(images, ociimage.Image{
				Name: ImageName(c), Entrypoint: []string{CommandPath}, Files: map[string][]byte{CommandPath: content}, Architecture: runtime.GOARCH,
			})
		}
		f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
		if err != nil {
			return err
		}
		return errors.Join(ociimage.Write(f, images...), f.Close())
	})
}

// keep returns the kept file of that name and key, made by produce if it is not there yet. Files of the same name with
// another key are of an older version and are removed.
func (s Set) keep(name string, key []byte, suffix string, produce func(path string) error) (string, error) {
	unlock, err := lock(s.Cache)
	if err != nil {
		return "", err
	}
	defer unlock()
	path := filepath.Join(s.Cache, name+"-"+hex.EncodeToString(key[:8])+suffix)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("look for kept %s: %w", name, err)
	}
	partial := filepath.Join(s.Cache, ".partial-"+name+suffix)
	if err := os.RemoveAll(partial); err != nil {
		return "", fmt.Errorf("make %s: %w", name, err)
	}
	if err := produce(partial); err != nil {
		return "", fmt.Errorf("make %s: %w", name, errors.Join(err, os.RemoveAll(partial)))
	}
	old, err := filepath.Glob(filepath.Join(s.Cache, name+"-*"+suffix))
	if err != nil {
		return "", fmt.Errorf("make %s: %w", name, err)
	}
	for _, o := range old {
		// A node that is starting may have it open; the name can go all the same.
		if err := os.RemoveAll(o); err != nil {
			return "", fmt.Errorf("remove old %s: %w", name, err)
		}
	}
	if err := os.Rename(partial, path); err != nil {
		return "", fmt.Errorf("make %s: %w", name, err)
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
			return fmt.Errorf("read %s: %w", file, err)
		}
	}
	return nil
}
