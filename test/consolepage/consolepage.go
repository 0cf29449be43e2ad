// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package consolepage reads the commands of a page with the answers that it prints, and compares an answer with a real one by its shape.
package consolepage

import (
	"regexp"
	"slices"
	"strings"
)

// Block is a console block of a page.
type Block []Command

// Command is a command of a console block.
type Command struct {
	Line string
	// Answer has the printed lines of the answer, without those that only stand for omitted ones.
	Answer []string
}

// omitted stands for any text in a printed line, and for any lines where it is alone.
const omitted = "..."

var (
	consoleBlock = regexp.MustCompile("(?sm)^ *```console\n(.*?)^ *```")
	// A digest is the last part of the name of an object.
	digest = regexp.MustCompile(`\b[0-9a-f]{10}\b`)
	number = regexp.MustCompile(`(?:\d+(?:[.,:]\d+)*[A-Za-z%]*)+`)
	sign   = regexp.MustCompile(`(^|\s)[-+]0`)
)

// Blocks returns the console blocks of a page. A line that ends with a backslash continues on the next one.
func Blocks(page string) []Block {
	var blocks []Block
	for _, match := range consoleBlock.FindAllStringSubmatch(page, -1) {
		var block Block
		for line := range strings.Lines(match[1]) {
			line = strings.TrimRight(line, " \n")
			if command, ok := strings.CutPrefix(strings.TrimSpace(line), "$ "); ok {
				block = append(block, Command{Line: command})
				continue
			}

			if len(block) == 0 || line == "" || strings.TrimSpace(line) == omitted {
				continue
			}

			last := &block[len(block)-1]
			if head, ok := strings.CutSuffix(last.Line, "\\"); ok && len(last.Answer) == 0 {
				last.Line = head + strings.TrimSpace(line)
				continue
			}

			last.Answer = append(last.Answer, line)
		}

		blocks = append(blocks, block)
	}

	return blocks
}

// Commands returns the commands of all console blocks of a page.
func Commands(page string) []Command {
	return slices.Concat(Blocks(page)...)
}

// Missing returns the printed lines that no line of the real answer has by its shape: columns, names and states count, numbers with their units,
// digests and spaces do not. A line of the answer stands for one printed line.
func (c Command) Missing(answer string) []string {
	lines := strings.Split(answer, "\n")
	for i, line := range lines {
		lines[i] = shape(line)
	}

	var missing []string
	for _, printed := range c.Answer {
		i := slices.IndexFunc(lines, pattern(printed).MatchString)
		if i < 0 {
			missing = append(missing, printed)
			continue
		}

		lines = slices.Delete(lines, i, i+1)
	}

	return missing
}

// pattern matches the shapes of the lines for which a printed line stands.
func pattern(printed string) *regexp.Regexp {
	text := regexp.QuoteMeta(shape(printed))
	mark := regexp.QuoteMeta(omitted)
	text = strings.ReplaceAll(text, " "+mark, ".*")
	text = strings.ReplaceAll(text, mark, ".*")

	// An omitted beginning may be empty.
	if rest, ok := strings.CutPrefix(text, ".* "); ok {
		text = "(?:.* )?" + rest
	}

	return regexp.MustCompile("^" + text + "$")
}

// shape returns a line without what differs between two runs.
func shape(line string) string {
	line = digest.ReplaceAllString(line, "0")
	line = number.ReplaceAllString(line, "0")
	line = sign.ReplaceAllString(line, "${1}0")

	return strings.Join(strings.Fields(line), " ")
}
