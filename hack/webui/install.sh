#!/usr/bin/env bash
# Copyright The Crane Authors.
# SPDX-License-Identifier: Apache-2.0
#
# install.sh [chromium]: installs the sources from npm that the bundle and the tests are made of, and if asked Debian's chromium for the browser
# tests, as root with apt-get.
# Where that is not possible, it prints the reason and succeeds; `make test-web` then skips what needs them.
set -uo pipefail
cd "$(dirname "$0")/../../web"

if [ "${1:-}" = chromium ] && ! command -v chromium >/dev/null && ! command -v chromium-browser >/dev/null; then
	if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
		echo "not installed, because this needs root and apt-get: chromium"
	else
		export DEBIAN_FRONTEND=noninteractive
		apt-get update -qq && apt-get install -qq -y --no-install-recommends chromium fonts-liberation >/dev/null 2>&1 ||
			echo "could not be installed: chromium"
	fi
fi
if ! command -v npm >/dev/null || ! command -v node >/dev/null; then
	echo "not installed, because Node.js and npm are missing: packages of web/package-lock.json"
elif [ "$(node -p 'process.versions.node.split(".")[0]')" -lt 20 ]; then
	echo "not installed, because Node.js is older than 20 ($(node --version)): packages of web/package-lock.json"
elif [ ! -e node_modules/.package-lock.json ] || [ package-lock.json -nt node_modules/.package-lock.json ]; then
	npm ci --ignore-scripts --no-audit --no-fund --loglevel=error || echo "could not be installed: packages of web/package-lock.json"
	[ ! -e node_modules/.package-lock.json ] || touch node_modules/.package-lock.json
fi
exit 0
