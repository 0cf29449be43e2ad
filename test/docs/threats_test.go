// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// testName matches the name of a test in a page.
var testName = regexp.MustCompile("`((?:Test|Fuzz)[A-Za-z0-9_]+)`")

// TestThreatsNameTheirTests checks that each threat in the threat model names a test, and that each test it names exists.
func TestThreatsNameTheirTests(t *testing.T) {
	const page = "docs/reference/threat-model.md"
	tests := testsOfTheRepository(t)
	inTable := false
	threats := 0

	for line := range strings.SplitSeq(readPage(t, page), "\n") {
		for _, match := range testName.FindAllStringSubmatch(line, -1) {
			if !tests[match[1]] {
				t.Errorf("%s names the test %s, which does not exist: %.120s", page, match[1], line)
			}
		}

		// Tables of threats have a control.
		switch {
		case strings.HasPrefix(line, "| ") && strings.HasSuffix(line, "| control |") || line == "| attack | test |":
			inTable = true
			continue
		case !strings.HasPrefix(line, "|"):
			inTable = false
			continue
		case !inTable || strings.HasPrefix(line, "| ---"):
			continue
		}

		threats++
		if !testName.MatchString(line) {
			t.Errorf("%s has a threat without a test: %.160s", page, line)
		}
	}

	const least = 80
	if threats < least {
		t.Errorf("%s has %d rows of threats, want at least %d", page, threats, least)
	}
}

// testsOfTheRepository returns the names of all tests and fuzz targets.
func testsOfTheRepository(t *testing.T) map[string]bool {
	t.Helper()

	declaration := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	names := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}

		if entry.IsDir() && (entry.Name() == "node_modules" || entry.Name() == ".git" || entry.Name() == "bin") {
			return filepath.SkipDir
		}

		if entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return nil
		}

		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}

		for _, match := range declaration.FindAllStringSubmatch(string(source), -1) {
			names[match[1]] = true
		}

		return nil
	})
	if err != nil {
		t.Fatalf("reading the tests: %v", err)
	}

	return names
}
