// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package backend

import (
	"fmt"
	"os"
	"testing"
)

// TestMain isolates the tests from the user's cache and cluster.
func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "backend-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)

	for name, value := range map[string]string{"HOME": dir, "XDG_CACHE_HOME": dir, "KUBECONFIG": ""} {
		if err := os.Setenv(name, value); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}

	return m.Run()
}
