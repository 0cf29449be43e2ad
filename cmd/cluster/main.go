// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Command cluster starts real nodes on this machine with Crane installed by its chart, a Prometheus and sample workloads.
package main

import (
	"os"

	"crane.io/crane/internal/component/termtext"
	"crane.io/crane/internal/testbed/realcluster"
)

func main() {
	status, err := realcluster.Run(os.Args[1:], os.Stdout, os.Stderr)
	if err != nil {
		termtext.PrintError(os.Stderr, "cluster", err)
		status = max(status, 1)
	}

	os.Exit(status)
}
