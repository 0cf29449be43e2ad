#!/usr/bin/env bash
# Copyright The Crane Authors.
# SPDX-License-Identifier: Apache-2.0
#
# hack/count-words.sh [FOLDER...] counts words in Go comments that the documentation style of Crane avoids, because a
# subject with a name reads better: tell, tells, told, somebody, nobody, whoever. It prints each place and, at the end,
# the number per 1,000 comment lines, generated files apart. It fails at 2 or more per 1,000.
set -euo pipefail
cd "$(dirname "$0")/.."

git ls-files --cached --others --exclude-standard -- "${@:-.}" | grep '\.go$' | grep -v '/zz_generated\|\.pb\.go$' | xargs awk '
  match($0, /(^|[ \t])\/\/.*/) {
    comment = substr($0, RSTART)
    if (comment ~ /^[ \t]*\/\/(nolint|go:)/) next
    lines++
    rest = tolower(comment)
    while (match(rest, /(^|[^a-z])(tell|tells|told|somebody|nobody|whoever)([^a-z]|$)/)) {
      words++
      printf "%s:%d: %s\n", FILENAME, FNR, comment
      rest = substr(rest, RSTART + RLENGTH - 1)
    }
  }
  END {
    rate = lines ? 1000 * words / lines : 0
    printf "%d words in %d comment lines: %.1f per 1,000\n", words, lines, rate
    exit rate >= 2
  }'
