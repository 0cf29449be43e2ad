// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package agent_test shows what crane-agent does to real nodes: in its image, as the DaemonSet of config/crane-agent, with the rights of
// config/rbac, beside a real kubelet, containerd and runc.
package agent_test

import (
	"os"
	"testing"

	"crane.io/crane/test/e2e/node"
)

// command is the binary, and the name of its image, of the DaemonSet and of its container.
const command = "crane-agent"

func TestMain(m *testing.M) {
	if plan := os.Getenv(mortalEnv); plan != "" {
		os.Exit(live(plan))
	}
	os.Exit(node.Main(m, node.Setup{Machines: true, Systemd: true, Commands: []string{command}}))
}
