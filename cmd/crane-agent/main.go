// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Command crane-agent is Crane's node agent.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"crane.io/crane/internal/agent"
	"crane.io/crane/internal/component/filesize"
	"crane.io/crane/internal/component/termtext"
)

func main() {
	filesize.IgnoreSignal()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process; the next start undoes its changes
	err := agent.NewCommand().ExecuteContext(ctx)
	stop()

	if err != nil {
		termtext.PrintError(os.Stderr, "crane-agent", err)
		os.Exit(1)
	}
}
