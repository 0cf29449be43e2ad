#!/usr/bin/env bash
# Copyright The Crane Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Prints the totals of `crane simulate autoscale` for each family of series in ../shared, and the wall time. Each family is one fleet.
#
# Usage: hack/bench-scaling.sh [BUDGET...]
# With several budgets it also prints, for each family, the score of the budget that is chosen on the families of other origin: the one with
# the fewest minutes under capacity among those whose replica hours are at most 1.09 times those of the HPA alone in each of these families.
set -eu
cd "$(dirname "$0")/.."
shared=../shared
[ $# -gt 0 ] || set -- 0.1
scores=$(mktemp)
trap 'rm -f "$scores"' EXIT
for budget; do
  for family in traces data/requests data/known-cause data/vm-cpu data/vm-memory; do
    [ -d "$shared/$family" ] || { echo "$shared/$family: absent, skipped"; continue; }
    echo "Scaling ahead, $family, budget $budget"
    totals=$(bin/crane simulate autoscale --budget "$budget" "$shared/$family" | awk 'found { print } /^$/ { found = 1 }')
    echo "$totals"
    echo "$totals" | awk -v f="${family#data/}" -v b="$budget" '$2 == "ehpa" { print f, b, $4, $6 }' >>"$scores"
    echo
  done
done 2>&1
[ $# -eq 1 ] || awk '
  function group(f) { return f ~ /^vm-/ ? "vm" : f }
  { families[$1]; budgets[$2]; minutes[$1, $2] = $3; hours[$1, $2] = $4 }
  END {
    print "Scaling ahead, leave one family out: FAMILY, CHOSEN BUDGET, UNDER CAPACITY, REPLICA HOURS"
    for (f in families) {
      chosen = ""
      for (b in budgets) {
        product = 1
        for (g in families) if (group(g) != group(f)) product *= hours[g, b] > 1.09 ? 1e9 : minutes[g, b]
        if (chosen == "" || product < least) { chosen = b; least = product }
      }
      print f, chosen, minutes[f, chosen], hours[f, chosen]
    }
  }' "$scores"
echo "Wall time of scaling ahead: ${SECONDS} s"
