// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package docs_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// kindLimits bound the English of one kind of page. Words and sentences are those that sentencesOf and strings.Fields return.
type kindLimits struct {
	folder  string
	average float64 // words of a sentence of the prose, over all pages of the folder
	longest int     // words of any sentence, in prose or in a cell of a table
	page    int     // words of one page; 0 for any number
}

var (
	languageLimits = []kindLimits{
		{folder: "concepts", average: 15, longest: 40, page: 510},
		{folder: "tutorials", average: 13, longest: 30},
		{folder: "how-to", average: 13.5, longest: 40},
		{folder: "explanation", average: 15, longest: 40, page: 1500},
		{folder: "reference", average: 15, longest: 40},
	}

	// allowedWords bounds the words outside of code blocks of all pages of docs/, without the generated ones and without recordFolders.
	allowedWords = 75000

	// recordFolders have dated records and translations, which do not count.
	recordFolders = []string{"decisions", "experiments", "zh"}
)

// TestLanguage checks that the pages are short and their sentences too.
func TestLanguage(t *testing.T) {
	total := 0
	kinds := map[string]*proseCount{}
	for _, page := range countedPages(t) {
		content := readPage(t, page)
		words := len(strings.Fields(content))
		total += len(strings.Fields(strings.Join(proseLines(content), "\n")))

		folder := folderOf(page)
		i := slices.IndexFunc(languageLimits, func(l kindLimits) bool { return l.folder == folder })
		if i < 0 {
			continue
		}

		limits := languageLimits[i]
		if limits.page > 0 && words > limits.page {
			t.Errorf("%s has %d words, want at most %d", page, words, limits.page)
		}

		if kinds[folder] == nil {
			kinds[folder] = &proseCount{}
		}

		prose, cells := sentencesOf(content)
		for _, sentence := range slices.Concat(prose, cells) {
			if n := len(strings.Fields(sentence)); n > limits.longest {
				t.Errorf("%s has a sentence of %d words, want at most %d: %s", page, n, limits.longest, sentence)
			}
		}

		kinds[folder].add(prose)
	}

	for _, limits := range languageLimits {
		count := kinds[limits.folder]
		if count == nil {
			t.Errorf("docs/%s has no pages, want some", limits.folder)
			continue
		}

		t.Logf("docs/%s: %d sentences of %.1f words", limits.folder, count.sentences, count.average())
		if count.average() > limits.average {
			t.Errorf("sentences of docs/%s have %.2f words on average, want at most %.1f", limits.folder, count.average(), limits.average)
		}
	}

	t.Logf("%d words in all", total)
	if total > allowedWords {
		t.Errorf("docs/ has %d words, want at most %d", total, allowedWords)
	}
}

// proseCount counts sentences and their words.
type proseCount struct {
	sentences int
	words     int
}

func (c *proseCount) add(sentences []string) {
	for _, sentence := range sentences {
		c.sentences++
		c.words += len(strings.Fields(sentence))
	}
}

func (c *proseCount) average() float64 {
	return float64(c.words) / float64(max(c.sentences, 1))
}

// countedPages returns the pages of docs/ that people write: generated pages, records and translations are left out.
func countedPages(t *testing.T) []string {
	t.Helper()

	var pages []string
	for _, page := range markdownFiles(t) {
		if !strings.HasPrefix(page, "docs/") || slices.Contains(recordFolders, folderOf(page)) || strings.Contains(readPage(t, page), generatedBy) {
			continue
		}

		pages = append(pages, page)
	}

	return pages
}

// folderOf returns the folder of docs/ that has the page; it is empty for a page that is in none.
func folderOf(page string) string {
	folder, _, found := strings.Cut(strings.TrimPrefix(page, "docs/"), "/")
	if !found {
		return ""
	}

	return folder
}

var (
	listMark = regexp.MustCompile(`^(?:[-*]|\d+\.) +`)
	linkText = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	cellMark = regexp.MustCompile(`(?:^|[^\\])\|`)
)

// sentencesOf returns the sentences of the paragraphs and list items of a page, and those of the cells of its tables. Headings, code blocks
// and indented formulas have none. A link counts as its text. A sentence ends at a word that ends with a period, an exclamation mark or a
// question mark, and with its paragraph, item or cell; colons and semicolons end none.
func sentencesOf(content string) (prose, cells []string) {
	var paragraph []string
	end := func() {
		prose = append(prose, splitSentences(strings.Join(paragraph, " "))...)
		paragraph = nil
	}

	for _, line := range proseLines(content) {
		text := strings.TrimPrefix(strings.TrimSpace(line), "> ")
		switch {
		case strings.HasPrefix(text, "|"):
			end()
			for _, cell := range cellMark.Split(text, -1) {
				cells = append(cells, splitSentences(cell)...)
			}
		case text == "", strings.HasPrefix(text, "#"), strings.HasPrefix(text, "<"), strings.HasPrefix(line, "    ") && len(paragraph) == 0:
			end()
		case listMark.MatchString(text):
			end()
			paragraph = append(paragraph, listMark.ReplaceAllString(text, ""))
		default:
			paragraph = append(paragraph, text)
		}
	}

	end()

	return prose, cells
}

// splitSentences returns the sentences of one paragraph.
func splitSentences(paragraph string) []string {
	paragraph = linkText.ReplaceAllString(paragraph, "$1")

	var sentences []string
	var sentence []string
	for word := range strings.FieldsSeq(paragraph) {
		sentence = append(sentence, word)
		bare := strings.TrimRight(word, "`*_\"')")
		if strings.HasSuffix(bare, ".") || strings.HasSuffix(bare, "!") || strings.HasSuffix(bare, "?") {
			sentences = append(sentences, strings.Join(sentence, " "))
			sentence = nil
		}
	}

	if len(sentence) > 0 {
		sentences = append(sentences, strings.Join(sentence, " "))
	}

	return sentences
}

// TestSentencesOf shows what counts as a sentence.
func TestSentencesOf(t *testing.T) {
	const page = "# A title. It has no sentence\n\nOne [link of\nwords](a.md#b). Two: `a b`; 0.5 of it.\n\n- An item. Another\n  line\n1. Numbered\n\n    code = 1\n\n" +
		"```console\n$ command. Output.\n```\n\n| head | a\\|b |\n| --- | --- |\n| Cell one. Cell two. | |\n"
	wantProse := []string{"One link of words.", "Two: `a b`; 0.5 of it.", "An item.", "Another line", "Numbered"}
	wantCells := []string{"head", "a\\|b", "---", "---", "Cell one.", "Cell two."}

	prose, cells := sentencesOf(page)
	if !slices.Equal(prose, wantProse) {
		t.Errorf("sentencesOf(page) has the prose %q, want %q", prose, wantProse)
	}

	if !slices.Equal(cells, wantCells) {
		t.Errorf("sentencesOf(page) has the cells %q, want %q", cells, wantCells)
	}

	count := &proseCount{}
	count.add(prose)
	if count.average() != 15.0/5 {
		t.Errorf("average of %q = %v, want %v", prose, count.average(), 15.0/5)
	}
}
