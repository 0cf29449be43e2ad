// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package playground

import (
	"os/exec"
	"strings"
	"testing"
)

// TestQuotedArgsSplitBack: a shell splits the printed text into the original arguments.
func TestQuotedArgsSplitBack(t *testing.T) {
	args := []string{"get", "-o", "jsonpath={.data.data}", "-p", `{"a": "it's $HOME\n"}`, "", "a\tb", "-l", "app in (x,y)", "--for=a"}
	out, err := exec.CommandContext(t.Context(), "sh", "-c", `printf '%s\000' `+quoteArgs(args)).Output()
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Join(args, "\x00") + "\x00"
	if string(out) != want {
		t.Errorf("read back %q, want %q", out, want)
	}
}
