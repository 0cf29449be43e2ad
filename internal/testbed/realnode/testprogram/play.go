// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package testprogram

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"

	"crane.io/crane/internal/testbed/simnode/kernel/conformance"
)

// play runs conformance steps in a temporary cgroup.
func play(dir, steps string, out io.Writer) error {
	var list []conformance.Step
	if err := json.Unmarshal([]byte(steps), &list); err != nil {
		return fmt.Errorf("cgroups: steps: %w", err)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	player := &conformance.Real{Roots: map[string]string{"": dir}, Holder: func(what string) *exec.Cmd {
		// This program, wherever it is installed. It ends with its input.
		return exec.Command("/proc/self/exe", "cgroups", "hold", what) //nolint:noctx // Real ends it.
	}}
	outcomes := conformance.Play(player, list)
	if err := errors.Join(player.Close(), os.Remove(dir)); err != nil {
		return err
	}
	return writeReport(out, outcomes)
}

// hold is a process that steps move to groups.
func hold(mib string, out io.Writer) error {
	if err := conformance.Hold(mib, os.Stdin, out); err != nil {
		return fmt.Errorf("cgroups: %w", err)
	}
	return nil
}
