// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package oncelog

import (
	"errors"
	"slices"
	"testing"

	"github.com/go-logr/logr/funcr"
)

// TestLog checks that repeated messages are logged once, and changes and ends always, for each subject on its own.
func TestLog(t *testing.T) {
	var lines []string
	l := New(funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{}))
	for range 2 {
		l.Log("a", "")
		l.Log("b", "moved", "n", 1)
	}

	for _, err := range []error{errors.New("x"), errors.New("x"), errors.New("y"), nil, nil, errors.New("y")} {
		l.Error("a", "reading", err)
	}

	l.Log("b", "moved", "n", 2)
	want := []string{
		`"level"=0 "msg"="moved" "n"=1`, `"msg"="reading" "error"="x"`, `"msg"="reading" "error"="y"`,
		`"level"=0 "msg"="problem resolved" "problem"="reading: y"`, `"msg"="reading" "error"="y"`, `"level"=0 "msg"="moved" "n"=2`,
	}
	if !slices.Equal(lines, want) {
		t.Errorf("logged %q\nwant   %q", lines, want)
	}
}
