// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/types"
)

// spdxMediaType is the media type of SPDX documents in JSON.
const spdxMediaType types.MediaType = "application/spdx+json"

// The parts of SPDX 2.3 that a Go binary needs.
type (
	spdxDocument struct {
		Version       string             `json:"spdxVersion"`
		DataLicense   string             `json:"dataLicense"`
		ID            string             `json:"SPDXID"`
		Name          string             `json:"name"`
		Namespace     string             `json:"documentNamespace"`
		CreationInfo  spdxCreation       `json:"creationInfo"`
		Packages      []spdxPackage      `json:"packages"`
		Relationships []spdxRelationship `json:"relationships"`
	}
	spdxCreation struct {
		Created  string   `json:"created"`
		Creators []string `json:"creators"`
	}
	spdxPackage struct {
		ID               string         `json:"SPDXID"`
		Name             string         `json:"name"`
		Version          string         `json:"versionInfo,omitempty"`
		DownloadLocation string         `json:"downloadLocation"`
		FilesAnalyzed    bool           `json:"filesAnalyzed"`
		LicenseDeclared  string         `json:"licenseDeclared"`
		Checksums        []spdxChecksum `json:"checksums,omitempty"`
		References       []spdxExternal `json:"externalRefs,omitempty"`
	}
	spdxChecksum struct {
		Algorithm string `json:"algorithm"`
		Value     string `json:"checksumValue"`
	}
	spdxExternal struct {
		Category string `json:"referenceCategory"`
		Type     string `json:"referenceType"`
		Locator  string `json:"referenceLocator"`
	}
	spdxRelationship struct {
		From string `json:"spdxElementId"`
		Type string `json:"relationshipType"`
		To   string `json:"relatedSpdxElement"`
	}
)

const unknown = "NOASSERTION"

// writeSBOMs compiles a command for each platform, and writes the SPDX document of each binary to COMMAND-OS-ARCHITECTURE.spdx.json.
func (o *options) writeSBOMs(ctx context.Context, command string, table io.Writer) error {
	for text := range strings.SplitSeq(o.platforms, ",") {
		content, remove, err := o.imageContent(ctx, command, text)
		if err != nil {
			return fmt.Errorf("%s: %w", text, err)
		}
		defer remove()

		binary, err := os.ReadFile(content.binary)
		if err != nil {
			return err
		}

		// The document names the digest of the binary, as no image carries it here.
		digest := fmt.Sprintf("sha256:%x", sha256.Sum256(binary))

		document, err := spdx(content, digest)
		if err != nil {
			return fmt.Errorf("%s: %w", text, err)
		}

		name := strings.Join([]string{command, content.platform.OS, content.platform.Architecture}, "-") + ".spdx.json"
		if err := os.WriteFile(filepath.Join(o.out, name), append(document, '\n'), 0o644); err != nil {
			return err
		}

		fmt.Fprintf(table, rowFormat, command, text, fmt.Sprintf("%d MiB", len(binary)>>20), digest)
	}

	return nil
}

// spdx returns the SPDX document of the binary of an image: Go, Crane's module, every module that is linked, and the packages of npm in an embedded
// bundle.
func spdx(c imageContent, digest string) ([]byte, error) {
	info, err := buildinfo.ReadFile(c.binary)
	if err != nil {
		return nil, err
	}

	content, err := os.ReadFile(c.binary)
	if err != nil {
		return nil, err
	}

	sum := sha256.Sum256(content)
	const root = "SPDXRef-binary"
	document := spdxDocument{
		Version:      "SPDX-2.3",
		DataLicense:  "CC0-1.0",
		ID:           "SPDXRef-DOCUMENT",
		Name:         c.command + " " + c.version + " " + c.platform.String(),
		Namespace:    "https://crane.io/spdx/" + c.command + "/" + digest,
		CreationInfo: spdxCreation{Created: c.created.Format(time.RFC3339), Creators: []string{"Tool: crane-images"}},
		Packages: []spdxPackage{{
			ID: root, Name: c.command, Version: c.version, DownloadLocation: unknown, LicenseDeclared: license,
			Checksums: []spdxChecksum{{"SHA256", hex.EncodeToString(sum[:])}},
		}},
		Relationships: []spdxRelationship{{"SPDXRef-DOCUMENT", "DESCRIBES", root}},
	}

	add := func(idPrefix, name, version, license, purl string) {
		id := "SPDXRef-" + idPrefix + regexp.MustCompile(`[^a-zA-Z0-9.]+`).ReplaceAllString(name, "-")
		document.Packages = append(document.Packages, spdxPackage{
			ID:               id,
			Name:             name,
			Version:          version,
			DownloadLocation: unknown,
			LicenseDeclared:  license,
			References:       []spdxExternal{{"PACKAGE-MANAGER", "purl", purl}},
		})

		document.Relationships = append(document.Relationships, spdxRelationship{root, "DEPENDS_ON", id})
	}

	addModule := func(name, version string) {
		add("", name, version, unknown, fmt.Sprintf("pkg:golang/%s@%s", name, version))
	}
	addModule("stdlib", info.GoVersion)

	for _, module := range info.Deps {
		used := linked(module)
		addModule(used.Path, used.Version)
	}

	for _, p := range c.bundled {
		add("npm-", p.name, p.version, p.license, p.purl())
	}

	return json.MarshalIndent(document, "", "  ")
}

// linked returns the module that is linked in place of a required one.
func linked(m *debug.Module) *debug.Module {
	if m.Replace != nil {
		return m.Replace
	}

	return m
}
