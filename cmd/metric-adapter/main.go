// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Command metric-adapter serves the external and custom metrics APIs, including Crane's forecasts.
package main

import (
	"os"

	ctrl "sigs.k8s.io/controller-runtime"

	"crane.io/crane/internal/component/filesize"
	"crane.io/crane/internal/component/termtext"
	"crane.io/crane/internal/metricadapter"
)

func main() {
	filesize.IgnoreSignal()
	if err := metricadapter.NewCommand().ExecuteContext(ctrl.SetupSignalHandler()); err != nil {
		termtext.PrintError(os.Stderr, "metric-adapter", err)
		os.Exit(1)
	}
}
