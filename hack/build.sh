#!/usr/bin/env bash
# Copyright The Crane Authors.
# SPDX-License-Identifier: Apache-2.0
#
# hack/build.sh DIRECTORY LDFLAGS COMMAND... builds ./cmd/COMMAND... into DIRECTORY and shows progress: on a terminal one
# line that is updated, elsewhere a line every 30 seconds. A build from Go's cache prints nothing.
set -euo pipefail

directory=$1 ldflags=$2
shift 2
mkdir -p "$directory"

# progress reads the package paths that `go build -v` prints, counts them, and passes errors on.
progress() {
  local packages=0 shown=$SECONDS line interval=30
  [ -t 2 ] && interval=1
  while IFS= read -r line; do
    if [[ $line != *" "* && $line == *[a-z]* ]]; then
      packages=$((packages + 1))
    elif [[ $line != "go: downloading "* ]]; then
      printf '%s\n' "$line" >&2
      continue
    fi
    if [ "$packages" = 1 ] || ((SECONDS - shown >= interval)); then
      shown=$SECONDS
      if [ "$interval" = 1 ]; then
        printf '\r\033[K  %d packages compiled in %d s, now %s' "$packages" "$SECONDS" "${line:0:60}" >&2
      elif ((packages > 1)); then
        printf '  %d packages compiled in %d s, now %s\n' "$packages" "$SECONDS" "$line" >&2
      fi
    fi
  done
  if [ "$interval" = 1 ] && ((packages > 0)); then printf '\r\033[K' >&2; fi
  if ((packages > 1)); then printf 'built %s: %d packages in %d s\n' "$1" "$packages" "$SECONDS" >&2; fi
}

missing=
for command in "$@"; do [ -e "$directory/$command" ] || missing="$missing $command"; done
if [ -n "$missing" ]; then echo "building$missing; the first build on a machine takes 10 to 20 minutes on 2 cores, later ones some seconds" >&2; fi

"${GO:-go}" build -v -ldflags "$ldflags" -o "$directory/" "${@/#/./cmd/}" 2>&1 | progress "$*"
