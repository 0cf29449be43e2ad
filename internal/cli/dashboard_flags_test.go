// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"
)

func TestDashboardFlags(t *testing.T) {
	for _, args := range [][]string{
		{"--listen", "0.0.0.0:80"},
		{"--listen", "example.com:80"},
		{"--listen", "80"},
		{"--from", "x", "--context", "a"},
		{"--resource", "disk"},
		{"--context", "a", "--context", "b", "--prometheus", "http://x"},
	} {
		if _, _, err := execute(t, append([]string{"dashboard", "--open=false"}, args...)...); err == nil || !strings.Contains(err.Error(), args[0]) {
			t.Errorf("dashboard %v = %v, want an error that names %s", args, err, args[0])
		}
	}
}
