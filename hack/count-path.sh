#!/usr/bin/env bash
# Copyright The Crane Authors.
# SPDX-License-Identifier: Apache-2.0
#
# hack/count-path.sh counts the functions between a sample in Prometheus and the patch of a pod, and the turn-backs among them. It builds
# copies of internal/ and pkg/ in which every function reports its calls (test/pathlength/instrument), and runs one target from the samples
# of a real Prometheus engine over its Recommendation to the resize of its pod (test/pathlength). It prints
#
#   functions on the path: declared functions and methods of the module that are active when a sample of usage is read, an object is
#                          written, or a folder (internal/X, pkg/X) is entered for the first time after the first sample
#   entered in all:        every function and method that is called from the first sample to the patch, helpers included
#   turn-backs:            calls into a folder that is already on the stack of the caller and is not the caller's own: callbacks,
#                          delivered closures and visitors. The body of a loop over an iterator belongs to the loop.
#
# A function that is started in a goroutine has no caller. --list prints the names.
set -euo pipefail
cd "$(dirname "$0")/.."

pattern='functions on the path'
if [[ ${1:-} == --list ]]; then pattern='path: |functions of |turn-back: |functions on the path'; fi
copies=$(mktemp -d)
trap 'rm -rf "$copies"' EXIT
go run ./test/pathlength/instrument "$copies"
if ! output=$(go test -count=1 -vet=off -overlay "$copies/overlay.json" -run 'TestPath$' -v ./test/pathlength 2>&1); then
  echo "$output"
  exit 1
fi
grep -E "$pattern" <<<"$output" | sed -E 's/^ *path_test.go:[0-9]+: //'
