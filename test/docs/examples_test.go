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

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// checker holds what printed commands may name.
type checker struct {
	targets  []string                  // of the Makefile
	commands map[string]*cobra.Command // by binary
	exists   func(path string) bool    // in the repository
}

// TestPrintedCommands checks the commands of the console blocks of all pages, and `make` in inline code.
func TestPrintedCommands(t *testing.T) {
	c := newChecker(t)
	n := 0
	for _, page := range markdownFiles(t) {
		content := readPage(t, page)
		blocks := consoleBlocks(content)
		n += len(blocks)

		for _, problem := range c.check(blocks, content) {
			t.Errorf("%s: %s, want a command that exists", page, problem)
		}
	}

	if n < 30 {
		t.Errorf("%d commands were found, want 30 or more", n)
	}
}

func newChecker(t *testing.T) *checker {
	t.Helper()

	c := &checker{commands: commands(), exists: func(p string) bool {
		_, err := os.Stat(filepath.Join(root, filepath.FromSlash(p)))
		return err == nil
	}}

	included, err := filepath.Glob(filepath.Join(root, "mk", "*.mk"))
	if err != nil || len(included) == 0 {
		t.Fatalf("makefiles in mk: %v, %v; want some", included, err)
	}

	makefiles := []string{readPage(t, "Makefile")}
	for _, file := range included {
		makefiles = append(makefiles, readPage(t, "mk/"+filepath.Base(file)))
	}

	for _, m := range regexp.MustCompile(`(?m)^([a-z][a-z0-9-]*):`).FindAllStringSubmatch(strings.Join(makefiles, "\n"), -1) {
		c.targets = append(c.targets, m[1])
	}

	scheduler := &cobra.Command{Use: "crane-scheduler", Args: cobra.NoArgs, FParseErrWhitelist: cobra.FParseErrWhitelist{UnknownFlags: true}}
	simulate := &cobra.Command{Use: "simulate", Args: cobra.NoArgs}
	for _, f := range simulateFlags(t) {
		if f.kind == "bool" {
			simulate.Flags().BoolP(f.name, f.short, false, f.doc)
		} else {
			simulate.Flags().StringP(f.name, f.short, "", f.doc)
		}
	}

	scheduler.AddCommand(simulate)
	c.commands["crane-scheduler"] = scheduler
	return c
}

// consoleBlocks returns the commands of ```console blocks, with continuation lines joined.
func consoleBlocks(content string) []string {
	var found []string
	in := false
	open := false
	for line := range strings.SplitSeq(content, "\n") {
		trimmed := strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(trimmed, "```"):
			in = !in && trimmed == "```console"
			open = false
			continue

		case !in:
			continue
		case open:
			found[len(found)-1] += " " + trimmed
		case strings.HasPrefix(trimmed, "$ "):
			found = append(found, strings.TrimPrefix(trimmed, "$ "))
		default:
			continue
		}

		last := found[len(found)-1]
		if open = strings.HasSuffix(last, `\`); open {
			found[len(found)-1] = strings.TrimSpace(strings.TrimSuffix(last, `\`))
		}
	}

	return found
}

// check returns what is wrong with the commands of a page.
func (c *checker) check(lines []string, content string) []string {
	var problems []string
	report := func(where, format string, args ...any) {
		problems = append(problems, fmt.Sprintf("%q: ", where)+fmt.Sprintf(format, args...))
	}
	for _, m := range regexp.MustCompile("`make ([a-z][a-z0-9-]*)").FindAllStringSubmatch(content, -1) {
		if !slices.Contains(c.targets, m[1]) {
			report("make "+m[1], "the Makefile has no target %s", m[1])
		}
	}

	made := map[string]bool{} // files that earlier commands of the page write or show
	for _, line := range lines {
		for _, words := range simpleCommands(line) {
			for len(words) > 0 && regexp.MustCompile(`^[A-Z_]+=`).MatchString(words[0]) {
				words = words[1:]
			}

			if len(words) == 0 {
				continue
			}

			for i, w := range words {
				switch {
				case w == ">" && i+1 < len(words):
					made[words[i+1]] = true
					made[path.Dir(words[i+1])] = true
				case words[0] == "cat" && i > 0:
					made[w] = true
					made[path.Dir(w)] = true
				case words[0] == "mkdir" && i > 0:
					made[w] = true
				}
			}

			if i := slices.Index(words, ">"); i >= 0 {
				words = words[:i]
			}
			if problem := c.command(words, made); problem != "" {
				report(line, "%s", problem)
			}
		}
	}

	return problems
}

// command returns what is wrong with one command.
func (c *checker) command(words []string, made map[string]bool) string {
	name := words[0]
	switch {
	case name == "make":
		for _, w := range words[1:] {
			if !strings.Contains(w, "=") && !strings.HasPrefix(w, "-") && !slices.Contains(c.targets, w) {
				return "the Makefile has no target " + w
			}
		}

	case name == "kubectl" && len(words) > 1 && words[1] == "crane":
		return c.arguments(c.commands["crane"], words[2:])

	case name == "kubectl":
		return c.kubectl(words, made)

	case name == "go" && len(words) > 1:
		for _, w := range words[2:] {
			if strings.HasPrefix(w, "./") && !strings.Contains(w, "...") && !c.exists(w) {
				return w + " does not exist"
			}
		}

	case strings.HasPrefix(name, "hack/"), strings.HasPrefix(name, ".ci/"):
		if !c.exists(name) {
			return name + " does not exist"
		}

	default:
		binary := strings.TrimPrefix(name, "bin/")
		if command, ok := c.commands[binary]; ok {
			return c.arguments(command, words[1:])
		}

		if strings.HasPrefix(name, "bin/") && !slices.Contains([]string{"nodes", "kubectl", "controlplane"}, binary) {
			return "nothing builds " + name
		}
	}

	return ""
}

// kubectl checks the files that `kubectl apply`, `create` and `delete` name.
func (c *checker) kubectl(words []string, made map[string]bool) string {
	for i, w := range words {
		if (w != "-f" && w != "-k") || i+1 >= len(words) {
			continue
		}

		file := words[i+1]
		if made[file] || strings.Contains(file, "://") || file == "-" || strings.ToUpper(file) == file {
			continue
		}
		if !c.exists(file) {
			return file + " does not exist"
		}
	}

	return ""
}

// arguments checks subcommands, flags and arguments against a command.
func (c *checker) arguments(command *cobra.Command, words []string) string {
	var positional []string
	for i := 0; i < len(words); i++ {
		w := words[i]
		if w == "--" || command.FParseErrWhitelist.UnknownFlags && strings.HasPrefix(w, "-") {
			return ""
		}

		if !strings.HasPrefix(w, "-") || w == "-" {
			if sub := subcommand(command, w); sub != nil && len(positional) == 0 {
				command = sub
				if sub.DisableFlagParsing { // It passes its arguments on.
					command = subcommand(c.commands["crane-scheduler"], "simulate")
				}

				continue
			}

			positional = append(positional, w)
			continue
		}

		f, hasValue, problem := lookUp(command, w)
		if problem != "" {
			return problem
		}

		if f != nil && !hasValue && f.NoOptDefVal == "" {
			i++
			if i == len(words) {
				return fmt.Sprintf("%s of %s needs a value", w, command.CommandPath())
			}
		}
	}

	if len(positional) > 0 && command.ValidateArgs(positional) != nil {
		return fmt.Sprintf("%s has no subcommand or argument %s", command.CommandPath(), positional[0])
	}

	return ""
}

func subcommand(c *cobra.Command, name string) *cobra.Command {
	for _, sub := range c.Commands() {
		if sub.Name() == name || sub.HasAlias(name) {
			return sub
		}
	}

	return nil
}

// lookUp finds a flag, and whether its value is part of the word.
func lookUp(c *cobra.Command, word string) (*pflag.Flag, bool, string) {
	name, _, hasValue := strings.Cut(strings.TrimLeft(word, "-"), "=")
	if name == "help" || name == "h" || name == "version" {
		return nil, hasValue, ""
	}

	var f *pflag.Flag
	if strings.HasPrefix(word, "--") {
		if f = c.Flags().Lookup(name); f == nil {
			f = c.InheritedFlags().Lookup(name)
		}
	} else {
		if f = c.Flags().ShorthandLookup(name[:1]); f == nil {
			f = c.InheritedFlags().ShorthandLookup(name[:1])
		}
		hasValue = hasValue || len(name) > 1
	}

	if f == nil {
		return nil, false, fmt.Sprintf("%s has no flag --%s", c.CommandPath(), name)
	}

	return f, hasValue, ""
}

// simpleCommands splits a line of a shell into commands of words. A redirection is the word ">"; a comment ends the line.
func simpleCommands(line string) [][]string {
	var out [][]string
	var words []string
	var word strings.Builder
	quote := rune(0)
	started := false

	endWord := func() {
		if started {
			words = append(words, word.String())
		}

		word.Reset()
		started = false
	}

	endCommand := func() {
		endWord()
		if len(words) > 0 {
			out = append(out, words)
		}

		words = nil
	}

	for _, r := range line {
		switch {
		case quote != 0:
			if r == quote {
				quote = 0
			} else {
				word.WriteRune(r)
			}

		case r == '\'' || r == '"':
			quote = r
			started = true
		case r == '#' && !started:
			endCommand()
			return out
		case r == '|' || r == '&' || r == ';' || r == '(' || r == ')':
			endCommand()

		case r == '>':
			endWord()
			words = append(words, ">")
		case r == ' ' || r == '\t':
			endWord()
		default:
			word.WriteRune(r)
			started = true
		}
	}

	endCommand()
	return out
}

// TestPrintedCommandsFail plants commands that do not work.
func TestPrintedCommandsFail(t *testing.T) {
	c := newChecker(t)
	for line, want := range map[string]string{
		"make test   # the tests":                                  "",
		"make playground ARGS=\"--once\"":                          "",
		"make nothing-like-it":                                     "the Makefile has no target nothing-like-it",
		"bin/crane recommend -n shop -o json | jq '.[0]'":          "",
		"crane recommend --nonsense":                               "crane recommend has no flag --nonsense",
		"crane dance":                                              "crane has no subcommand or argument dance",
		"kubectl crane backtest dance":                             "crane backtest has no subcommand or argument dance",
		"crane recommend -n":                                       "-n of crane recommend needs a value",
		"bin/dance --now":                                          "nothing builds bin/dance",
		"craned --nonsense=true":                                   "craned has no flag --nonsense",
		"crane-scheduler simulate --nonsense":                      "crane-scheduler simulate has no flag --nonsense",
		"crane-scheduler --config FILE":                            "",
		"kubectl apply --server-side -k config":                    "",
		"kubectl apply -f examples/none.yaml":                      "examples/none.yaml does not exist",
		"crane recommend -n a > p.yaml && kubectl apply -f p.yaml": "",
		"go test ./test/none":                                      "./test/none does not exist",
		"hack/none.sh":                                             "hack/none.sh does not exist",
		"echo 'crane dance'":                                       "",
		"crane simulate schedule --nonsense":                       "crane-scheduler simulate has no flag --nonsense",
		"crane simulate schedule --nodes 3 --seeds 2":              "",
		"crane forecast web.csv -o svg":                            "",
		"crane doctor dance":                                       "crane doctor has no subcommand or argument dance",
		"KEY=value crane doctor --nonsense":                        "crane doctor has no flag --nonsense",
	} {
		var got string
		if problems := c.check([]string{line}, ""); len(problems) > 0 {
			_, got, _ = strings.Cut(problems[0], `": `)
		}
		if got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}

	if problems := c.check(nil, "run `make nothing-like-it` first"); len(problems) != 1 {
		t.Errorf("check of a missing target = %v, want one problem", problems)
	}
	if got := consoleBlocks("```console\n$ a \\\n  b\noutput\n```\n```sh\n$ c\n```\n"); !slices.Equal(got, []string{"a b"}) {
		t.Errorf("consoleBlocks() = %q, want the command without its continuation or output", got)
	}
}
