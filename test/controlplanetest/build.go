// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplanetest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// ldflagsFile holds the linker flags of the binary, relative to the module's root; the Makefile reads it too.
const ldflagsFile = "hack/controlplane-ldflags"

// buildBinary builds bin/controlplane of the module that contains the working directory and returns its path. A file
// lock serializes test packages that run at the same time; only the first one builds.
func buildBinary(ctx context.Context) (string, error) {
	root, err := moduleRoot()
	if err != nil {
		return "", fmt.Errorf("building the controlplane binary: %w", err)
	}

	ldflags, err := os.ReadFile(filepath.Join(root, ldflagsFile))
	if err != nil {
		return "", fmt.Errorf("building the controlplane binary: %w", err)
	}

	bin := filepath.Join(root, "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return "", fmt.Errorf("building the controlplane binary: %w", err)
	}

	lock, err := os.OpenFile(filepath.Join(bin, ".controlplane.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", fmt.Errorf("building the controlplane binary: %w", err)
	}
	defer lock.Close()

	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", fmt.Errorf("locking the folder of the controlplane binary: %w", err)
	}

	path := filepath.Join(bin, "controlplane")
	// -race=false overrides GOFLAGS: the race detector is for the tests, not for the servers.
	cmd := exec.CommandContext(ctx, "go", "build", "-race=false", "-ldflags="+strings.TrimSpace(string(ldflags)),
		"-o", path, "./cmd/controlplane")

	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the controlplane binary: %w\n%s", err, out)
	}

	return path, nil
}

// moduleRoot returns the nearest parent directory that contains a go.mod.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}

	for {
		_, err := os.Stat(filepath.Join(dir, "go.mod"))
		if err == nil {
			return dir, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}

		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("no go.mod in the working directory or its parents")
		}

		dir = parent
	}
}
