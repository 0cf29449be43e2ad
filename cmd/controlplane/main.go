// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Command controlplane runs one component of a Kubernetes control plane on this machine: an API server with an embedded
// etcd, the controller manager or the scheduler. The playground and the integration tests start it as a child process.
package main

import (
	"os"

	"crane.io/crane/internal/component/termtext"
	"crane.io/crane/internal/testbed/controlplane/server"
)

func main() {
	if err := server.NewCommand().Execute(); err != nil {
		termtext.PrintError(os.Stderr, "Error", err)
		os.Exit(1)
	}
}
