#!/usr/bin/env bash
# Copyright The Crane Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Prints the totals of `crane simulate autoscale` for each family of series in ../shared, and the wall time. Each family is one fleet.
#
# Usage: hack/bench-scaling.sh [BUDGET]
set -eu
cd "$(dirname "$0")/.."
shared=${CRANE_SERIES:-../shared}
budget=${1:-0.1}
for family in traces data/requests data/known-cause data/vm-cpu data/vm-memory; do
  [ -d "$shared/$family" ] || { echo "$shared/$family: absent, skipped"; continue; }
  echo "Scaling ahead, $family, budget $budget"
  bin/crane simulate autoscale --budget "$budget" "$shared/$family" | awk 'found { print } /^$/ { found = 1 }'
  echo
done 2>&1
echo "Wall time of scaling ahead: ${SECONDS} s"
