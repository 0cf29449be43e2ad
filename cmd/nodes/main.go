// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Command nodes runs a Kubernetes cluster with real nodes on this machine, for people: a kubelet, containerd and runc each,
// in namespaces or in small virtual machines of their own.
package main

import (
	"fmt"
	"os"

	"crane.io/crane/internal/testbed/realnode/nodescommand"
)

func main() {
	status, err := nodescommand.Run(os.Args[1:], os.Stdout, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, "nodes:", err)
		status = max(status, 1)
	}
	os.Exit(status)
}
