#!/usr/bin/env bash
# Copyright The Crane Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Runs the playground with craned under the debugger dlv, at 127.0.0.1:2345. Arguments are those of the playground. craned runs without leader
# election: it would end when a breakpoint stops it for longer than the lease allows.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! command -v dlv > /dev/null; then
	echo "dlv is missing: go install github.com/go-delve/delve/cmd/dlv@latest" >&2
	exit 1
fi

bin=${BIN:-$PWD/bin}
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT

for binary in "$bin"/*; do
	ln -s "$binary" "$directory/"
done

rm -f "$directory/craned"
go build -gcflags='crane.io/crane/...=-N -l' -o "$directory/craned.debug" ./cmd/craned
cat > "$directory/craned" << EOF
#!/bin/sh
exec dlv exec --headless --listen=127.0.0.1:2345 --accept-multiclient --continue "$directory/craned.debug" -- "\$@" --leader-elect=false
EOF
chmod +x "$directory/craned"

"$bin/playground" --bin-dir "$directory" "$@"
