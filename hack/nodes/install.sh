#!/usr/bin/env bash
# Copyright The Crane Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Installs the Debian packages that real nodes are made of, and those it is given.
exec "$(dirname "$0")/../install-packages.sh" containerd runc containernetworking-plugins iproute2 nftables qemu-system-x86 e2fsprogs "$@"
