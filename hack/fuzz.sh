#!/usr/bin/env bash
# Copyright The Crane Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Runs every fuzz target of the module, one after the other, for the given time each.
set -euo pipefail
cd "$(dirname "$0")/.."

time=${1:-30s}
grep -rlE '^func Fuzz' --include='*_test.go' . | xargs -n1 dirname | sort -u | while read -r dir; do
  grep -hoE '^func Fuzz[A-Za-z0-9_]+' "$dir"/*_test.go | awk '{print $2}' | sort -u | while read -r target; do
    echo "== $dir $target"
    go test "$dir" -run '^$' -fuzz "^${target}\$" -fuzztime "$time" </dev/null
  done
done
