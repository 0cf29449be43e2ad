// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/google/go-containerregistry/pkg/compression"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// imageContent is what an image of one platform is made of.
type imageContent struct {
	command, binary, caFile, version, revision string
	platform                                   *v1.Platform
	created                                    time.Time
	// bundled are the packages of npm in the binary.
	bundled []npmPackage
}

// platformImage is the image of one platform and its SBOM, whose subject the image is.
type platformImage struct {
	platform    *v1.Platform
	image, sbom v1.Image
}

// Paths and user are those of the Dockerfile.
const (
	binaryPath = "crane-binary"
	caPath     = "etc/ssl/certs/ca-certificates.crt"
	user       = "65532:65532"
	title      = "Crane "
	license    = "Apache-2.0"
	// zstdLevel selects the encoder's best compression.
	zstdLevel = 22
)

func newPlatformImage(c imageContent) (platformImage, error) {
	layers := make([]mutate.Addendum, 0, 2)
	files := []struct {
		from, to string
		mode     int64
	}{{c.caFile, caPath, 0o444}, {c.binary, binaryPath, 0o555}}

	for _, f := range files {
		if f.from == "" {
			continue
		}

		layer, err := newLayer(f.from, f.to, f.mode, c.created)
		if err != nil {
			return platformImage{}, err
		}

		layers = append(layers, mutate.Addendum{Layer: layer, History: v1.History{Created: v1.Time{Time: c.created}, CreatedBy: "COPY /" + f.to}})
	}

	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.Append(base, layers...)
	if err != nil {
		return platformImage{}, err
	}

	config, err := image.ConfigFile()
	if err != nil {
		return platformImage{}, err
	}

	// Labels, annotations and times come from the options alone: the same sources have the same digest.
	config = config.DeepCopy()
	config.OS = c.platform.OS
	config.Architecture = c.platform.Architecture
	config.Variant = c.platform.Variant
	config.Created = v1.Time{Time: c.created}
	config.Config.User = user

	config.Config.Entrypoint = []string{"/" + binaryPath}
	config.Config.Labels = c.labels()
	if image, err = mutate.ConfigFile(image, config); err != nil {
		return platformImage{}, err
	}

	image, _ = mutate.Annotations(image, c.labels()).(v1.Image)
	sbom, err := newSBOM(c, image)
	return platformImage{platform: c.platform, image: image, sbom: sbom}, err
}

// labels returns the annotations of the OCI image specification.
func (c imageContent) labels() map[string]string {
	out := map[string]string{
		"org.opencontainers.image.title":    title + c.command,
		"org.opencontainers.image.version":  c.version,
		"org.opencontainers.image.licenses": license,
		"org.opencontainers.image.created":  c.created.Format(time.RFC3339),
	}

	if c.revision != "" {
		out["org.opencontainers.image.revision"] = c.revision
	}

	return out
}

// newLayer returns a layer with one file, owned by root.
func newLayer(from, to string, mode int64, modified time.Time) (v1.Layer, error) {
	content, err := os.ReadFile(from)
	if err != nil {
		return nil, err
	}

	var buffer bytes.Buffer
	archive := tar.NewWriter(&buffer)
	if err := archive.WriteHeader(&tar.Header{
		Name:    to,
		Mode:    mode,
		Size:    int64(len(content)),
		ModTime: modified,
		Format:  tar.FormatPAX,
	}); err != nil {
		return nil, err
	}

	if _, err := archive.Write(content); err != nil {
		return nil, err
	}

	if err := archive.Close(); err != nil {
		return nil, err
	}

	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(buffer.Bytes())), nil }
	// A quarter smaller than gzip for these binaries. Every container runtime of a supported Kubernetes version reads it.
	return tarball.LayerFromOpener(open, tarball.WithCompression(compression.ZStd), tarball.WithCompressionLevel(zstdLevel), tarball.WithMediaType(types.OCILayerZStd))
}

// newSBOM returns an artifact with the SPDX document of the binary of an image.
func newSBOM(c imageContent, image v1.Image) (v1.Image, error) {
	digest, err := image.Digest()
	if err != nil {
		return nil, err
	}

	size, err := image.Size()
	if err != nil {
		return nil, err
	}

	document, err := spdx(c, digest.String())
	if err != nil {
		return nil, fmt.Errorf("SBOM: %w", err)
	}

	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), spdxMediaType)
	artifact, err := mutate.AppendLayers(base, static.NewLayer(document, spdxMediaType))
	if err != nil {
		return nil, err
	}

	subject := v1.Descriptor{MediaType: types.OCIManifestSchema1, Digest: digest, Size: size}
	out, _ := mutate.Subject(artifact, subject).(v1.Image)
	return out, nil
}

// newIndex returns the index of the images of all platforms.
func newIndex(built []platformImage) (v1.ImageIndex, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, p := range built {
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: p.image, Descriptor: v1.Descriptor{Platform: p.platform}})
	}

	return index, nil
}

// writeLayout writes the index with its tag, and the SBOMs beside it, into an OCI layout.
func writeLayout(dir, version string, index v1.ImageIndex, built []platformImage) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}

	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}

	if err := path.AppendIndex(index, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": version})); err != nil {
		return err
	}

	for _, p := range built {
		if err := path.AppendImage(p.sbom); err != nil {
			return err
		}
	}

	return nil
}
