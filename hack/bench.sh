#!/usr/bin/env bash
# Copyright The Crane Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Prints the figures that the README quotes. Nothing here is a test: a number is only as good as the machine is quiet.
set -euo pipefail
cd "$(dirname "$0")/.."

echo "== histogram: time and allocations per sample; 10,000 containers recommended from histograms"
go test -run '^$' -bench 'HistogramAdd|CountsAdd$|Recommend10000|Prove' -benchmem ./pkg/histogram ./pkg/rightsize | grep -E '^(Benchmark|goos|cpu)'

echo
echo "== history: 10,000 containers and 7 days at 60 s, from a Prometheus in a process of its own, into histograms"
go run ./test/bench/history

echo
echo "== crane recommend: the same as a command, with evidence, with an empty cache and with that of the first run"
go run ./test/bench/history -role recommend -page-cache

echo
echo "== playground: 12 nodes, 60 workloads, 14 days written in this run"
bin/playground --once 2>&1 | grep -E '^ *[0-9.]+s  |Memory:|Capability|missing'
