#!/usr/bin/env bash
# Copyright The Crane Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Prints the figures of docs/reference/scheduling-benchmark.md: balance of simulated clusters and the burst on an idle node. Arguments go to
# the simulator, for example --nodes 300 --seeds 3. Nothing here is a test.
set -euo pipefail
cd "$(dirname "$0")/.."

echo "== burst: one node reports 10 % load, the rest 50 %, metrics frozen"
bin/crane-scheduler simulate --herd

echo
echo "== balance: 1,000 nodes, ten seeds, metrics 60 s and 180 s old"
if [ $# -gt 0 ]; then
    bin/crane-scheduler simulate --delays 60s,180s "$@"
else
    bin/crane-scheduler simulate --nodes 1000 --seeds 10 --delays 60s,180s
fi

echo
echo "== rebalancing: 100 nodes, five seeds, metrics 60 s old"
bin/crane-scheduler simulate --nodes 100 --seeds 5 --delays 60s --policies default,spread-rebalanced,oracle

echo
echo "== no metrics at all: 60 nodes, five seeds"
bin/crane-scheduler simulate --scenario outage --nodes 60 --seeds 5 --policies default,spread,pack,risk
