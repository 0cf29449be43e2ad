// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package release_test runs hack/release.sh and checks the files of a release and the workflows.
package release_test

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"crane.io/crane/test/nightly"
)

const version = "v1.2.3"

// krewPlugin is what krew requires of a manifest.
type krewPlugin struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		Version          string `json:"version"`
		Homepage         string `json:"homepage"`
		ShortDescription string `json:"shortDescription"`
		Description      string `json:"description"`
		Platforms        []struct {
			Selector struct {
				MatchLabels map[string]string `json:"matchLabels"`
			} `json:"selector"`
			URI    string `json:"uri"`
			SHA256 string `json:"sha256"`
			Bin    string `json:"bin"`
		} `json:"platforms"`
	} `json:"spec"`
}

// TestRelease writes the files of a release twice, for this platform and for Windows, and checks that both runs are the
// same byte for byte, that the checksums, the SBOMs and the krew manifest name what the archives hold, and that the
// binary runs and prints its version.
func TestRelease(t *testing.T) {
	nightly.Only(t)
	host := runtime.GOOS + "/" + runtime.GOARCH
	dir := release(t, host, "windows/amd64")
	sums := checksums(t, dir)

	var plugin krewPlugin
	if err := yaml.UnmarshalStrict([]byte(read(t, dir, "rightsize.yaml")), &plugin); err != nil {
		t.Fatal(err)
	}

	if plugin.APIVersion != "krew.googlecontainertools.github.com/v1alpha2" || plugin.Kind != "Plugin" || plugin.Metadata.Name != "rightsize" ||
		plugin.Spec.Version != version || plugin.Spec.ShortDescription == "" || len(plugin.Spec.Platforms) != 2 {
		t.Errorf("krew manifest: %+v, want rightsize %s with two platforms", plugin, version)
	}

	for _, p := range plugin.Spec.Platforms {
		archive := path.Base(p.URI)
		if sum := sums[archive]; sum == "" || sum != p.SHA256 || !strings.Contains(p.URI, "/"+version+"/") {
			t.Errorf("krew manifest: %s has checksum %s, want %q", p.URI, p.SHA256, sum)
		}

		files := unpack(t, filepath.Join(dir, archive))
		if len(files) != 2 || files[p.Bin] == "" || files["LICENSE"] == "" {
			t.Errorf("%s holds %v, want %s and LICENSE", archive, files, p.Bin)
		}

		checkSBOM(t, dir, sums, p.Selector.MatchLabels["os"]+"-"+p.Selector.MatchLabels["arch"], files[p.Bin])
		if p.Selector.MatchLabels["os"]+"/"+p.Selector.MatchLabels["arch"] != host {
			continue
		}

		out, err := exec.CommandContext(t.Context(), files[p.Bin], "version").CombinedOutput()
		if err != nil || !strings.Contains(string(out), version) {
			t.Errorf("crane version: %v, want %s: %s", err, version, out)
		}
	}

	if notes := read(t, dir, "NOTES.md"); !strings.HasPrefix(notes, "# Crane "+version+"\n") || !strings.Contains(notes, "\n## ") || !strings.Contains(notes, "\n- ") {
		t.Errorf("release notes %.200s, want a title with sections and items", notes)
	}

	again := checksums(t, release(t, host, "windows/amd64"))
	for file, sum := range sums {
		if again[file] != sum {
			t.Errorf("%s: two runs differ, want the same checksum", file)
		}
	}
}

func release(t *testing.T, platforms ...string) string {
	t.Helper()

	dir := t.TempDir()
	command := exec.CommandContext(t.Context(), "../../hack/release.sh", append([]string{version, dir}, platforms...)...)
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("running hack/release.sh: %v: %s", err, out)
	}

	return dir
}

// checksums returns the content of SHA256SUMS by file, each of which must be right.
func checksums(t *testing.T, dir string) map[string]string {
	t.Helper()

	sums := map[string]string{}
	for line := range strings.Lines(read(t, dir, "SHA256SUMS")) {
		sum, file, _ := strings.Cut(strings.TrimSpace(line), "  ")
		actual := sha256.Sum256([]byte(read(t, dir, file)))
		if hex.EncodeToString(actual[:]) != sum {
			t.Errorf("SHA256SUMS: %s has the checksum %s, want %x", file, sum, actual)
		}

		sums[file] = sum
	}

	if len(sums) != 5 {
		t.Errorf("SHA256SUMS: %d files, want 2 archives, their SBOMs and the krew manifest", len(sums))
	}

	return sums
}

// checkSBOM checks that the SBOM of a platform has a checksum and is that of the binary in the archive.
func checkSBOM(t *testing.T, dir string, sums map[string]string, platform, binary string) {
	t.Helper()

	file := "crane-" + platform + ".spdx.json"
	if sums[file] == "" {
		t.Errorf("SHA256SUMS does not have %s, want it", file)
		return
	}

	content, err := os.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}

	sum := sha256.Sum256(content)
	if !strings.Contains(read(t, dir, file), hex.EncodeToString(sum[:])) {
		t.Errorf("%s lacks a checksum, want that of the binary in the archive", file)
	}
}

func read(t *testing.T, dir, file string) string {
	t.Helper()

	text, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		t.Fatal(err)
	}

	return string(text)
}

// unpack extracts an archive into a new directory and returns the paths of its files by name.
func unpack(t *testing.T, archive string) map[string]string {
	t.Helper()

	f, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()

	unzipped, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}

	dir := t.TempDir()
	files := map[string]string{}
	for r := tar.NewReader(unzipped); ; {
		header, err := r.Next()
		if err == io.EOF {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}

		file := filepath.Join(dir, filepath.Base(header.Name))
		out, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_EXCL, header.FileInfo().Mode())
		if err != nil {
			t.Fatal(err)
		}

		_, err = io.Copy(out, r)
		if closeErr := out.Close(); err != nil || closeErr != nil {
			t.Fatal(err, closeErr)
		}

		files[header.Name] = file
	}
}
