// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import "github.com/spf13/cobra"

// newBacktestCommand groups the back-tests of forecasters and sizing policies.
func newBacktestCommand(s Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "backtest",
		Short: "Back-test forecasters and sizing policies against measured series",
		Args:  noArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newBacktestForecastCommand(s), newBacktestRightsizeCommand(s))
	return cmd
}
