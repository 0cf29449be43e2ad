// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package playground

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestRepeatUntil checks that a command is repeated until its output matches, that the last output is kept whole, and that an output which never matches is an error.
func TestRepeatUntil(t *testing.T) {
	for until, want := range map[string]struct {
		output string
		after  time.Duration
		failed bool
	}{
		"":                  {"node-01  0.51", 0, false},
		`node-01 +0\.[7-9]`: {"node-01  0.70", 19 * showInterval, false},
		"never":             {"node-01  0.80", showTimeout, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			begin := time.Now()
			runs := 0

			got, err := repeatUntil(t.Context(), until, func() []byte {
				runs++
				return fmt.Appendf(nil, "node-01  0.%d", 50+min(runs, 30))
			})
			if (err != nil) != want.failed || string(got) != want.output || time.Since(begin) != want.after {
				t.Errorf("repeatUntil(%q) = %q after %s, error %v; want %q after %s, error %t", until, got, time.Since(begin), err, want.output, want.after, want.failed)
			}
		})
	}

	if _, err := repeatUntil(t.Context(), "(", nil); err == nil {
		t.Error(`repeatUntil("("): no error, want one for the invalid pattern`)
	}
}

// TestQuotedArgsSplitBack: a shell splits the printed text into the original arguments.
func TestQuotedArgsSplitBack(t *testing.T) {
	args := []string{"get", "-o", "jsonpath={.data.data}", "-p", `{"a": "it's $HOME\n"}`, "", "a\tb", "-l", "app in (x,y)", "--for=a"}
	out, err := exec.CommandContext(t.Context(), "sh", "-c", `printf '%s\000' `+quoteArgs(args)).Output()
	if err != nil {
		t.Fatal(err)
	}

	want := strings.Join(args, "\x00") + "\x00"
	if string(out) != want {
		t.Errorf("a shell splits quoteArgs(%q) into %q, want %q", args, out, want)
	}
}
