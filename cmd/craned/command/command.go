// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Package command runs craned. A program that imports it can add recommenders to the built-in ones; examples/recommender is one.
package command

import (
	"os"

	ctrl "sigs.k8s.io/controller-runtime"

	"crane.io/crane/internal/component/filesize"
	"crane.io/crane/internal/component/termtext"
	"crane.io/crane/internal/craned"
	"crane.io/crane/pkg/recommend"
)

// Run runs craned with the flags of the process until it is told to stop, and returns the exit code: 0 after an orderly stop,
// otherwise 1. Additional recommenders can be named in rules like the built-in ones.
func Run(additional ...recommend.Recommender) int {
	filesize.IgnoreSignal()
	if err := craned.NewCommand(additional...).ExecuteContext(ctrl.SetupSignalHandler()); err != nil {
		termtext.PrintError(os.Stderr, "craned", err)
		return 1
	}

	return 0
}
