// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import "github.com/spf13/cobra"

// newSimulateCommand groups the simulations of autoscaling and scheduling.
func newSimulateCommand(s Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "simulate",
		Short: "Simulate autoscaling or scheduling with a model of pods or nodes",
		Args:  noArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newSimulateAutoscaleCommand(s), newSimulateScheduleCommand(s))
	return cmd
}
