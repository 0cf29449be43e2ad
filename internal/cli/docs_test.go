// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestRecommendReference checks that the reference page names every format, order, filter and exit code, and that its
// examples match the golden files. Flags are in a generated page.
func TestRecommendReference(t *testing.T) {
	content, err := os.ReadFile(filepath.FromSlash("../../docs/reference/crane-recommend.md"))
	if err != nil {
		t.Fatal(err)
	}

	page := string(content)
	wanted := append(append(outputFormats(), sortNames()...), groupingNames()...)
	for _, finding := range findingNames() {
		wanted = append(wanted, "--only "+finding)
	}

	for _, word := range wanted {
		if !regexp.MustCompile("[`\\s]" + regexp.QuoteMeta(word) + "[`\\s]").MatchString(page) {
			t.Errorf("docs/reference/crane-recommend.md lacks %s, want each format, order and filter", word)
		}
	}

	for code := exitOK; code <= exitFailOn; code++ {
		if !strings.Contains(page, fmt.Sprintf("| %d | ", code)) {
			t.Errorf("docs/reference/crane-recommend.md lacks exit code %d, want a row for it", code)
		}
	}

	examples := regexp.MustCompile("(?s)<!-- from (\\S+) -->\n```\\w+\n(.*?)```").FindAllStringSubmatch(page, -1)
	if len(examples) < 5 {
		t.Errorf("%d examples, want at least 5", len(examples))
	}

	for _, e := range examples {
		folder := "testdata"
		if strings.HasPrefix(e[1], "patch.") {
			folder = filepath.Join("..", "recommendation", "requestpatch", "testdata")
		}

		output, err := os.ReadFile(filepath.Join(folder, e[1]))
		if err != nil {
			t.Error(err)
		} else if !strings.Contains(string(output), e[2]) {
			t.Errorf("docs/reference/crane-recommend.md shows output that %s lacks, want it as printed:\n%s", e[1], e[2])
		}
	}
}

// TestPlugin checks that the kubectl plugin has the same output and shows its name in the examples.
func TestPlugin(t *testing.T) {
	dir := fixtureSeriesDir(t)
	_, want, _ := runCrane(t, "recommend", "--from", dir, "-o", "csv")

	var out, errOut bytes.Buffer
	if code := Main([]string{"/usr/local/bin/kubectl-crane", "recommend", "--from", dir, "-o", "csv"}, strings.NewReader(""), &out, &errOut); code != exitOK {
		t.Fatalf("recommend as a plugin: exit %d, want %d: %s", code, exitOK, errOut.String())
	}

	var help bytes.Buffer
	Main([]string{"/usr/local/bin/kubectl-crane", "recommend", "--help"}, strings.NewReader(""), &help, &errOut)

	if !strings.Contains(help.String(), "\n  kubectl crane recommend --prometheus") || strings.Contains(help.String(), "\n  crane ") {
		t.Errorf("the examples of the plugin name another program, want kubectl crane:\n%s", help.String())
	}
	if out.String() != want || want == "" {
		t.Errorf("as a plugin:\n%s\nwant\n%s", out.String(), want)
	}
}
