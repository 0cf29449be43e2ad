// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"crane.io/crane/config"
)

// placeholders is the number of workloads of Crane in config/.
const placeholders = 5

// TestImagesArePlaceholders checks that each image of the manifests is a placeholder that no node can pull, and that no other file of
// config/ names an image by the tag latest. An image without a registry would be one of the public registry that nodes ask by default.
func TestImagesArePlaceholders(t *testing.T) {
	image := regexp.MustCompile(`(?m)\bimage: *"?([^\s"}]+)`)
	latest := regexp.MustCompile(`:latest\b`)
	found := 0

	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".yaml" {
			return err
		}

		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}

		if latest.Match(text) {
			t.Errorf("%s has an image with the tag latest", path)
		}

		// A CRD describes fields of this name.
		if strings.HasPrefix(path, "crd"+string(filepath.Separator)) {
			return nil
		}

		for _, match := range image.FindAllSubmatch(text, -1) {
			found++
			if name, ok := strings.CutPrefix(string(match[1]), config.ImagePrefix); !ok || !strings.HasSuffix(name, ":unset") {
				t.Errorf("%s: image %s, want %sNAME:unset", path, match[1], config.ImagePrefix)
			}
		}

		return nil
	})

	if err != nil || found != placeholders {
		t.Errorf("%d images, want %d: %v", found, placeholders, err)
	}
}
