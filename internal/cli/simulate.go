// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import "github.com/spf13/cobra"

// newSimulateCommand groups the simulations of autoscaling and scheduling.
func newSimulateCommand(s Streams) *cobra.Command {
	return newGroupCommand("simulate", "Simulate autoscaling or scheduling with a model of pods or nodes", newSimulateAutoscaleCommand(s), newSimulateScheduleCommand(s))
}
