#!/usr/bin/env bash
# Copyright The Crane Authors.
# SPDX-License-Identifier: Apache-2.0

# Trains the gate of the forecasts anew and writes its weights to pkg/forecast/auto/gate_weights.go. The recipe and its seeds are in
# pkg/forecast/auto/gate_train_test.go. It reads the recorded series in ../shared, or in the directory $CRANE_SERIES, and generates the others
# (test/families). The same series give the same weights on the same processor architecture. Run it whenever the experts of the median change.
#
# Usage: [CRANE_SERIES=DIR] hack/train-gate.sh [FILE]
set -euo pipefail
cd "$(dirname "$0")/.."
file=$(realpath -m "${1:-pkg/forecast/auto/gate_weights.go}")
CRANE_GATE=$file go test -run '^$' -bench TrainGate -benchtime 1x -timeout 60m ./pkg/forecast/auto
grep Checksum "$file"
