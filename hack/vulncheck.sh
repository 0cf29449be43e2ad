#!/usr/bin/env bash
# Copyright The Crane Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Usage: hack/vulncheck.sh GOVULNCHECK DATABASE
# Runs govulncheck on Crane and explains what to do when its database cannot be read: exit status 2 then, 3 with vulnerabilities.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
govulncheck=$1 database=$2
index=index/db.json

reachable() {
  case $database in
  file://*) [ -r "${database#file://}/$index" ] ;;
  *) curl -fsSL --max-time 20 -o /dev/null "$database/$index" ;;
  esac
}

if ! reachable; then
  cat >&2 <<END
vulncheck: the database $database cannot be read, so nothing was checked.
On a machine that reaches it, download and unpack https://vuln.go.dev/vulndb.zip, copy the directory here, and run
  make vulncheck VULNDB=file:///path/to/vulndb
END
  exit 2
fi
exec "$govulncheck" -db "$database" ./...
