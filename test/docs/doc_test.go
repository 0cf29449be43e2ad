// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package docs_test checks the documentation: its links, the commands that it prints, and the pages that are generated from
// the code. `CRANE_UPDATE_DOCS=1 go test ./test/docs` writes the generated pages, and marks translations that are older than their English page.
package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// root is the repository, seen from the folder of this package.
const root = "../.."

// markdownFiles returns the paths of all pages, relative to the repository.
func markdownFiles(t *testing.T) []string {
	t.Helper()

	var found []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}

		name := d.Name()
		if d.IsDir() && path != root && (strings.HasPrefix(name, ".") || name == "bin" || name == "node_modules" || name == "testdata") {
			return filepath.SkipDir
		}

		if !d.IsDir() && filepath.Ext(name) == ".md" {
			relative, err := filepath.Rel(root, path)
			if err != nil {
				return err
			}

			found = append(found, filepath.ToSlash(relative))
		}

		return nil
	})
	if err != nil {
		t.Fatal(err)
	}

	if len(found) < 10 {
		t.Fatalf("%d pages were found, want 10 or more: %v", len(found), found)
	}

	return found
}

// readPage returns the content of a file of the repository.
func readPage(t *testing.T, path string) string {
	t.Helper()

	content, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(path)))
	if err != nil {
		t.Fatal(err)
	}

	return string(content)
}
