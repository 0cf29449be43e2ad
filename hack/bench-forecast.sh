#!/usr/bin/env bash
# Copyright The Crane Authors.
# SPDX-License-Identifier: Apache-2.0

# Prints the figures of forecasting: accuracy on the series of a directory (default: the traces beside the repository),
# side by side with the baselines, then the cost of a fit, of a refresh from state and of one sample, and of 10,000 series
# in the predictor: the refresh of all after a restart, and the heap that each takes with all that belongs to it.
set -euo pipefail
cd "$(dirname "$0")/.."

traces=${1:-../shared/traces}
if [[ -d $traces ]]; then
	echo "Accuracy on $traces (series 4 and 6 shift their level: look at them apart)"
	go run ./cmd/crane backtest forecast "$traces"
else
	echo "Accuracy: skipped, there is no directory $traces with series"
fi

echo
echo "Cost on one core: a fit of 14 days of minutes, a refresh from state, one sample"
go test -run '^$' -bench 'Fit|Refresh|Observe' -cpu 1 ./pkg/forecast/auto | grep '^Benchmark'

echo
echo "10,000 series on two cores: all refreshed from state (checkpoint, new samples, forecast); heap of each"
go test -run '^$' -bench RefreshFromState -benchtime 1x -cpu 2 ./internal/prediction/predictor | grep '^Benchmark'
