// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"testing"

	"crane.io/crane/internal/testbed/simnode/kernel/conformance"
	"crane.io/crane/test/e2e/node"
)

// testConformance: the kernel says to writes to cgroups of version 2 what the table says by which the simulated kernel is tested.
func testConformance(t *testing.T, cgroups *node.Cgroups) {
	for _, c := range conformance.Cases(false) {
		t.Run(c.Name, func(t *testing.T) {
			got, err := cgroups.RunSteps(t, c.Steps)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range conformance.Differences(c.Steps, got) {
				t.Error(d)
			}
		})
	}
}
