// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package ociimage

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
)

func image(name string) Image {
	return Image{
		Name: name, Entrypoint: []string{"/bin/tool", "run"}, Architecture: "amd64",
		Files: map[string][]byte{"/bin/tool": []byte("program"), "/bin/other": []byte("other")},
	}
}

// unpack reads an archive into memory.
func unpack(t *testing.T, content []byte) map[string][]byte {
	t.Helper()

	files := map[string][]byte{}
	for in := tar.NewReader(bytes.NewReader(content)); ; {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}

		data, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}

		if _, twice := files[header.Name]; twice {
			t.Errorf("%s is in the archive twice, want each name once", header.Name)
		}
		files[header.Name] = data
	}
}

func TestWrite(t *testing.T) {
	var archive bytes.Buffer
	if err := Write(&archive, image("crane.local/a:1"), image("crane.local/b:1")); err != nil {
		t.Fatal(err)
	}

	files := unpack(t, archive.Bytes())
	for name, content := range files {
		if digest, ok := strings.CutPrefix(name, "blobs/sha256/"); ok {
			if sum := sha256.Sum256(content); hex.EncodeToString(sum[:]) != digest {
				t.Errorf("digest of %s differs from its name, want the digest of the content", name)
			}
		}
	}

	var index struct {
		Manifests []descriptor `json:"manifests"`
	}

	if err := json.Unmarshal(files["index.json"], &index); err != nil || len(index.Manifests) != 2 {
		t.Fatalf("index.json has %d manifests, error %v; want 2", len(index.Manifests), err)
	}

	layers := map[string]bool{}
	for i, want := range []string{"crane.local/a:1", "crane.local/b:1"} {
		d := index.Manifests[i]
		if d.Annotations[nameKey] != want {
			t.Errorf("name of manifest %d = %q, want %q", i, d.Annotations[nameKey], want)
		}

		var manifest struct{ Layers []descriptor }
		if err := json.Unmarshal(files["blobs/sha256/"+strings.TrimPrefix(d.Digest, "sha256:")], &manifest); err != nil || len(manifest.Layers) != 1 {
			t.Fatalf("manifest %d = %+v, error %v; want one layer", i, manifest, err)
		}

		layers[manifest.Layers[0].Digest] = true
		inside := unpack(t, files["blobs/sha256/"+strings.TrimPrefix(manifest.Layers[0].Digest, "sha256:")])
		if string(inside["bin/tool"]) != "program" || string(inside["bin/other"]) != "other" {
			t.Errorf("files of manifest %d = %q, want program and other", i, inside)
		}
	}

	if len(layers) != 1 {
		t.Errorf("%d layers for the same files, want one", len(layers))
	}

	var again bytes.Buffer
	if err := Write(&again, image("crane.local/a:1"), image("crane.local/b:1")); err != nil || !bytes.Equal(archive.Bytes(), again.Bytes()) {
		t.Errorf("second Write of the same images: error %v, want the same bytes", err)
	}
}

func TestWriteRefuses(t *testing.T) {
	for name, change := range map[string]func(*Image){
		"a name without a tag": func(i *Image) { i.Name = "crane.local" },
		"no entry point":       func(i *Image) { i.Entrypoint = nil },
		"no files":             func(i *Image) { i.Files = nil },
		"a relative path":      func(i *Image) { i.Files = map[string][]byte{"bin/tool": nil} },
		"a path that climbs":   func(i *Image) { i.Files = map[string][]byte{"/bin/../../tool": nil} },
		"no architecture":      func(i *Image) { i.Architecture = "" },
	} {
		t.Run(name, func(t *testing.T) {
			i := image("crane.local/a:1")
			change(&i)

			if err := Write(io.Discard, i); err == nil {
				t.Errorf("Write of an image with %s: no error, want one", name)
			}
		})
	}
}
