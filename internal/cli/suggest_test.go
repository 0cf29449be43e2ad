// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"
)

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
			t.Errorf("crane %v: exit %d, %s, want %d with %q", c.args, code, errOut, c.code, c.want)
		}
	}
}
