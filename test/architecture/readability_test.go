// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package architecture

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestReadability keeps the habits that slow a reader down rare. CONTRIBUTING.md has the rules.
func TestReadability(t *testing.T) {
	var h habits
	for _, name := range goFiles(t) {
		if !strings.HasPrefix(name, "internal/") && !strings.HasPrefix(name, "pkg/") {
			continue
		}

		content, err := os.ReadFile(filepath.Join(root(t), name))
		if err != nil {
			t.Fatal(err)
		}
		if err := h.addFile(name, string(content)); err != nil {
			t.Fatal(err)
		}
	}

	for _, habit := range []struct {
		name   string
		places []string
		// total is what the share of the findings is computed from; 1 for their number.
		total int
		limit float64
	}{
		{"functions of 25 lines or more without a blank line", h.withoutParagraphs, h.longFunctions, .15},
		{"functions with more than 15 lines in a row without a blank line", h.denseFunctions, h.functions, .10},
		{"functions of 25 lines or more without a comment", h.uncommented, h.longFunctions, .40},
		{"if and switch whose initializer has an effect that is not tested", h.hiddenEffects, 1, 0},
		{"assignments of several unrelated values, per line of code", h.tupleAssignments, h.lines, .0015},
		{"variables, parameters and fields whose name does not describe their value", h.vagueNames, 1, 40},
		{"contexts with another name than ctx or <noun>Ctx", h.contextNames, 1, 2},
		{"failure messages of tests without a word", h.wordlessFailures, 1, 0},
	} {
		if got := float64(len(habit.places)) / float64(habit.total); got > habit.limit {
			t.Errorf("%s: %d are %.4f of %d, want at most %g:\n%s", habit.name, len(habit.places), got, habit.total, habit.limit,
				strings.Join(habit.places[:min(len(habit.places), 20)], "\n"))
		}
	}

	if share := float64(h.failuresWithWant) / float64(h.failures); share < .60 {
		t.Errorf("%.2f of %d failure messages say what was wanted, want at least .60", share, h.failures)
	}
}

// TestReadability_Counts checks each habit on code that has it and on the nearest code that has not.
func TestReadability_Counts(t *testing.T) {
	long := strings.Repeat("\ta()\n", longBody)
	for _, c := range []struct {
		name  string
		code  string
		count func(habits) []string
		want  int
	}{
		{"long function without a blank line", "func f() {\n" + long + "}", func(h habits) []string { return h.withoutParagraphs }, 1},
		{"long function with a blank line", "func f() {\n" + long + "\n\ta()\n}", func(h habits) []string { return h.withoutParagraphs }, 0},
		{"short function", "func f() {\n" + long[5:] + "}", func(h habits) []string { return h.withoutParagraphs }, 0},
		{"dense function", "func f() {\n" + long[:5*(longParagraph+1)] + "}", func(h habits) []string { return h.denseFunctions }, 1},
		{"paragraph of 15 lines", "func f() {\n" + long[:5*longParagraph] + "}", func(h habits) []string { return h.denseFunctions }, 0},
		{
			"long literal", "func f() {\n\tx := []int{\n" + strings.Repeat("1,\n", 40) + "\t}\n}",
			func(h habits) []string { return h.denseFunctions }, 0,
		},
		{"long function without a comment", "func f() {\n" + long + "}", func(h habits) []string { return h.uncommented }, 1},
		{"long function with a comment", "func f() {\n" + long + "// Reason.\n}", func(h habits) []string { return h.uncommented }, 0},
		{"increment in an if", "func f() {\n\tif i++; i > 3 {\n\t}\n}", func(h habits) []string { return h.hiddenEffects }, 1},
		{"field that the condition does not test", "func f() {\n\tif a.b = c; d {\n\t}\n}", func(h habits) []string { return h.hiddenEffects }, 1},
		{"field that the condition tests", "func f() {\n\tif a.b = c(); a.b > 0 {\n\t}\n}", func(h habits) []string { return h.hiddenEffects }, 0},
		{"tested error", "func f() {\n\tif err := a(); err != nil {\n\t}\n}", func(h habits) []string { return h.hiddenEffects }, 0},
		{"call in a switch", "func f() {\n\tswitch a(); b {\n\t}\n}", func(h habits) []string { return h.hiddenEffects }, 1},
		{"unrelated values", "func f() {\n\ta, b := c(), d\n}", func(h habits) []string { return h.tupleAssignments }, 1},
		{"swap", "func f() {\n\ta, b = b, a\n}", func(h habits) []string { return h.tupleAssignments }, 0},
		{"fields of one value", "func f() {\n\tx, y := p.x, p.y\n}", func(h habits) []string { return h.tupleAssignments }, 0},
		{"clauses of a for", "func f() {\n\tfor i, n := 0, a(); i < n; i++ {\n\t}\n}", func(h habits) []string { return h.tupleAssignments }, 0},
		{"preposition", "func f(of int) {\n\tby := of\n}", func(h habits) []string { return h.vagueNames }, 2},
		{"noun", "func f(owner int) {\n\tcutoff := owner\n}", func(h habits) []string { return h.vagueNames }, 0},
		{"context by a participle", "func f() {\n\tbounded, cancel := context.WithCancel(ctx)\n}", func(h habits) []string { return h.contextNames }, 1},
		{"context by a noun", "func f() {\n\treadCtx, cancel := context.WithCancel(ctx)\n}", func(h habits) []string { return h.contextNames }, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			var h habits
			if err := h.addFile("a.go", "package a\n\n"+c.code+"\n"); err != nil {
				t.Fatal(err)
			}
			if got := c.count(h); len(got) != c.want {
				t.Errorf("addFile found %d places, want %d: %q", len(got), c.want, got)
			}
		})
	}
}

// TestReadability_CountsFailures checks which messages of tests count as wordless and which say what was wanted.
func TestReadability_CountsFailures(t *testing.T) {
	for _, c := range []struct {
		call                     string
		failures, wordless, want int
	}{
		{`t.Errorf("%+v", s)`, 1, 1, 0},
		{`t.Errorf("f() = %d, want 3", n)`, 1, 0, 1},
		{`t.Errorf("f() = %d", n)`, 1, 1, 0},
		{`t.Fatalf("listPods returned %d pods", n)`, 1, 0, 0},
		{`t.Fatal(err)`, 0, 0, 0},
		{`t.Errorf("%s: %v", name, err)`, 1, 1, 0},
		{`f.t.Error(got)`, 1, 1, 0},
		{`log.Error(got)`, 0, 0, 0},
	} {
		var h habits
		if err := h.addFile("a_test.go", "package a\n\nfunc f() {\n\t"+c.call+"\n}\n"); err != nil {
			t.Fatal(err)
		}

		got := []int{h.failures, len(h.wordlessFailures), h.failuresWithWant}
		if want := []int{c.failures, c.wordless, c.want}; !slices.Equal(got, want) {
			t.Errorf("addFile(%s) counts %v (failures, wordless, with want), want %v", c.call, got, want)
		}
	}
}
