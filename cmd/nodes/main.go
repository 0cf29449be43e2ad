// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Command nodes runs a Kubernetes cluster with real nodes on this machine: each with a kubelet, a container runtime and
// runc, in namespaces or in a small virtual machine.
package main

import (
	"os"

	"crane.io/crane/internal/component/termtext"
	"crane.io/crane/internal/testbed/realnode/nodescommand"
)

func main() {
	status, err := nodescommand.Run(os.Args[1:], os.Stdout, os.Stderr)
	if err != nil {
		termtext.PrintError(os.Stderr, "nodes", err)
		status = max(status, 1)
	}

	os.Exit(status)
}
