#!/usr/bin/env bash
# Copyright The Crane Authors.
# SPDX-License-Identifier: Apache-2.0
#
# release.sh VERSION DIR [OS/ARCH...]: writes the files of a release into DIR: an archive of `crane` and the SBOM of the binary for each platform, the
# krew manifest, SHA256SUMS of all these, and NOTES.md. The same commit gives the same files.
set -euo pipefail
cd "$(dirname "$0")/.."

version=$1 out=$2
shift 2
platforms=${*:-linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64}
ldflags="-s -w -X crane.io/crane/internal/component/version.version=$version"
time=$(git log -1 --format=%ct)
repository=https://github.com/${GITHUB_REPOSITORY:-example/crane}
url=$repository/releases/download/$version
mkdir -p "$out"
out=$(cd "$out" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

krew=$out/rightsize.yaml
cat >"$krew" <<EOF
apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata: {name: rightsize}
spec:
  version: $version
  homepage: $repository
  shortDescription: Recommend and apply resource requests from measured usage
  description: |
    Recommends requests and replicas from the usage in Prometheus, with the evidence behind each number, and talks to Crane where it is installed.
    The plugin crane of krew is gocrane's; link the binary as kubectl-crane to call this one "kubectl crane".
  platforms:
EOF
for platform in $platforms; do
	os=${platform%/*} arch=${platform#*/} binary=crane
	[ "$os" != windows ] || binary=crane.exe
	dir=$work/$os-$arch archive=crane-$version-$os-$arch.tar.gz
	mkdir -p "$dir"
	CGO_ENABLED=0 GOOS=$os GOARCH=$arch ${GO:-go} build -trimpath -buildvcs=false \
		-ldflags "$ldflags" -o "$dir/$binary" ./cmd/crane
	cp LICENSE "$dir"
	tar --sort=name --mtime="@$time" --owner=0 --group=0 --numeric-owner --mode=a+rX,u+w,go-w -C "$dir" -cf - "$binary" LICENSE | gzip -9n >"$out/$archive"
	cat >>"$krew" <<EOF
  - selector: {matchLabels: {os: $os, arch: $arch}}
    uri: $url/$archive
    sha256: $(sha256sum "$out/$archive" | cut -d' ' -f1)
    bin: $binary
EOF
done
(cd hack/images && ${GO:-go} run . -sbom -source ../.. -version "$version" -created "$time" -platforms "${platforms// /,}" -ldflags "$ldflags" -out "$out" crane)

previous=$(git describe --tags --abbrev=0 --match 'v*' "$(git rev-list -1 HEAD)^" 2>/dev/null || true)
{
	echo "# Crane $version"
	echo
	# Subjects are "area: summary"; one section for each area.
	git log --no-merges --format=%s ${previous:+"$previous..HEAD"} | awk -F': ' '
		NF > 1 { if (!($1 in text)) areas[++n] = $1; text[$1] = text[$1] "- " substr($0, length($1) + 3) "\n" }
		END { for (i = 1; i <= n; i++) printf "## %s\n\n%s\n", areas[i], text[areas[i]] }'
} >"$out/NOTES.md"
(cd "$out" && sha256sum crane-*.tar.gz crane-*.spdx.json rightsize.yaml >SHA256SUMS)
