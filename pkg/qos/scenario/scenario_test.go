// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const files = "../../../test/scenarios/pressure"

// TestScenarios runs the scenarios of the documentation, which cover the defects d01 to d11 of gocrane's agent.
func TestScenarios(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join(files, "*.txt"))
	if err != nil || len(paths) < 20 {
		t.Fatalf("%d scenarios, %v; want 20 or more", len(paths), err)
	}

	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			t.Parallel()

			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}

			s, err := Parse(string(text))
			if err != nil {
				t.Fatal(err)
			}

			if s.Title == "" || len(s.expectations) == 0 {
				t.Errorf("title %q, %d expectations, want both", s.Title, len(s.expectations))
			}

			out, err := s.Run()
			if err != nil {
				t.Fatal(err)
			}

			for _, wrong := range out.Failed {
				t.Errorf("Run: %s, want the expectation met", wrong)
			}

			if t.Failed() {
				for _, e := range out.Log {
					t.Logf("%8s  %s", e.At, e.Text)
				}
			}
		})
	}
}

// TestScenarios_CoverDefects checks that the titles of scenarios name each of the eleven defects.
func TestScenarios_CoverDefects(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join(files, "*.txt"))
	if err != nil {
		t.Fatal(err)
	}

	var titles strings.Builder
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}

		title, _, _ := strings.Cut(string(text), "\n")
		names, _, _ := strings.Cut(strings.TrimPrefix(title, "# "), ":")
		titles.WriteString(", " + names)
	}

	titles.WriteString(",")
	for i := 1; i <= 11; i++ {
		if name := fmt.Sprintf(", D%d,", i); !strings.Contains(titles.String(), name) {
			t.Errorf("no title names D%d, want a scenario for each of D1 to D11", i)
		}
	}
}
