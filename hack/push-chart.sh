#!/usr/bin/env bash
# Copyright The Crane Authors.
# SPDX-License-Identifier: Apache-2.0
#
# push-chart.sh VERSION REGISTRY DIST [FLAG...]: packages the chart with the digests of the images of VERSION that `make images` wrote to DIST/images
# and pushed to REGISTRY, and pushes it to REGISTRY/charts with the flags of `helm push`. DIST/digests then has a line "NAME VERSION DIGEST" for each
# image and the chart. HELM is the path of helm.
set -euo pipefail
cd "$(dirname "$0")/.."

version=$1 registry=$2
mkdir -p "$3"
dist=$(cd "$3" && pwd)
shift 3
: "${HELM:=$PWD/bin/helm}"

# Links to config/ become files.
rm -rf "$dist/chart"
mkdir -p "$dist/chart"
cp -RL charts/crane "$dist/chart/crane"
(cd hack/images && ${GO:-go} run . -values ../../charts/crane/values.yaml -version "$version" -out "$dist/images" -push "$registry") >"$dist/chart/crane/values.yaml"
"$HELM" package "$dist/chart/crane" --destination "$dist" --version "${version#v}" --app-version "$version"
"$HELM" push "$dist/crane-${version#v}.tgz" "oci://$registry/charts" "$@" 2>&1 | tee "$dist/chart/pushed"
digest=$(sed -n 's/^Digest: *//p' "$dist/chart/pushed")
[ -n "$digest" ]
{
	cat "$dist/images/digests"
	echo "charts/crane $version $digest"
} >"$dist/digests"
