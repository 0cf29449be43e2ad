// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package agent_test tests crane-agent on real nodes: in its image, as the DaemonSet of config/crane-agent, with the permissions of
// config/rbac, beside a real kubelet, containerd and runc.
package agent_test

import (
	"flag"
	"os"
	"testing"

	"crane.io/crane/test/e2e/node"
)

// command names the binary, its image, the DaemonSet and its container.
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
