// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"
)

func TestDidYouMean(t *testing.T) {
	candidates := []string{"checkout", "checkout-worker", "cart", "catalog", "frontend"}
	for name, want := range map[string]string{
		"checkot":  "; did you mean checkout?",
		"chekcout": "; did you mean checkout?",
		"frontnd":  "; did you mean frontend?",
		"front":    "; did you mean frontend?",
		"crat":     "; did you mean cart?",
		"check":    "; did you mean checkout or checkout-worker?",
		"xyz":      "",
		"":         "",
	} {
		if got := didYouMean(name, candidates); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}

// TestUnknownCommands checks that unknown commands and workloads suggest known ones and end with an error.
func TestUnknownCommands(t *testing.T) {
	dir := fixtureSeriesDir(t)
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"recomment"}, exitUsage, "did you mean recommend?"},
		{[]string{"explain", "schedulin"}, exitUsage, "did you mean scheduling?"},
		{[]string{"backtest", "rightsiz"}, exitUsage, "did you mean rightsize?"},
		{[]string{"recommend", "--from", dir, "--explain", "staedy"}, exitNoResult, "did you mean steady?"},
		{[]string{"recommend", "--from", dir, "-o", "jsno"}, exitUsage, "json"},
	} {
		code, _, errOut := runCrane(t, c.args...)
		if code != c.code || !strings.Contains(errOut, c.want) {
			t.Errorf("%v: exit %d, %s", c.args, code, errOut)
		}
	}
}
