// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package docs_test

import (
	"slices"
	"strings"
	"testing"
)

// The parts of a how-to page.
const (
	needsOfHowTo = "You need "
	checkOfHowTo = "## See that it works"
	undoOfHowTo  = "## Undo it"
)

// TestHowToPages checks that each how-to page names its requirements before its first step, and how to check and undo the task. The runbooks have
// a section for each alert instead.
func TestHowToPages(t *testing.T) {
	for _, page := range markdownFiles(t) {
		if folderOf(page) != "how-to" || page == "docs/how-to/runbooks.md" {
			continue
		}

		if missing := missingParts(readPage(t, page)); len(missing) > 0 {
			t.Errorf("%s lacks %q, want all parts of a how-to page", page, missing)
		}
	}
}

// missingParts returns the parts that a how-to page lacks.
func missingParts(content string) []string {
	intro, _, _ := strings.Cut(content, "\n## ")
	intro, _, _ = strings.Cut(intro, "\n```")

	var missing []string
	if !strings.Contains(intro, needsOfHowTo) {
		missing = append(missing, needsOfHowTo)
	}

	lines := strings.Split(content, "\n")
	for _, heading := range []string{checkOfHowTo, undoOfHowTo} {
		if !slices.Contains(lines, heading) {
			missing = append(missing, heading)
		}
	}

	return missing
}

// TestMissingParts plants pages that lack a part.
func TestMissingParts(t *testing.T) {
	const whole = "# Title\n\nThis page shows how.\nYou need a cluster.\n\n## Do\n\n## See that it works\n\n## Undo it\n"
	for content, want := range map[string][]string{
		whole: nil,
		strings.Replace(whole, "You need a cluster.\n\n## Do\n", "\n## Do\n\nYou need a cluster.\n", 1): {needsOfHowTo},
		strings.Replace(whole, "You need", "```console\nYou need", 1):                                   {needsOfHowTo},
		strings.Replace(whole, "## See", "### See", 1):                                                  {checkOfHowTo},
		strings.Replace(whole, "## Undo it\n", "", 1):                                                   {undoOfHowTo},
	} {
		if got := missingParts(content); !slices.Equal(got, want) {
			t.Errorf("missingParts(%q) = %q, want %q", content, got, want)
		}
	}
}
