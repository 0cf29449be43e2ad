// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package craned

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestEveryCollectorIsGuarded checks that the parts of craned register their metrics with the guards of metricsRegistry alone.
func TestEveryCollectorIsGuarded(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}

	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}

		if file != "metrics.go" && !strings.HasSuffix(file, "_test.go") && strings.Contains(string(source), "ctrlmetrics.") {
			t.Errorf("%s uses the registry of controller-runtime, want metricsRegistry", file)
		}
	}
}
