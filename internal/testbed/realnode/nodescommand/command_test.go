// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package nodescommand

import (
	"io"
	"testing"
	"time"
)

func TestRunRefuses(t *testing.T) {
	for _, args := range [][]string{
		nil,
		{"dance"},
		{"up", "down"},
		{"up", "--nodes", "0"},
		{"up", "--nodes", "-1"},
		{"up", "--nodes", "10"},
		{"bench", "--rounds", "0"},
		{"up", "--unknown"},
	} {
		if status, err := Run(args, io.Discard, io.Discard); status != 2 || err == nil {
			t.Errorf("Run(%q) = %d, error %v; want 2 and an error", args, status, err)
		}
	}

	if status, err := Run([]string{"--help"}, io.Discard, io.Discard); status != 0 || err != nil {
		t.Errorf("Run(--help) = %d, error %v; want 0 and no error", status, err)
	}
}

func TestSpread(t *testing.T) {
	got := spread([]time.Duration{3 * time.Second, time.Second, 2 * time.Second})
	if want := "median 2.00s, from 1.00s to 3.00s"; got != want {
		t.Errorf("spread() = %q, want %q", got, want)
	}
}
