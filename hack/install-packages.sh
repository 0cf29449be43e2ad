#!/usr/bin/env bash
# Copyright The Crane Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Installs the Debian packages that it is given where that is possible: as root, with apt-get. Where it is not, it prints that and succeeds;
# tests then skip what the machine cannot run, with the reason.
# Usage: hack/install-packages.sh PACKAGE...
set -uo pipefail

packages="$*"
missing=""
for p in $packages; do
	dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q 'install ok installed' || missing="$missing $p"
done
[ -z "$missing" ] && exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
	echo "not installed, for want of root or apt-get:$missing"
	exit 0
fi
export DEBIAN_FRONTEND=noninteractive
# Nothing of what is installed is to be started here: policy-rc.d is Debian's switch for that.
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
	printf '#!/bin/sh\nexit 101\n' >$policy && chmod +x $policy
	trap 'rm -f $policy' EXIT
fi
# shellcheck disable=SC2086 # a list of words
apt-get update -qq && apt-get install -qq -y --no-install-recommends $missing >/dev/null ||
	echo "could not be installed:$missing"
exit 0
