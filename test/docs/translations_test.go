// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package docs_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// outdated is the notice of a translation whose English page has changed since.
const outdated = "> 英文原文已有更新，本页译文尚未同步。"

// translationHeader is the first line of a translation: the English page, and its digest when it was translated.
var translationHeader = regexp.MustCompile(`^<!-- translation of (\S+), sha256 ([0-9a-f]{16}) -->$`)

// TestTranslations checks that each page that should have a translation has one, and names the English pages that are newer than theirs. Such a
// translation has to carry a notice; with CRANE_UPDATE_DOCS set the notices are written.
func TestTranslations(t *testing.T) {
	for _, page := range markdownFiles(t) {
		translation, ok := translationOf(page)
		if !ok {
			continue
		}

		file := filepath.Join(root, filepath.FromSlash(translation))
		content, err := os.ReadFile(file)
		if err != nil {
			t.Errorf("%s has no translation: %v", page, err)
			continue
		}

		source := readPage(t, page)
		if os.Getenv("CRANE_UPDATE_DOCS") != "" {
			content = []byte(withNotice(source, string(content)))
			if err := os.WriteFile(file, content, 0o644); err != nil {
				t.Error(err)
			}
		}

		if isOutdated(source, string(content)) {
			t.Logf("%s is newer than its translation %s, which its digest would call current: %s", page, translation, pageDigest(source))
		}
		for _, problem := range checkTranslation(page, source, string(content)) {
			t.Errorf("checkTranslation(%s): %s, want what the English page has", translation, problem)
		}
	}
}

// translationOf returns the path of the translation of a page, if it should have one: the front page, concepts and tutorials.
func translationOf(page string) (string, bool) {
	if page == "README.md" {
		return "docs/" + translations + "/README.md", true
	}

	inside, ok := strings.CutPrefix(page, "docs/")
	if !ok || !strings.HasPrefix(inside, "concepts/") && !strings.HasPrefix(inside, "tutorials/") {
		return "", false
	}

	return "docs/" + translations + "/" + inside, true
}

// pageDigest returns the digest of a page by which its translation recognizes it.
func pageDigest(content string) string {
	sum := sha256.Sum256([]byte(content))
	return hex.EncodeToString(sum[:8])
}

// isOutdated reports whether a translation names another digest than that of its source.
func isOutdated(source, translation string) bool {
	header, _, _ := strings.Cut(translation, "\n")
	match := translationHeader.FindStringSubmatch(header)

	return match != nil && match[2] != pageDigest(source)
}

// checkTranslation returns what is wrong with the translation of a page.
func checkTranslation(page, source, translation string) []string {
	header, body, _ := strings.Cut(translation, "\n")
	match := translationHeader.FindStringSubmatch(header)
	if match == nil {
		return []string{fmt.Sprintf("the first line is %q, want <!-- translation of %s, sha256 %s -->", header, page, pageDigest(source))}
	}

	var problems []string
	if match[1] != page {
		problems = append(problems, fmt.Sprintf("it is a translation of %s, want %s", match[1], page))
	}

	hasNotice := strings.Contains(body, "\n"+outdated+"\n")
	if isOutdated(source, translation) {
		if !hasNotice {
			problems = append(problems, fmt.Sprintf("%s is newer: translate the change and set the digest %s, or run 'make generate' to mark the page", page, pageDigest(source)))
		}

		return problems
	}

	if hasNotice {
		problems = append(problems, "it is current and has the notice of an outdated page, run 'make generate' to remove it")
	}
	if got, want := codeBlocks(translation), codeBlocks(source); !slices.Equal(got, want) {
		problems = append(problems, fmt.Sprintf("commands and manifests differ from %s: got %q, want %q", page, got, want))
	}

	return problems
}

// codeBlocks returns the commands and manifests of a page, which a translation keeps.
func codeBlocks(content string) []string {
	return append(consoleBlocks(content), yamlBlocks(content)...)
}

// withNotice returns the translation with the notice if its source has changed, and without it otherwise.
func withNotice(source, translation string) string {
	without := strings.Replace(translation, "\n"+outdated+"\n", "", 1)
	if !isOutdated(source, translation) {
		return without
	}

	lines := strings.SplitN(without, "\n", 3)
	if len(lines) < 3 || !strings.HasPrefix(lines[1], "# ") {
		return translation
	}

	return lines[0] + "\n" + lines[1] + "\n\n" + outdated + "\n" + lines[2]
}

// TestCheckTranslation plants translations that are outdated, misplaced or changed.
func TestCheckTranslation(t *testing.T) {
	const page = "docs/concepts/a.md"
	source := "# A\n\nAn A.\n\n```yaml\na: b\n```\n"
	header := "<!-- translation of " + page + ", sha256 " + pageDigest(source) + " -->\n"
	body := "# 甲\n\n甲。\n\n```yaml\na: b\n```\n"
	marked := "# 甲\n\n" + outdated + "\n\n甲。\n\n```yaml\na: b\n```\n"
	for name, c := range map[string]struct{ source, translation, want string }{
		"current":                 {source, header + body, ""},
		"no header":               {source, body, "the first line is"},
		"short digest":            {source, "<!-- translation of " + page + ", sha256 12 -->\n" + body, "the first line is"},
		"another page":            {source, strings.Replace(header, "a.md", "b.md", 1) + body, "it is a translation of docs/concepts/b.md"},
		"English changed":         {source + "More.\n", header + body, page + " is newer"},
		"English changed, marked": {source + "More.\n", header + marked, ""},
		"current, marked":         {source, header + marked, "it is current and has the notice"},
		"another manifest":        {source, header + strings.Replace(body, "a: b", "a: c", 1), "commands and manifests differ"},
	} {
		t.Run(name, func(t *testing.T) {
			got := strings.Join(checkTranslation(page, c.source, c.translation), "; ")
			if (c.want == "") != (got == "") || !strings.HasPrefix(got, c.want) {
				t.Errorf("checkTranslation() = %q, want %q", got, c.want)
			}
		})
	}

	changed := source + "More.\n"
	got := withNotice(changed, header+body)
	if want := header + marked; got != want {
		t.Errorf("withNotice() of an outdated page = %q, want %q", got, want)
	}
	if again := withNotice(changed, got); again != got {
		t.Errorf("withNotice() twice = %q, want %q", again, got)
	}
	if back := withNotice(source, got); back != header+body {
		t.Errorf("withNotice() of a current page = %q, want %q", back, header+body)
	}
}
