#!/usr/bin/env bash
# Copyright The Crane Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Runs the tests of the dashboard: types, units under Node.js, pages in chromium. Arguments are paths of browser tests; all of them by default.
# CRANE_SCREENSHOTS names a folder for screenshots of each page.
set -euo pipefail
cd "$(dirname "$0")/.."

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
node_modules/.bin/tsc --noEmit
(cd ../hack/webui && "${GO:-go}" run . -tests "$out")
node --test "$out"/*.test.mjs
if ! command -v chromium >/dev/null && ! command -v chromium-browser >/dev/null; then
	echo "skipped: browser tests, because chromium is not installed"
	exit 0
fi
if [ $# = 0 ]; then set -- test/browser/*.test.mjs; fi
node --test --test-concurrency=1 "$@"
