// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Command crane-scheduler is kube-scheduler with Crane's plugins.
package main

import (
	"os"

	"k8s.io/component-base/cli"

	"crane.io/crane/internal/component/termtext"
	"crane.io/crane/internal/scheduler/app"
)

func main() {
	if err := cli.RunNoErrOutput(app.NewCommand()); err != nil {
		termtext.PrintError(os.Stderr, "crane-scheduler", err)
		os.Exit(1)
	}
}
