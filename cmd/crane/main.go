// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Command crane recommends resource requests for the workloads of a cluster. Installed as kubectl-crane it is a kubectl
// plugin.
package main

import (
	"os"

	"crane.io/crane/internal/cli"
)

func main() {
	os.Exit(cli.Main(os.Args, os.Stdin, os.Stdout, os.Stderr))
}
