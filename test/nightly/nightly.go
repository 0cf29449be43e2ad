// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nightly skips tests that take too long for CI. `make nightly` runs them.
package nightly

import (
	"os"
	"testing"
)

// Only skips a test unless CRANE_NIGHTLY is set.
func Only(t *testing.T) {
	t.Helper()

	if os.Getenv("CRANE_NIGHTLY") == "" {
		t.Skip("takes some minutes; runs where CRANE_NIGHTLY is set, as in make nightly")
	}
}
