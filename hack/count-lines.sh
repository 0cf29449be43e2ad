#!/usr/bin/env bash
# Copyright The Crane Authors.
# SPDX-License-Identifier: Apache-2.0
#
# hack/count-lines.sh [FOLDER...] counts the lines of Go that are neither blank nor comment, leaving out tests, generated
# files and the test support under test/. It prints a figure per folder (two levels) and, at the end, the total.
set -euo pipefail
cd "$(dirname "$0")/.."

git ls-files --cached --others --exclude-standard -- "${@:-.}" |
  grep '\.go$' | grep -v '_test\.go$\|/zz_generated\|\.pb\.go$\|^test/\|/testdata/' |
  while read -r file; do if [[ -f $file ]]; then echo "$file"; fi; done | xargs awk '
  FNR == 1 { generated = 0; comment = 0; if (/^\/\/ Code generated .* DO NOT EDIT\.$/) generated = 1 }
  /^\/\/ Code generated .* DO NOT EDIT\.$/ { generated = 1 }
  generated || /^[ \t]*$/ || /^[ \t]*\/\// { next }
  /^[ \t]*\/\*/ { comment = 1 }
  comment { if (/\*\//) comment = 0; next }
  {
    n = split(FILENAME, part, "/")
    folder = n > 2 ? part[1] "/" part[2] : part[1]
    lines[folder]++
    total++
  }
  END {
    for (folder in lines) printf "%7d %s\n", lines[folder], folder | "sort -rn"
    close("sort -rn")
    printf "%7d total\n", total
  }'
