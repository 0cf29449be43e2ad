// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import "github.com/spf13/cobra"

// newBacktestCommand holds the backtests: what ways of deciding would have done on series of real use.
func newBacktestCommand(s Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "backtest",
		Short: "Replay ways of deciding over series of real use",
		Args:  noArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newBacktestForecastCommand(s), newBacktestRightsizeCommand(s))
	return cmd
}
