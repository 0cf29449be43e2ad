// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

const (
	testVersion  = "v1.2.3"
	testRevision = "0123456789abcdef0123456789abcdef01234567"
)

// newModule writes a module with the command hello into a new directory.
func newModule(t *testing.T) string {
	t.Helper()

	dir := t.TempDir()
	for path, content := range map[string]string{
		"go.mod":             "module example.com/hello\n\ngo 1.26\n",
		"cmd/hello/hello.go": "package main\n\nvar version string\n\nfunc main() { println(version) }\n",
		"ca.crt":             "authorities\n",
	} {
		file := filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}

		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	return dir
}

func build(t *testing.T, module, out string, more ...string) {
	t.Helper()

	args := append([]string{
		"--source", module, "--out", out, "--version", testVersion, "--revision", testRevision, "--created", "1700000000",
		"--ca-file", filepath.Join(module, "ca.crt"), "--ldflags", "-s -w;hello:-X main.version=" + testVersion + ";other:-X main.version=no",
	}, more...)

	var table bytes.Buffer
	if err := run(t.Context(), append(args, "hello"), &table); err != nil {
		t.Fatal(err)
	}

	if !strings.Contains(table.String(), "linux/arm64") {
		t.Errorf("the table lacks a platform, want linux/arm64:\n%s", table.String())
	}
}

func rootDigest(t *testing.T, dir string) string {
	t.Helper()

	index, err := os.ReadFile(filepath.Join(dir, "hello", "index.json"))
	if err != nil {
		t.Fatal(err)
	}

	return string(index)
}

// TestSameSourcesSameDigest builds two checkouts in different directories.
func TestSameSourcesSameDigest(t *testing.T) {
	first := t.TempDir()
	second := t.TempDir()
	module := newModule(t)
	build(t, module, first)
	build(t, newModule(t), second)

	if one, other := rootDigest(t, first), rootDigest(t, second); one != other {
		t.Errorf("two builds have the digests\n%s\n%s, want the same", one, other)
	}
	if err := os.WriteFile(filepath.Join(module, "cmd/hello/more.go"), []byte("package main\n\nfunc init() { println(1) }\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	build(t, module, second)
	if rootDigest(t, first) == rootDigest(t, second) {
		t.Error("other sources have the same digest, want another")
	}
}

// TestReproducible builds the binaries of one commit of this repository twice, in different directories and without a common build cache,
// and compares their SBOMs, which have the digests of the binaries.
func TestReproducible(t *testing.T) {
	commands := testedCommands()
	var built [2]map[string]string
	for i := range built {
		source := t.TempDir()
		out := t.TempDir()

		if i > 0 {
			t.Setenv("GOCACHE", t.TempDir())
		}

		export := exec.CommandContext(t.Context(), "sh", "-c", `git -C ../.. archive HEAD | tar -x -C "$0"`, source)
		if text, err := export.CombinedOutput(); err != nil {
			t.Fatalf("exporting the sources: %v: %s", err, text)
		}

		args := []string{"--sbom", "--source", source, "--out", out, "--version", testVersion, "--created", "1700000000", "--platforms", "linux/amd64"}
		if err := run(t.Context(), append(args, commands...), io.Discard); err != nil {
			t.Fatal(err)
		}

		built[i] = map[string]string{}
		for _, command := range commands {
			text, err := os.ReadFile(filepath.Join(out, command+"-linux-amd64.spdx.json"))
			if err != nil {
				t.Fatal(err)
			}

			var document spdxDocument
			if err := json.Unmarshal(text, &document); err != nil || len(document.Packages) < 2 || len(document.Packages[0].Checksums) != 1 {
				t.Fatalf("SBOM of %s: %v, want 2 packages or more with a checksum: %s", command, err, text)
			}

			built[i][command] = string(text)
		}
	}

	for command, text := range built[0] {
		if text != built[1][command] {
			t.Errorf("two builds of %s differ, want the same SBOM:\n%s\n%s", command, text, built[1][command])
		}
	}
}

// testedCommands returns the commands of CRANE_REPRODUCIBLE (make nightly: all), a small one by default.
func testedCommands() []string {
	if commands := strings.Fields(os.Getenv("CRANE_REPRODUCIBLE")); len(commands) > 0 {
		return commands
	}

	return []string{"nodekit"}
}

// TestPushedImage pushes to a registry in memory and reads the images and their SBOMs back.
func TestPushedImage(t *testing.T) {
	to := newRegistry(t)
	out := t.TempDir()
	build(t, newModule(t), out, "--push", to)

	ref, err := name.ParseReference(to + "/hello:" + testVersion)
	if err != nil {
		t.Fatal(err)
	}

	index, err := remote.Index(ref)
	if err != nil {
		t.Fatal(err)
	}

	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}

	if len(manifest.Manifests) != 2 {
		t.Fatalf("%d platforms, want 2", len(manifest.Manifests))
	}

	checkLayout(t, filepath.Join(out, "hello"), index)
	for machine, descriptor := range map[elf.Machine]v1.Descriptor{elf.EM_X86_64: manifest.Manifests[0], elf.EM_AARCH64: manifest.Manifests[1]} {
		image, err := index.Image(descriptor.Digest)
		if err != nil {
			t.Fatal(err)
		}

		checkImage(t, image, machine)
		checkSBOM(t, ref.Context().Digest(descriptor.Digest.String()), descriptor)
	}
}

// checkLayout compares the OCI layout with what was pushed.
func checkLayout(t *testing.T, dir string, pushed v1.ImageIndex) {
	t.Helper()

	path, err := layout.FromPath(dir)
	if err != nil {
		t.Fatal(err)
	}

	root, err := path.ImageIndex()
	if err != nil {
		t.Fatal(err)
	}

	manifest, err := root.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}

	digest, err := pushed.Digest()
	if err != nil {
		t.Fatal(err)
	}

	if len(manifest.Manifests) != 3 || manifest.Manifests[0].Digest != digest || manifest.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != testVersion {
		t.Errorf("layout %+v, want the pushed digest %s first of 3", manifest.Manifests, digest)
	}
}

func checkImage(t *testing.T, image v1.Image, machine elf.Machine) {
	t.Helper()

	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}

	labels := config.Config.Labels
	if config.Config.User != "65532:65532" || len(config.Config.Entrypoint) != 1 || labels["org.opencontainers.image.version"] != testVersion ||
		labels["org.opencontainers.image.revision"] != testRevision || labels["org.opencontainers.image.created"] != "2023-11-14T22:13:20Z" {
		t.Errorf("configuration %+v, want user 65532 and the labels of the build", config.Config)
	}

	files := filesOf(t, image)
	if len(files) != 2 || string(files["etc/ssl/certs/ca-certificates.crt"]) != "authorities\n" {
		t.Errorf("%d files, want the binary and the authorities", len(files))
	}

	binary, err := elf.NewFile(bytes.NewReader(files[strings.TrimPrefix(config.Config.Entrypoint[0], "/")]))
	if err != nil {
		t.Fatal(err)
	}

	if libraries, _ := binary.ImportedLibraries(); binary.Machine != machine || len(libraries) > 0 {
		t.Errorf("machine %s, libraries %v, want %s without libraries", binary.Machine, libraries, machine)
	}
	if !bytes.Contains(files["crane-binary"], []byte(testVersion)) {
		t.Error("the binary does not have the version, want the linker's flags used")
	}
}

func filesOf(t *testing.T, image v1.Image) map[string][]byte {
	t.Helper()

	layers, err := image.Layers()
	if err != nil {
		t.Fatal(err)
	}

	out := map[string][]byte{}
	for _, layer := range layers {
		content, err := layer.Uncompressed()
		if err != nil {
			t.Fatal(err)
		}
		defer content.Close()

		archive := tar.NewReader(content)
		for {
			header, err := archive.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}

			if header.Uid != 0 || header.Mode&0o222 != 0 {
				t.Errorf("%s: user %d, mode %o, want root and no right to write", header.Name, header.Uid, header.Mode)
			}
			if out[header.Name], err = io.ReadAll(archive); err != nil {
				t.Fatal(err)
			}
		}
	}

	return out
}

// checkSBOM reads the SBOM that refers to an image.
func checkSBOM(t *testing.T, image name.Digest, descriptor v1.Descriptor) {
	t.Helper()

	referrers, err := remote.Referrers(image)
	if err != nil {
		t.Fatal(err)
	}

	manifest, err := referrers.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}

	if len(manifest.Manifests) != 1 || manifest.Manifests[0].ArtifactType != string(spdxMediaType) {
		t.Fatalf("referrers of %s: %+v, want one SBOM", image, manifest.Manifests)
	}

	artifact, err := remote.Image(image.Context().Digest(manifest.Manifests[0].Digest.String()))
	if err != nil {
		t.Fatal(err)
	}

	layers, err := artifact.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%d layers, %v, want 1", len(layers), err)
	}

	content, err := layers[0].Compressed()
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()

	var document spdxDocument
	if err := json.NewDecoder(content).Decode(&document); err != nil {
		t.Fatal(err)
	}

	if document.Version != "SPDX-2.3" || !strings.HasSuffix(document.Namespace, descriptor.Digest.String()) || len(document.Packages) != 2 ||
		document.Packages[0].Version != testVersion || !strings.HasPrefix(document.Packages[1].Version, "go1.") {
		t.Errorf("SBOM %+v, want SPDX-2.3 of the image with two packages", document)
	}
}
