// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Command craned is Crane's controller manager.
package main

import (
	"fmt"
	"os"

	ctrl "sigs.k8s.io/controller-runtime"

	"crane.io/crane/internal/component/filesize"
	"crane.io/crane/internal/craned"
)

func main() {
	filesize.IgnoreSignal()
	if err := craned.NewCommand().ExecuteContext(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, "craned:", err)
		os.Exit(1)
	}
}
