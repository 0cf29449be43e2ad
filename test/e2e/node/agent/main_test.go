// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package agent_test shows what crane-agent does to real nodes: in its image, as the DaemonSet of config/crane-agent, with the rights of
// config/rbac, beside a real kubelet, containerd and runc.
package agent_test

import (
	"flag"
	"os"
	"testing"

	"crane.io/crane/test/e2e/node"
)

// command is the binary, and the name of its image, of the DaemonSet and of its container.
const command = "crane-agent"

// mortal is a program that is killed while it changes a container.
const mortal = "mortal"

func TestMain(m *testing.M) {
	flag.Parse()
	images := []string{command}
	if !testing.Short() {
		images = append(images, mortal)
	}
	os.Exit(node.Main(m, node.Setup{VirtualMachines: true, Systemd: true, Commands: images}))
}
