// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"testing"

	"crane.io/crane/test/e2e/node"
	"crane.io/crane/test/kernelcases"
)

// testConformance checks that a real kernel answers writes to cgroup v2 as specified in the table that also tests the simulated kernel.
func testConformance(t *testing.T, cgroups *node.Cgroups) {
	for _, c := range kernelcases.Cases(false) {
		t.Run(c.Name, func(t *testing.T) {
			got, err := cgroups.RunSteps(t, c.Steps)
			if err != nil {
				t.Fatal(err)
			}

			for _, d := range kernelcases.Differences(c.Steps, got) {
				t.Errorf("kernel: %s, want what the fake does", d)
			}
		})
	}
}
