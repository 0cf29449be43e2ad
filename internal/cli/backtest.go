// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import "github.com/spf13/cobra"

// newBacktestCommand groups the back-tests of forecasters and sizing policies.
func newBacktestCommand(s Streams) *cobra.Command {
	return newGroupCommand("backtest", "Back-test forecasters and sizing policies against measured series", newBacktestForecastCommand(s), newBacktestRightsizeCommand(s))
}
