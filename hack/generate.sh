#!/usr/bin/env bash
# Copyright The Crane Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Writes the generated files: api/*/v1alpha1/zz_generated.deepcopy.go, config/crd/*.crane.io_*.yaml, the protobuf types of the data source
# grpc, the pages of fields, flags, metrics and values in docs/reference, and the servers that the chart finds. The
# generators are built from the versions that hack/go.mod pins, so that the same sources always give the same files.
# Usage: hack/generate.sh
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."

kinds="./api/analysis/...;./api/autoscaling/...;./api/ensurance/...;./api/prediction/...;./api/topology/..."

mkdir -p bin
(cd hack && go build -o ../bin/controller-gen sigs.k8s.io/controller-tools/cmd/controller-gen)

bin/controller-gen object:headerFile=hack/boilerplate.go.txt paths="./api/..."

# Write to an empty folder and swap, so that the file of a kind that is gone goes too.
out="$(mktemp -d)"
trap 'rm -rf "${out}"' EXIT
bin/controller-gen crd paths="${kinds}" output:crd:dir="${out}"
for file in "${out}"/*.yaml; do
  # Folded descriptions lose the line breaks of the Go comments, so that kubectl explain can wrap them to the terminal.
  { sed 's|^//|#|' hack/boilerplate.go.txt; sed -e '1{/^---$/d;}' -e 's/^\( *description:\) |-$/\1 >-/' "${file}"; } >"${file}.new"
  mv "${file}.new" "${file}"
done
rm -f config/crd/*.crane.io_*.yaml
mv "${out}"/*.yaml config/crd/

(cd hack/tools/protogen && go build -o ../../../bin/protogen .)
bin/protogen . internal/metrics/grpc/datasource.proto internal/metrics/grpc/datasourcepb/datasource.pb.go

# The pages come last: they describe the definitions above.
CRANE_UPDATE_DOCS=1 go test -count=1 -run '^(TestGenerated|TestTranslations|TestChartKnowsTheSameServers)$' ./test/docs ./internal/metrics/discover ./test/monitoring
