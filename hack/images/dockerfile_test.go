// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/sha256"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

const repository = "../.."

// TestDockerfile runs the build of the Dockerfile in a checkout and compares the binary with that of `make images`, for the commands of
// testedCommands. The Dockerfile's other steps copy files.
func TestDockerfile(t *testing.T) {
	build := dockerfileBuild(t)
	o := options{source: checkout(t), ldflags: makeLdflags(t)}
	for _, command := range testedCommands() {
		dir := t.TempDir()
		script := exec.CommandContext(t.Context(), "sh", "-c", strings.ReplaceAll(build, "/out/", dir+"/"))
		script.Dir = o.source

		// Settings of this machine are not those of the container.
		script.Env = append(os.Environ(), "GOENV=off", "GOFLAGS=", "GOWORK=off", "COMMAND="+command, "VERSION="+testVersion)
		if out, err := script.CombinedOutput(); err != nil {
			t.Fatalf("running the build of %s: %v: %s", command, err, out)
		}

		want := filepath.Join(t.TempDir(), binaryPath)
		if err := o.compile(t.Context(), command, &v1.Platform{OS: runtime.GOOS, Architecture: runtime.GOARCH}, want); err != nil {
			t.Fatal(err)
		}

		if digest(t, filepath.Join(dir, binaryPath)) != digest(t, want) {
			t.Errorf("%s: the Dockerfile and make images build different binaries, want the same", command)
		}
	}
}

// checkout returns a repository with the sources of the current commit. Its state would be a part of binaries without -buildvcs=false.
func checkout(t *testing.T) string {
	t.Helper()

	dir := t.TempDir()
	script := exec.CommandContext(t.Context(), "sh", "-ec", `
git -C ../.. archive HEAD | tar -x -C "$0"
cd "$0"
git init -q
git add -A
git -c user.name=test -c user.email=test@example.com -c commit.gpgsign=false commit -qm test`, dir)

	if out, err := script.CombinedOutput(); err != nil {
		t.Fatalf("committing the checkout: %v: %s", err, out)
	}

	return dir
}

// dockerfileBuild returns the command of the Dockerfile that builds the binary.
func dockerfileBuild(t *testing.T) string {
	t.Helper()

	text, err := os.ReadFile(filepath.Join(repository, "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}

	for line := range strings.Lines(strings.ReplaceAll(string(text), "\\\n", "")) {
		if command, ok := strings.CutPrefix(line, "RUN "); ok && strings.Contains(command, "go build") {
			return command
		}
	}

	t.Fatal("the Dockerfile builds nothing, want a command that builds")
	return ""
}

// makeLdflags returns the flags of the linker that `make images` passes for testVersion.
func makeLdflags(t *testing.T) string {
	t.Helper()

	plan, err := exec.CommandContext(t.Context(), "make", "-C", repository, "--dry-run", "--no-print-directory", "images", "VERSION="+testVersion).CombinedOutput()
	if err != nil {
		t.Fatalf("running make images: %v: %s", err, plan)
	}

	flags := regexp.MustCompile(`(?s)-ldflags '([^']+)'`).FindSubmatch(plan)
	if flags == nil {
		t.Fatalf("no -ldflags in %s, want some", plan)
	}

	return string(flags[1])
}

func digest(t *testing.T, path string) [sha256.Size]byte {
	t.Helper()

	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	return sha256.Sum256(content)
}
