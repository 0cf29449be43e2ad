// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

// Command playground runs the whole system on one machine.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"crane.io/crane/internal/component/termtext"
	"crane.io/crane/internal/component/version"
	"crane.io/crane/internal/testbed/playground"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	status := 0
	err := command(&status).ExecuteContext(ctx)
	stop()

	if err != nil {
		termtext.PrintError(os.Stderr, "playground", err)
		status = max(status, 1)
	}

	os.Exit(status)
}

// command returns the root command. It sets status if the playground ran in a second process, which has already printed
// its error.
func command(status *int) *cobra.Command {
	o := playground.NewOptions()
	cmd := &cobra.Command{
		Use:           "playground",
		Short:         "Run Kubernetes, simulated nodes, a Prometheus with history and Crane on this machine",
		Args:          cobra.NoArgs,
		Version:       version.Long(),
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.Complete(cmd.Flags()); err != nil {
				return err
			}

			if err := o.Validate(); err != nil {
				return err
			}

			var err error
			*status, err = playground.Enter(cmd.Context(), o, func(o *playground.Options) error {
				return playground.Run(cmd.Context(), o, cmd.OutOrStdout(), cmd.ErrOrStderr())
			})

			return err
		},
	}

	o.AddFlags(cmd.Flags())
	return cmd
}
