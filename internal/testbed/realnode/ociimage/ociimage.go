// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ociimage writes container images without a registry and without a container engine: an archive in the OCI
// image layout (github.com/opencontainers/image-spec, image-layout.md) for `ctr images import`. Equal input yields
// equal bytes.
package ociimage

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
)

// Media types, and the annotation from which containerd reads the image name.
const (
	typeIndex    = "application/vnd.oci.image.index.v1+json"
	typeManifest = "application/vnd.oci.image.manifest.v1+json"
	typeConfig   = "application/vnd.oci.image.config.v1+json"
	typeLayer    = "application/vnd.oci.image.layer.v1.tar"
	nameKey      = "io.containerd.image.name"
)

// Image is one image of an archive.
type Image struct {
	// Name is the image name with its tag, such as "crane.local/pause:1".
	Name string
	// Entrypoint is the command of the image.
	Entrypoint []string
	// Files maps absolute paths to the programs of its only layer. Images with equal files share a layer.
	Files map[string][]byte
	// Architecture is the GOARCH of the programs, such as "amd64".
	Architecture string
}

type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Platform    *platform         `json:"platform,omitempty"`
}

type platform struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
}

// Write writes the images to out.
func Write(out io.Writer, images ...Image) error {
	a := &archive{out: tar.NewWriter(out), seen: map[string]bool{}}
	var manifests []descriptor
	for _, image := range images {
		d, err := a.image(image)
		if err != nil {
			return fmt.Errorf("writing image %s: %w", image.Name, err)
		}

		manifests = append(manifests, d)
	}

	index := map[string]any{"schemaVersion": 2, "mediaType": typeIndex, "manifests": manifests}
	if err := a.json("index.json", index); err != nil {
		return err
	}

	if err := a.json("oci-layout", map[string]string{"imageLayoutVersion": "1.0.0"}); err != nil {
		return err
	}

	return a.out.Close()
}

// archive writes each file once.
type archive struct {
	out  *tar.Writer
	seen map[string]bool
}

func (a *archive) image(i Image) (descriptor, error) {
	if !strings.Contains(i.Name, ":") || len(i.Entrypoint) == 0 || len(i.Files) == 0 || i.Architecture == "" {
		return descriptor{}, errors.New("requires a name with a tag, an entry point, files and an architecture")
	}

	content, err := layer(i.Files)
	if err != nil {
		return descriptor{}, err
	}

	// The configuration names the layer by its digest, the manifest both of them.
	layerBlob, err := a.blob(typeLayer, content)
	if err != nil {
		return descriptor{}, err
	}

	target := platform{Architecture: i.Architecture, OS: "linux"}
	config, err := a.jsonBlob(typeConfig, map[string]any{
		"architecture": target.Architecture, "os": target.OS,
		"config": map[string]any{"Entrypoint": i.Entrypoint, "WorkingDir": "/"},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{layerBlob.Digest}},
	})
	if err != nil {
		return descriptor{}, err
	}

	manifest, err := a.jsonBlob(typeManifest, map[string]any{
		"schemaVersion": 2, "mediaType": typeManifest, "config": config, "layers": []descriptor{layerBlob},
	})
	manifest.Platform = &target
	manifest.Annotations = map[string]string{nameKey: i.Name}

	return manifest, err
}

func (a *archive) jsonBlob(mediaType string, v any) (descriptor, error) {
	content, err := json.Marshal(v)
	if err != nil {
		return descriptor{}, err
	}

	return a.blob(mediaType, content)
}

func (a *archive) blob(mediaType string, content []byte) (descriptor, error) {
	sum := sha256.Sum256(content)
	digest := hex.EncodeToString(sum[:])
	d := descriptor{MediaType: mediaType, Digest: "sha256:" + digest, Size: len(content)}

	return d, a.file("blobs/sha256/"+digest, content)
}

func (a *archive) json(name string, v any) error {
	content, err := json.Marshal(v)
	if err != nil {
		return err
	}

	return a.file(name, content)
}

func (a *archive) file(name string, content []byte) error {
	if a.seen[name] {
		return nil
	}

	a.seen[name] = true
	return writeFile(a.out, name, 0o644, content)
}

// layer returns a tar archive of executable files and their parent directories.
func layer(files map[string][]byte) ([]byte, error) {
	names := make([]string, 0, len(files))
	for name := range files {
		if !path.IsAbs(name) || path.Clean(name) != name || name == "/" {
			return nil, fmt.Errorf("%q is not the clean absolute path of a file", name)
		}

		names = append(names, name)
	}

	// Equal files give equal bytes: the order is fixed and times are zero.
	slices.Sort(names)
	var content bytes.Buffer

	out := tar.NewWriter(&content)
	created := map[string]bool{}
	for _, name := range append([]string{"/tmp/"}, names...) {
		if err := makeParents(out, name, created); err != nil {
			return nil, err
		}

		if strings.HasSuffix(name, "/") {
			continue
		}

		if err := writeFile(out, strings.TrimPrefix(name, "/"), 0o755, files[name]); err != nil {
			return nil, err
		}
	}

	if err := out.Close(); err != nil {
		return nil, err
	}

	return content.Bytes(), nil
}

func makeParents(out *tar.Writer, name string, created map[string]bool) error {
	for i, c := range name {
		if c != '/' || i == 0 || created[name[:i]] {
			continue
		}

		created[name[:i]] = true
		header := &tar.Header{Typeflag: tar.TypeDir, Name: name[1:i] + "/", Mode: 0o755}
		if err := out.WriteHeader(header); err != nil {
			return err
		}
	}

	return nil
}

func writeFile(out *tar.Writer, name string, mode int64, content []byte) error {
	header := &tar.Header{
		Typeflag: tar.TypeReg,
		Name:     name,
		Mode:     mode,
		Size:     int64(len(content)),
	}

	if err := out.WriteHeader(header); err != nil {
		return err
	}

	_, err := out.Write(content)
	return err
}
