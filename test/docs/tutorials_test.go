// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package docs_test

import (
	"slices"
	"testing"

	"crane.io/crane/test/consolepage"
)

// TestTutorialsPrintAnswers checks that each console block of the tutorials shows what it prints. The tests that run the commands compare the
// answers: TestFirstHour of test/e2e and TestTutorial of test/integration/migrate.
func TestTutorialsPrintAnswers(t *testing.T) {
	blocks := 0
	for _, page := range markdownFiles(t) {
		if folderOf(page) != "tutorials" {
			continue
		}

		for _, block := range consolepage.Blocks(readPage(t, page)) {
			blocks++

			if !answers(block) {
				t.Errorf("%s prints no answer in the block of %v, want what its commands print", page, block)
			}
		}
	}

	const least = 24
	if blocks < least {
		t.Errorf("%d console blocks in tutorials, want %d or more", blocks, least)
	}
}

// answers reports whether a block has the answer of one of its commands.
func answers(block consolepage.Block) bool {
	return slices.ContainsFunc(block, func(c consolepage.Command) bool { return len(c.Answer) > 0 })
}

// TestAnswers plants a block without answers.
func TestAnswers(t *testing.T) {
	for content, want := range map[string]bool{
		"```console\n$ crane status\n```\n":                 false,
		"```console\n$ crane status\n...\n```\n":            false,
		"```console\n$ make build\n$ crane status\nok\n```": true,
	} {
		if blocks := consolepage.Blocks(content); len(blocks) != 1 || answers(blocks[0]) != want {
			t.Errorf("answers(%q) = %v, want %v", content, !want, want)
		}
	}
}
