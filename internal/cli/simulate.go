// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import "github.com/spf13/cobra"

// newSimulateCommand holds the simulations: what a part of Crane would do to a model of the world.
func newSimulateCommand(s Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "simulate",
		Short: "Play load through a model of pods or nodes",
		Args:  noArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newSimulateAutoscaleCommand(s), newSimulateScheduleCommand(s))
	return cmd
}
