// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// digestsFile is the file below -out with a line "COMMAND VERSION DIGEST" for each image of the last run.
const digestsFile = "digests"

// Lines of values.yaml of the chart: the digest of an image follows its repository, with the same indentation.
var (
	repositoryLine = regexp.MustCompile(`^( +)repository: (\S+)$`)
	digestLine     = regexp.MustCompile(`^( +)digest: ""$`)
)

// writeDigests records the digests of the indexes that were built.
func (o *options) writeDigests() error {
	var b strings.Builder
	for _, command := range slices.Sorted(maps.Keys(o.digests)) {
		fmt.Fprintln(&b, command, o.version, o.digests[command])
	}

	return os.WriteFile(filepath.Join(o.out, digestsFile), []byte(b.String()), 0o644)
}

// readDigests returns the recorded digests by command. All must be of the version.
func (o *options) readDigests() (map[string]string, error) {
	text, err := os.ReadFile(filepath.Join(o.out, digestsFile))
	if err != nil {
		return nil, fmt.Errorf("no digests of images: push them with make images: %w", err)
	}

	out := map[string]string{}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) != 3 {
			return nil, fmt.Errorf("%s: line %q", digestsFile, line)
		}
		if fields[1] != o.version {
			return nil, fmt.Errorf("the images in %s are of version %s, not %s: push those with make images", o.out, fields[1], o.version)
		}

		out[fields[0]] = fields[2]
	}

	return out, nil
}

// writeValues prints values.yaml of the chart with the digest of each image. The registry must have the images.
func (o *options) writeValues(ctx context.Context, to io.Writer) error {
	if o.push == "" {
		return errors.New("-values needs the registry of the images: -push")
	}

	digests, err := o.readDigests()
	if err != nil {
		return err
	}

	values, err := os.ReadFile(o.values)
	if err != nil {
		return err
	}

	lines := strings.Split(string(values), "\n")
	// A digest belongs to the repository above it with the same indent.
	indent := ""
	image := ""

	filled := 0
	for i, line := range lines {
		if match := repositoryLine.FindStringSubmatch(line); match != nil {
			indent = match[1]
			image = match[2]
			continue
		}

		match := digestLine.FindStringSubmatch(line)
		if match == nil || image == "" || match[1] != indent {
			continue
		}

		digest, ok := digests[image]
		if !ok {
			return fmt.Errorf("%s: image %s was not built", o.values, image)
		}

		ref, err := name.NewDigest(o.push + "/" + image + "@" + digest)
		if err != nil {
			return err
		}

		if _, err := remote.Head(ref, access(ctx)...); err != nil {
			return fmt.Errorf("%s is not in the registry, push it with make images: %w", ref, err)
		}

		lines[i] = fmt.Sprintf(`%sdigest: "%s"`, indent, digest)
		image = ""
		filled++
	}

	if filled == 0 || filled != strings.Count(string(values), "repository: ") {
		return fmt.Errorf("%s: %d digests for %d images", o.values, filled, strings.Count(string(values), "repository: "))
	}

	_, err = io.WriteString(to, strings.Join(lines, "\n"))
	return err
}
