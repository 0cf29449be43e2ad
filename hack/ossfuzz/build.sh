#!/usr/bin/env bash
# Copyright The Crane Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Builds the fuzz targets of hack/ossfuzz/targets for OSS-Fuzz, and packs their corpora. It runs in the image of hack/ossfuzz/Dockerfile, which
# provides compile_native_go_fuzzer, SRC and OUT. With LIST=1 it prints the targets instead.
set -euo pipefail
cd "$(dirname "$0")/../.."

grep -vE '^(#|$)' hack/ossfuzz/targets | while read -r dir target input; do
	name=$(echo "${dir#./}_$target" | tr '/' '_')
	if [ -n "${LIST:-}" ]; then
		echo "$name"
		continue
	fi

	compile_native_go_fuzzer "crane.io/crane/${dir#./}" "$target" "$name"
	# The builder reports a target that it does not find, and succeeds.
	if [ ! -e "$OUT/$name" ]; then
		echo "$name was not built" >&2
		exit 1
	fi

	# The corpus in the format of `go test` is that of the builder as well.
	if [ -d "$dir/testdata/fuzz/$target" ]; then
		zip -qj "$OUT/${name}_seed_corpus.zip" "$dir/testdata/fuzz/$target"/*
	fi
done
