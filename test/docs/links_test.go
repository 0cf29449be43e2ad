// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package docs_test

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// translations is the folder of docs/ with the Chinese pages.
const translations = "zh"

// TestLinks checks that each relative link of each page leads to a file, and to a heading where it names one.
func TestLinks(t *testing.T) {
	for _, page := range markdownFiles(t) {
		for _, problem := range checkLinks(page, readPage(t, page), func(p string) ([]byte, error) {
			return os.ReadFile(filepath.Join(root, filepath.FromSlash(p)))
		}, func(p string) bool {
			_, err := os.Stat(filepath.Join(root, filepath.FromSlash(p)))
			return err == nil
		}) {
			t.Errorf("%s, want links to files and headings that exist", problem)
		}
	}
}

// TestIndexListsEveryPage checks that docs/README.md lists every page of docs/ with a line of its own, and that the README.md of a folder of dated
// pages or of translations lists those of its folder.
func TestIndexListsEveryPage(t *testing.T) {
	dated := regexp.MustCompile(`^\d{4}-\d{2}-\d{2}-[a-z-]+\.md$`)
	for _, page := range markdownFiles(t) {
		inside, ok := strings.CutPrefix(page, "docs/")
		if !ok || inside == "README.md" {
			continue
		}

		folder, name, _ := strings.Cut(inside, "/")
		isDated := slices.Contains([]string{"decisions", "experiments"}, folder)
		if !isDated && !slices.Contains([]string{"concepts", "tutorials", "how-to", "reference", "explanation", translations}, folder) {
			t.Errorf("%s is in no folder of a kind, want one of concepts, tutorials, how-to, reference, explanation, decisions, experiments and %s", page, translations)
		}

		index := "docs/README.md"
		link := inside
		if (isDated || folder == translations) && name != "README.md" {
			index = path.Join("docs", folder, "README.md")
			link = name
		}

		if !hasRow(readPage(t, index), link) {
			t.Errorf("%s does not list %s, want a row with the link", index, link)
		}

		if isDated && name != "README.md" && !dated.MatchString(name) {
			t.Errorf("%s: the name does not start with its date, want one such as 2026-11-27-lowest-factor.md", page)
		}
	}
}

// hasRow reports whether a table of an index has a row for the linked page, with a description.
func hasRow(index, link string) bool {
	return regexp.MustCompile(`(?m)^\| \[[^\]]+\]\(` + regexp.QuoteMeta(link) + `\) \| \S.* \|$`).MatchString(index)
}

// TestPagesStartWithTitleAndSentence checks that each page starts with a title and one sentence.
func TestPagesStartWithTitleAndSentence(t *testing.T) {
	for _, page := range markdownFiles(t) {
		if !strings.HasPrefix(page, "docs/") {
			continue
		}

		if !opens(readPage(t, page)) {
			t.Errorf("%s starts with something else, want a title and a sentence", page)
		}
	}

	for _, bad := range []string{"", "text\n", "# Title\n\n| a | b |\n", "# Title\n\n## Next\n", "# Title\n\n- list\n"} {
		if opens(bad) {
			t.Errorf("opens(%q) = true, want false", bad)
		}
	}
}

func opens(content string) bool {
	return regexp.MustCompile("^(<!--[^\n]+-->\n)?# [^\n]+\n\n(> [^\n]+\n\n)?[A-Z`\\p{Han}][^\n]+").MatchString(content)
}

var (
	linkPattern    = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	codePattern    = regexp.MustCompile("`[^`]*`")
	headingPattern = regexp.MustCompile(`^#{1,6} +(.*)$`)
)

// checkLinks returns what is wrong with the relative links of a page.
func checkLinks(page, content string, read func(string) ([]byte, error), exists func(string) bool) []string {
	var problems []string
	for i, line := range proseLines(content) {
		for _, match := range linkPattern.FindAllStringSubmatch(codePattern.ReplaceAllString(line, ""), -1) {
			target := match[1]
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}

			file, anchor, _ := strings.Cut(target, "#")
			resolved := page
			if file != "" {
				resolved = path.Join(path.Dir(page), file)
			}

			if strings.HasPrefix(resolved, "../") || !exists(resolved) {
				problems = append(problems, fmt.Sprintf("%s:%d: %s does not exist", page, i+1, target))
				continue
			}

			if anchor == "" {
				continue
			}

			linked, err := read(resolved)
			if err != nil || !slices.Contains(anchors(string(linked)), anchor) {
				problems = append(problems, fmt.Sprintf("%s:%d: %s has no heading #%s", page, i+1, resolved, anchor))
			}
		}
	}

	return problems
}

// proseLines returns the lines of a page; those of code blocks are blanked.
func proseLines(content string) []string {
	lines := strings.Split(content, "\n")
	fence := ""
	for i, line := range lines {
		trimmed := strings.TrimSpace(line)
		switch {
		case fence == "" && strings.HasPrefix(trimmed, "```"):
			fence, lines[i] = "```", ""
		case fence != "":
			if strings.HasPrefix(trimmed, fence) {
				fence = ""
			}
			lines[i] = ""
		}
	}

	return lines
}

// anchors returns what GitHub makes of the headings of a page.
func anchors(content string) []string {
	var found []string
	seen := map[string]int{}
	for _, line := range proseLines(content) {
		m := headingPattern.FindStringSubmatch(line)
		if m == nil {
			continue
		}

		heading := regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`).ReplaceAllString(m[1], "$1")
		var b strings.Builder
		for _, r := range strings.ToLower(strings.TrimSpace(heading)) {
			switch {
			case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
				b.WriteRune(r)
			case r == ' ':
				b.WriteByte('-')
			}
		}

		anchor := b.String()
		if n := seen[anchor]; n > 0 {
			found = append(found, fmt.Sprintf("%s-%d", anchor, n))
		} else {
			found = append(found, anchor)
		}

		seen[anchor]++
	}

	return found
}

// TestCheckLinks plants links that lead nowhere.
func TestCheckLinks(t *testing.T) {
	pages := map[string]string{
		"docs/a.md":     "# A title, with `code`\n\n## Twice\n\n## Twice\n",
		"docs/sub/b.md": "# B\n",
	}
	read := func(p string) ([]byte, error) {
		content, ok := pages[p]
		if !ok {
			return nil, os.ErrNotExist
		}

		return []byte(content), nil
	}

	exists := func(p string) bool { _, ok := pages[p]; return ok }
	for content, want := range map[string]string{
		"[x](a.md)":                          "",
		"[x](a.md#a-title-with-code)":        "",
		"[x](a.md#twice-1)":                  "",
		"[x](sub/b.md#b)":                    "",
		"[x](https://example.com/none.md)":   "",
		"```\n[x](none.md)\n```":             "",
		"# Here\n\n[x](#here)":               "",
		"`[x](none.md)`":                     "",
		"[`x`](none.md)":                     "docs/page.md:1: none.md does not exist",
		"[x](none.md)":                       "docs/page.md:1: none.md does not exist",
		"\n[x](a.md#none)":                   "docs/page.md:2: docs/a.md has no heading #none",
		"[x](#none)":                         "docs/page.md:1: docs/page.md has no heading #none",
		"[x](../../outside.md)":              "docs/page.md:1: ../../outside.md does not exist",
		"```\ncode\n```\n[x](sub/none.md#b)": "docs/page.md:4: sub/none.md#b does not exist",
	} {
		pages["docs/page.md"] = content
		if got := strings.Join(checkLinks("docs/page.md", content, read, exists), "; "); got != want {
			t.Errorf("%q: %q, want %q", content, got, want)
		}
	}
}
