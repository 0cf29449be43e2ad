// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"encoding/json"
	"path"
	"testing"

	"crane.io/crane/internal/testbed/simnode/kernel/conformance"
)

// RunSteps executes steps in a new group of a node with cgroup v2 and returns the kernel's answers.
func (c *Cgroups) RunSteps(t testing.TB, steps []conformance.Step) (out []conformance.Outcome, err error) {
	t.Helper()

	text, err := json.Marshal(steps)
	if err != nil {
		return nil, err
	}

	said, err := c.exec(t, "play", hostCgroups+"/conformance-"+path.Base(t.Name()), string(text))
	if err != nil {
		return nil, err
	}

	err = json.Unmarshal([]byte(said), &out)
	return out, err
}
